"""One HTTP/1.1 connection to an engine, a node or `web`.

`upstream.py` owns the connections and is what others import. Cost is why this is not httpx (DESIGN.md, "Data path
budget"): bytes go from the socket through httptools into the answer's list, and a waiting reader is woken once for
each read of the socket, without a task or a timer for each chunk.

Life of a connection: `begin` (a request is written) -> parser callbacks -> `_finish` (back to its owner, or closed).
Sources: RFC 9112 (framing, §6; reuse, §9), RFC 9110 §15.2 (interim answers).
"""

from __future__ import annotations

import asyncio
import math
import select
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

import httptools

from routing.gateway.certificates import PeerCertificate, peer_certificate
from routing.gateway.response import Broken, Headers, Response, TooSlow, UpstreamError

_LATE = 0.1
"""Seconds that the event loop gets to read what lies in the socket; and by which a timer may be late until that counts as a pause
of this process, most likely of the machine: then the other side gets as long, once, to say what it was kept from saying."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one connection, in bytes and seconds."""

    head_bytes: int = 64 * 1024  # an answer's head with interim answers; its trailers likewise
    buffered_bytes: int = 256 * 1024  # unread body after which the socket is left alone
    idle_connection: float = 4.0  # below the 5 s of uvicorn and cpp-httplib, so that we let go first
    idle_connections: int = 256  # kept for one target
    rest: float = 0.05  # not used again for so long after a stream: llama.cpp closes then, and does not say so before


class Owner(Protocol):
    """Who keeps a connection; told of its life."""

    def opened(self, connection: Connection) -> None: ...

    def released(self, connection: Connection) -> None:
        """The answer has ended and the connection may be used again."""

    def lost(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """A socket with a parser on it; at most one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits, owner: Owner) -> None:
        self.loop = loop
        self.paused = False
        self.idle_since = self.rested_at = 0.0
        self._limits = limits
        self._owner = owner
        self._parser = httptools.HttpResponseParser(self)
        self._poll = select.poll()
        self._response: Response | None = None
        # Of the present request; set anew by `begin`.
        self._fields: Headers = []
        self._fields_size = self._head_size = 0
        self._head_done = self._body_seen = self._complete = self._reusable = False
        self._no_body = False
        self._all_sent = True
        self._sent = self._last = 0.0
        self._first_byte_timeout = self._idle_timeout = 0.0
        self._silence = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._spared = False  # for a pause of our own, since the last piece or interim answer
        self._writable: asyncio.Future[None] | None = None
        self._write_paused = False

    @property
    def certificate(self) -> PeerCertificate | None:
        """What the other side showed, if this is TLS."""
        return peer_certificate(self._transport.get_extra_info("peercert"))

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:  # it speaks without being asked: what comes next could be taken for an answer
            self._transport.abort()
            return
        self._last = self.loop.time()
        head_was_done = self._head_done
        if not head_was_done:
            self._head_size += len(data)  # before an interim answer in it, after which a head begins anew
        try:
            self._parser.feed_data(data)
            if not self._head_done and self._head_size > self._limits.head_bytes:
                raise _TooLong
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, _TooLong) as error:
            if not self._complete:
                self.fail(Broken(_why(error), headers_received=self._head_done))
                return
            self._reusable = False  # something follows the message: not ours, and not to be read as the next one
        if self._complete:
            self._finish()
            return
        if response._size > self._limits.buffered_bytes and not self.paused:
            self.paused = True
            self._transport.pause_reading()
        if response._pieces:
            self._spared = False
            if not self._body_seen:
                self._body_seen = True
                self._arm(self._last + self._idle_timeout)
            response._came()
        elif not head_was_done and self._head_done:
            response._wake()

    def eof_received(self) -> bool | None:
        response = self._response
        if response is not None and self._head_done and _ends_with_connection(response.headers):
            self._reusable = False
            self._finish()
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake_writer()
        if self._response is not None:
            stage = "in the middle of the answer" if self._head_done else "before it answered"
            self.fail(Broken(f"the connection was closed {stage}", headers_received=self._head_done))
        del self._parser  # it holds our methods: a ring, which would lie in memory until the collector's rarest round
        self._owner.lost(self)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._wake_writer()

    def _wake_writer(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # --- the parser's side ---

    def on_message_begin(self) -> None:
        if self._complete:
            self._reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields_size += len(name) + len(value) + 4
        if self._fields_size > self._limits.head_bytes:
            raise _TooLong
        if not self._head_done:
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._complete or self._response is None:
            return
        status = self._parser.get_status_code()
        if status < 200:
            told, self._fields, self._spared = self._fields, [], False
            if self._response.interim is not None:  # they come for as long as the request waits there
                self._fields_size = self._head_size = 0
                self._response.interim(told)
            return
        self._head_done = True
        self._fields_size = 0
        self._response.headers = self._fields
        self._response.status = status
        if self._no_body or (status in (204, 304) and any(name == b"content-length" for name, _ in self._fields)):
            # The parser would wait for the body that the length speaks of, and cannot be told: it is not used again.
            self._complete = True

    def on_body(self, body: bytes) -> None:
        if self._complete or not self._head_done:
            return
        response = self._response
        if response is not None:
            response._pieces.append(body)
            response._size += len(body)

    def on_message_complete(self) -> None:
        if self._head_done and not self._complete:
            self._complete = True
            self._reusable = self._parser.should_keep_alive()

    # --- the owner's side ---

    def fit(self, now: float) -> bool:
        """Whether an idle connection can take a request: young enough, open, and nothing to read on it.

        An idle connection that is readable has been closed by the other side or speaks out of turn; the event loop
        may not have come round to say so. Asking the kernel costs half a microsecond and spares a broken request.
        """
        return (
            now - self.idle_since < self._limits.idle_connection
            and not self._transport.is_closing()
            and not self._poll.poll(0)
        )

    def begin(
        self, first_byte_timeout: float, idle_timeout: float, *, no_body: bool, silence: float = math.inf
    ) -> Response:
        """Make ready for one request; `write` it afterwards."""
        self._response = response = Response(self)
        self._first_byte_timeout = first_byte_timeout
        self._idle_timeout = idle_timeout
        self._silence = silence
        self._no_body = no_body
        self._fields = []
        self._fields_size = self._head_size = 0
        self._head_done = self._body_seen = self._complete = self._reusable = False
        self._sent = self._last = self.loop.time()
        self._all_sent = True
        self._spared = False
        self._arm(self._sent + min(first_byte_timeout, silence))
        return response

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    async def send(self, body: AsyncIterator[bytes], *, chunked: bool) -> None:
        """Write a streamed body, never further ahead of the other side than the transport's mark."""
        self._all_sent = False
        async for piece in body:
            if piece:
                self.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                self._sent = self.loop.time()
            while self._write_paused and self._response is not None:
                self._writable = self.loop.create_future()
                await self._writable
                self._sent = self.loop.time()
            if self._response is None:
                return
        if chunked:
            self.write(b"0\r\n\r\n")
        self._all_sent = True
        self._sent = self.loop.time()

    def resume(self) -> None:
        """The reader has caught up."""
        self.paused = False
        self._last = self.loop.time()
        self._transport.resume_reading()

    def fail(self, error: UpstreamError) -> None:
        """End the answer with `error` and close the socket without a goodbye."""
        response, self._response = self._response, None
        self._transport.abort()
        self._wake_writer()
        if response is not None:
            response._end(error)

    def close(self) -> None:
        self._transport.abort()

    def _finish(self) -> None:
        """The answer is complete: give the connection back, or close it where it cannot be used again."""
        response, self._response = self._response, None
        if self._reusable and self._all_sent and not self._transport.is_closing():
            if self.paused:
                self.resume()
            self.idle_since = self.rested_at = self._last
            if response is not None and not _has_length(response.headers):
                self.rested_at += self._limits.rest
            self._owner.released(self)
        else:
            self._transport.abort() if not self._all_sent else self._transport.close()
            self._wake_writer()
        if response is not None:
            response._end(None)

    # --- time: one timer a connection, moved only where it would fire too late ---

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._response is None:
            return
        now = self.loop.time()
        first = not self._body_seen
        silent = math.inf
        due = self._sent + self._first_byte_timeout if first else self._last + self._idle_timeout
        if first and self._head_done:
            due = max(due, self._last + self._idle_timeout)
        elif first:
            silent = max(self._sent, self._last) + self._silence
            due = min(due, silent)
        if self.paused:  # it waits for us
            due = now + self._idle_timeout
        if silent <= due and self._poll.poll(0):  # the event loop was late itself, and the other side was not silent
            due = now + _LATE
        elif due <= now and now - self._timer_at > _LATE and not self._spared:
            self._spared, due = True, now + _LATE
        if due > now + 0.001:
            self._arm(due)
        elif silent <= due:
            self.fail(TooSlow("silent", self._silence))
        elif first:
            self.fail(TooSlow("first_byte", self._first_byte_timeout))
        else:
            self.fail(TooSlow("idle", self._idle_timeout))


class _TooLong(Exception):
    """An answer's head or trailers are over the bound."""


def _has_length(headers: Headers) -> bool:
    return any(name == b"content-length" for name, _ in headers)


def _ends_with_connection(headers: Headers) -> bool:
    """Whether only the connection's end can end this body (RFC 9112 §6.3, cases 4 and 8)."""
    encodings = [value for name, value in headers if name == b"transfer-encoding"]
    if encodings:
        return not encodings[-1].lower().rstrip().endswith(b"chunked")
    return not _has_length(headers)


def _why(error: Exception) -> str:
    if isinstance(error, _TooLong) or isinstance(error.__context__, _TooLong):
        return "the answer's head is over the bound"
    if isinstance(error, httptools.HttpParserUpgrade):
        return "the answer changes the protocol, which was not asked for"
    return "the answer is no HTTP/1.1"
