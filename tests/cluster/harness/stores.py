"""The controllers' shared stores: a real PostgreSQL with a database of its own, and a real Valkey on a unix socket."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llmgw_site.lib.config import load
from llmgw_site.up import valkey
from tests import postgres, processes

SECRET = "the controllers of one cluster share this secret, and nobody else knows it"


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
