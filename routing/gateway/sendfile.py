"""Sends a part of a file as the body of an answer, so that neither its size nor a slow reader costs memory.

Without TLS the kernel copies from the file to the socket (sendfile(2)), past this process. With TLS, and under another
server than ours, pieces are read and written, each one when the one before has left.

Files may come from a slow disk: threads read and send, the event loop only waits. A reader that is slower than the disk
holds no thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from llmgw_site.lib.units import KIB, MIB
from routing.gateway.direct import cycle_of

THREADS = 4
TURN = 0.1
"""Seconds of a thread that one answer has at a stretch, while others wait for one."""
PATIENCE = 0.02
"""Seconds of them that it waits for a reader; slower ones are waited for without a thread."""
AT_ONCE = 8 * MIB
"""Bytes of one call of the kernel at most."""
PIECE = 256 * KIB
"""Bytes that are read together where the kernel cannot send by itself."""
LOOK = 1.0
"""Seconds after which a waiting answer sees that its connection is gone."""

T = TypeVar("T")


class Shrunk(Exception):
    """The file ended before the bytes that were promised."""


class Files:
    """The threads. `write_timeout`: seconds after which a reader that takes nothing is dropped."""

    def __init__(self, write_timeout: float) -> None:
        self._write_timeout = write_timeout
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="files")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """In a thread; its end is waited for also by who is cancelled, since it works with open files."""
        job = asyncio.get_running_loop().run_in_executor(self._threads, work, *args)
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                await asyncio.wait([job])
            raise

    async def send(self, scope: Any, send: Any, handle: int, start: int, end: int) -> None:
        """The body of an answer whose head was sent: bytes of the open file `handle`. What goes wrong cuts the connection."""
        cycle = cycle_of(scope)
        plain = cycle is not None and cycle.transport.get_extra_info("sslcontext") is None
        try:
            if plain:
                await self._by_kernel(cycle, handle, start, end)
                cycle.expected_content_length = 0
                await send({"type": "http.response.body", "body": b""})
            else:
                await self._by_pieces(cycle, send, handle, start, end)
        except (OSError, Shrunk):  # the reader is gone, the disk is broken, or somebody cut the file short
            if cycle is None:
                raise
            cycle.transport.abort()

    async def _by_kernel(self, cycle: Any, handle: int, at: int, end: int) -> None:
        """Raises OSError, Shrunk."""
        while cycle.transport.get_write_buffer_size():  # the head first
            if cycle.disconnected:
                return
            await asyncio.sleep(0.001)
        # a descriptor of our own: the connection may be closed, and its number given to another, at any time
        out = os.dup(cycle.transport.get_extra_info("socket").fileno())
        try:
            heard_at = time.monotonic()
            while at < end:
                if cycle.disconnected or cycle.transport.is_closing():
                    raise BrokenPipeError
                before, at = at, await self.run(_push, out, handle, at, end)
                if at > before:
                    heard_at = time.monotonic()
                elif time.monotonic() - heard_at > self._write_timeout:
                    raise TimeoutError
                if at < end:
                    await _writable(out)
        finally:
            os.close(out)

    async def _by_pieces(self, cycle: Any, send: Any, handle: int, at: int, end: int) -> None:
        if at == end:
            await send({"type": "http.response.body", "body": b""})
        while at < end:
            piece = await self.run(os.pread, handle, min(PIECE, end - at), at)
            if not piece:
                raise Shrunk
            at += len(piece)
            if cycle is not None and cycle.disconnected:  # the server takes what is sent to nobody
                return
            await send({"type": "http.response.body", "body": piece, "more_body": at < end})


def _push(out: int, handle: int, at: int, end: int) -> int:
    """Send until all is sent, the reader is slow, or the turn is over. The next byte to send."""
    poll: select.poll | None = None
    until = time.monotonic() + TURN
    while at < end and time.monotonic() < until:
        try:
            sent = os.sendfile(out, handle, at, min(AT_ONCE, end - at))
        except BlockingIOError:
            if poll is None:
                poll = select.poll()
                poll.register(out, select.POLLOUT)
            if not poll.poll(PATIENCE * 1000):
                break
            continue
        if not sent:
            raise Shrunk
        at += sent
    return at


async def _writable(out: int) -> None:
    """Until the reader takes more, or LOOK seconds."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(out, ready.set)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK):
                await ready.wait()
    finally:
        loop.remove_writer(out)
