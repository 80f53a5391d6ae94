"""The service commands: what `llmgw gateway`, `web`, `agent` and `worker` run. Each ends with its process.

`python -m llmgw_site.cli.services NAME` does the same without the command line's own imports; `llmgw up` starts them so.
Django and Celery are loaded by name inside the process that is theirs, never imported here.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from llmgw_site.lib import files, logs
from llmgw_site.lib.config import Config, ConfigError, load
from llmgw_site.lib.errors import Kind, Refused

NAMES = ("gateway", "web", "agent", "worker")
WORKER_THREADS = 4
"""Tasks at once. Threads, not processes: tasks wait for the database and HTTP, and a forked pool costs 60 MB a process."""


def run(name: str, config: Config) -> int:
    """Run the service in this process until it ends; its exit status."""
    os.environ["LLMGW_DATA"] = str(config.data)  # whatever folder we were started in
    files.private_folder(config.data)
    files.private_folder(config.run)
    if name == "worker":  # Celery sets up its own logging (workers/celery.py)
        os.execv(sys.executable, worker_command(config))  # noqa: S606 - no shell wanted
    if name == "web":
        return _web(config)
    if name == "gateway":
        from routing.gateway import serve

        serve.main(config)
    if name == "agent":
        from workers.agent import __main__ as agent

        agent.main(config)
    return 0


def worker_command(config: Config) -> list[str]:
    """The command line of the Celery worker; beat runs in it."""
    return [
        sys.executable, "-P", "-m", "workers", "--quiet", "worker",  # its clock is a thread: workers/beat.py
        "--pool", "threads", "--concurrency", str(WORKER_THREADS),
        "--without-gossip", "--without-mingle", "--without-heartbeat",
        "--loglevel", config.log_level.upper(),
    ]  # fmt: skip


def _web(config: Config) -> int:
    """Uvicorn over the Django application, on the unix socket that only this user can open."""
    import uvicorn

    logs.setup(process="web", level=config.log_level, style=config.log_style)
    files.private_folder(config.data / "static")  # whitenoise wants it to be there; its finders serve what it lacks
    listener = _listen(config.web_socket)
    server = uvicorn.Server(
        uvicorn.Config(
            "llmgw_site.asgi:application",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=True,
            forwarded_allow_ips="*",  # only the gateway can open the socket, and it sets these headers itself
            server_header=False,
            timeout_graceful_shutdown=3,
        )
    )
    try:
        server.run(sockets=[listener])
    finally:
        config.web_socket.unlink(missing_ok=True)
    return 0 if server.started else 1


def _listen(path: Path) -> socket.socket:
    """A unix socket of mode 0600, bound; what an ended process left in its place is removed. Refused (web_runs)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        if other.connect_ex(str(path)) == 0:
            raise Refused(
                Kind.CONFLICT, "web_runs", f"another `web` serves {path}: stop it, or set LLMGW_DATA to another folder"
            )
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # no moment in which others could open it
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    return listener


def main(argv: list[str]) -> int:
    """`python -m llmgw_site.cli.services NAME`."""
    if argv[1:] or argv[0] not in NAMES:
        print(f"usage: python -m llmgw_site.cli.services {'|'.join(NAMES)}", file=sys.stderr)
        return 2
    os.umask(0o077)  # also for what others write under the data folder, such as SQLite
    try:
        return run(argv[0], load())
    except Refused as refused:
        print(f"llmgw: {refused.message}", file=sys.stderr)
        return 1
    except ConfigError as error:
        print("\n".join(f"llmgw: {problem}" for problem in error.problems), file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
