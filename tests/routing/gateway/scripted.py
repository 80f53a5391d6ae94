"""Byte servers and byte clients for tests: what goes over the wire is exactly what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from routing.gateway.upstream import Target

Handler = Callable[["Peer"], Awaitable[None]]


class Peer:
    """One accepted connection of a scripted server, or a scripted client's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> bytes:
        """Head and body of the next request; b"" if the other side closed instead."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return b""
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return head + await self.reader.readexactly(int(line.partition(b":")[2]))
        return head

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def closed(self) -> None:
        """Returns when the other side has closed."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass

    async def read_all(self) -> bytes:
        """Everything up to the end of the connection, however it ends."""
        data = b""
        try:
            while piece := await self.reader.read(65536):
                data += piece
        except ConnectionError:
            pass
        return data

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body (by length, in chunks, or until the end) of the next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        status = int(head[0].split()[1])
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await self.reader.readline(), 16):
                body += await self.reader.readexactly(size)
                await self.reader.readline()
            await self.reader.readline()
        elif "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            body = await self.reader.read()
        return status, headers, body

    def close(self) -> None:
        self.writer.close()


class Server:
    """Counts what reaches it."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._tasks: set[asyncio.Task[None]] = set()
        self.accepted = 0
        self.target = Target("127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._handler(Peer(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[Server]:
    """A scripted server on a free port of 127.0.0.1."""
    server = Server(handler)
    listener = await asyncio.start_server(server._serve, "127.0.0.1", 0)
    server.target = Target("127.0.0.1", listener.sockets[0].getsockname()[1])
    try:
        yield server
    finally:
        listener.close()
        await server.stop()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Peer]:
    """A scripted client."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()


async def until(condition: Callable[[], Any], *, seconds: float = 30.0) -> None:
    """Wait for a condition; fails after `seconds`. Of a pause of this whole process, in which nothing here could have come true,
    a tenth of a second counts."""
    loop, left = asyncio.get_running_loop(), seconds
    while not condition():
        assert left > 0, "the condition did not come true in time"
        before = loop.time()
        await asyncio.sleep(0.005)
        left -= min(loop.time() - before, 0.1)
