"""`<data>/run/agent.sock`: the gateway tells load and suspects, one JSON `wire.Load` a line. 0600, so only this user."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

import orjson

from cluster.wire import Load, WireError, from_dict
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)
LONGEST_LINE = 1 << 20


class LoadSocket:
    """Calls `heard` for each line and `gone` when the last connection ended."""

    def __init__(self, path: Path, *, heard: Callable[[Load], None], gone: Callable[[], None]) -> None:
        self._path, self._heard, self._gone = path, heard, gone
        self._connections: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._path.unlink(missing_ok=True)  # a former agent's; the lock on the data folder is ours
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, self._path, limit=LONGEST_LINE)
        finally:
            os.umask(before)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._connections):
            writer.close()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while line := await reader.readline():
                try:
                    load = from_dict(Load, orjson.loads(line))
                except (orjson.JSONDecodeError, WireError) as error:
                    event(log, "load_unreadable", level=logging.WARNING, reason=str(error))
                    continue
                self._heard(load)
        except (ConnectionError, ValueError):  # ValueError: a line without an end
            pass
        finally:
            writer.close()
            self._connections.discard(writer)
            if not self._connections:
                self._gone()
