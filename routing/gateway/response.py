"""The answer to a request: its head, its body piece by piece, or the error that ended it.

`connection.py` fills it from the socket; whoever made the request reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

Headers = list[tuple[bytes, bytes]]


class UpstreamError(Exception):
    """An answer could not be had, or not to its end. `reached`: whether the request may already be running there."""

    reached = True


class NotReached(UpstreamError):
    """No connection was established: the request cannot have run and may be tried elsewhere."""

    reached = False


class Broken(UpstreamError):
    """The other side accepted the request, then broke off or sent what is no HTTP. Never sent again."""

    def __init__(self, message: str, *, headers_received: bool) -> None:
        super().__init__(message)
        self.headers_received = headers_received


class TooSlow(UpstreamError):
    """A time ran out. `stage` is `connect` (not reached), `silent` (see Upstream.request), `first_byte` or `idle`."""

    def __init__(self, stage: str, seconds: float) -> None:
        super().__init__(f"nothing came within {seconds:g} s (stage: {stage})")
        self.stage = stage
        self.seconds = seconds
        self.reached = stage != "connect"


class Source(Protocol):
    """The connection that an answer comes from."""

    loop: asyncio.AbstractEventLoop
    paused: bool

    def resume(self) -> None: ...

    def fail(self, error: UpstreamError) -> None: ...


class Response:
    """An answer whose head has come. Read it to its clean end (b""), or `abort` it."""

    __slots__ = (
        "_connection",
        "_done",
        "_error",
        "_pieces",
        "_sink",
        "_size",
        "_stopped",
        "_waiter",
        "headers",
        "interim",
        "status",
    )

    def __init__(self, connection: Source) -> None:
        self.status = 0
        self.headers: Headers = []
        self.interim: Callable[[Headers], object] | None = None  # is told the headers of each interim answer
        self._connection: Source | None = connection
        self._pieces: list[bytes] = []
        self._size = 0
        self._done = False
        self._error: UpstreamError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Callable[[bytes], bool] | None = None
        self._stopped: BaseException | bool = False

    async def read(self) -> bytes:
        """What has come since the last call, in one piece; b"" at the clean end.

        Raises Broken or TooSlow after what came before has been read. Cancelling it drops the connection.
        """
        while not self._pieces and not self._done:
            await self._wait()
        if self._pieces:
            return self._take()
        if self._error is not None:
            raise self._error
        return b""

    async def pump(self, sink: Callable[[bytes], bool], drain: Callable[[], Awaitable[None]]) -> None:
        """Hand what `read` would give to `sink`, until the clean end; raises as `read` does.

        `sink` is called straight from the socket's event, so that a piece costs no wake-up of a task: it must not
        block. Where it returns False, `drain` is awaited before it is called again. What it raises comes out here.
        """
        while True:
            while self._pieces:
                if not sink(self._take()):
                    await drain()
            if self._done:
                break
            self._sink = sink
            try:
                await self._wait()
            finally:
                self._sink = None
            stopped, self._stopped = self._stopped, False
            if isinstance(stopped, BaseException):
                raise stopped
            if stopped:
                await drain()
        if self._error is not None:
            raise self._error

    def _take(self) -> bytes:
        pieces = self._pieces
        piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._size = 0
        if self._connection is not None and self._connection.paused:
            self._connection.resume()
        return piece

    def abort(self) -> None:
        """Drop the connection at once, so that the other side stops its work. Harmless after the end."""
        if self._connection is not None:
            self._connection.fail(Broken("the answer was given up", headers_received=self.status > 0))
            self._pieces.clear()

    async def _wait(self) -> None:
        """Until something came: head, body, end or error."""
        connection = self._connection
        assert connection is not None  # not done, so attached
        self._waiter = waiter = connection.loop.create_future()
        try:
            await waiter
        except BaseException:
            self.abort()
            raise
        finally:
            self._waiter = None

    def _came(self) -> None:
        """There are pieces: to the sink, or wake the reader."""
        if self._sink is None:
            self._wake()
            return
        try:
            if self._sink(self._take()):
                return
            self._stopped = True
        except BaseException as error:
            self._stopped = error
        self._sink = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _end(self, error: UpstreamError | None) -> None:
        self._connection = None
        self._done = True
        self._error = error
        self._wake()
