"""The controllers' shared stores: a real PostgreSQL with a database of its own, and a real Valkey on a unix socket."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from llmgw_site.lib.config import load
from llmgw_site.up import valkey
from tests import postgres, processes

SECRET = "the controllers of one cluster share this secret, and nobody else knows it"


@contextmanager
def frozen(url: str) -> Iterator[None]:
    """The PostgreSQL of this address stands still: its connections are there, and nothing comes back."""
    port = str(urlsplit(url).port)
    pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _listens(folder, port)]
    assert len(pids) == 1, pids
    try:
        with psycopg.connect(url) as link:
            os.kill(pids[0], signal.SIGSTOP)  # first: it makes no process for a new connection then
            rows = link.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()").fetchall()
            for (pid,) in rows:
                os.kill(pid, signal.SIGSTOP)
                pids.append(pid)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _listens(folder: Path, port: str) -> bool:
    """Whether a folder of /proc is that of the PostgreSQL on this port."""
    try:
        argv = (folder / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return argv[0].endswith(b"/postgres") and argv[3:5] == [b"-p", port.encode()]


@contextmanager
def stores(folder: Path) -> Iterator[dict[str, str]]:
    """Both, as the variables that controllers need."""
    config = load({"LLMGW_DATA": str(folder)})
    quiet = subprocess.DEVNULL
    with (
        postgres.server() as url,
        processes.running(valkey.command(config), stdin=quiet, stdout=quiet, stderr=quiet),
    ):
        socket = valkey.socket_path(config)
        processes.wait_for(lambda: valkey.answers(socket), seconds=10, what="Valkey to answer")
        yield {
            "DATABASE_URL": url,
            "LLMGW_REDIS_URL": f"unix://{socket}?db=0",
            "LLMGW_SECRET_KEY": SECRET,
        }
