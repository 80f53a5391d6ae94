"""The listeners' HTTP/1.1 protocol: uvicorn's, with the bounds that it lacks.

    over what                                       answer
    head bytes (request line and headers)           431 headers_too_large
    time from a head's first byte to its last       408 headers_too_slow
    what is no body behind the head (chunk          431 headers_too_large
    extensions, trailers)
    Content-Length                                  413 body_too_large   before a byte of the body is read
    pause between two pieces of a body              408 body_too_slow
    what is no HTTP/1.1                             400 invalid_http
    connections at once                             503 too_many_connections
    requests ahead of their answers (PIPELINED)     those before are answered, then the connection is closed
    idle between requests, or before the first      the connection is closed, unless a request has come and lies unread
    write buffer that the client does not read      the connection is dropped

Whose time is over is looked at again a moment later: a loop that was late itself reads first what had come in time.
Trailers are not read, and no protocol but websockets is changed to: who offers one is answered by HTTP/1.1, body and all.
Nothing bounds how long an answer may stream. A refusal is an OpenAI-shaped JSON object with `connection: close`; where
an earlier answer is still under way on the connection, that one is finished and the connection closed after it.

Costs one timer for a connection, which is moved only where it would fire too late. Written against uvicorn 0.54,
`uvicorn/protocols/http/httptools_impl.py`; tests/routing/gateway/test_protocol.py holds what we rely on.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import select
import sys
import termios
import weakref
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from llmgw_site.lib.clock import new_id
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.logs import event
from routing.domain.endpoints import PATHS, shape_of
from routing.gateway.answers import last_answer
from routing.gateway.certificates import peer_certificate
from routing.gateway.direct import CYCLE

log = logging.getLogger(__name__)

PEER = "llmgw.peer"
"""Where the scope's `state` has the certificate that the other side showed, if this is TLS and it showed one."""
_LINGER = 1.0
"""Seconds for which a refused client may go on sending, so that it can read why (a reset would tear that up)."""
_LATE = 0.05
"""Seconds that the event loop gets, once a time is over, to read what lies in the socket. What the other side sent in time it
counts as accepted: to refuse it, or to close, because the loop was late, would answer it with a reset."""
PIPELINED = 64
"""Requests that may wait for the answers before them. Each costs kilobytes, and one read of the socket holds thousands."""
_PROGRESS = 64 * 1024
"""Bytes that a slow reader has to take within the write timeout to be given another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bytes, seconds, connections."""

    head_bytes: int
    head_time: float
    body_bytes: int
    body_pause: float
    idle: float
    write: float
    connections: int


_NO_HTTP = Refused(
    Kind.INVALID, "invalid_http", "The request is no valid HTTP/1.1: check what your client or proxy sends."
)
_TOO_MANY = Refused(
    Kind.UNAVAILABLE,
    "too_many_connections",
    "The gateway has all the connections it may have: try again in a moment.",
    retry_after=1,
)
_PIPELINED = Refused(
    Kind.LIMITED,
    "too_many_pipelined",
    f"More than {PIPELINED} requests came before their answers: wait for answers, or use more connections.",
)


class BoundedProtocol(HttpToolsProtocol):
    """Made by `protocol_class`, which sets `bounds`."""

    bounds: ClassVar[Bounds]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.url = b""
        self._in_head = False
        self._in_body = False
        self._head_size = 0  # of a head that did not come in one read
        self._head_may_be_long = False
        self._beside = 0  # bytes since the head, or since the last byte of the body
        self._plain = b""  # the head that is being read, without the protocol that it offers
        self._running: RequestResponseCycle | None = None  # of the requests that came, the one that is answered
        self._unwanted = 0  # body bytes that came after the answer
        self._refused = False
        self._due = 0.0  # when the client is too slow; 0: it is not its turn
        self._write_due = 0.0
        self._write_left = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._over = False  # a time was over when the timer fired last

    # --- the connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        shown = peer_certificate(transport.get_extra_info("peercert"))
        if shown is not None:
            self.app_state = {**self.app_state, PEER: shown}
        bounds = self.bounds
        if len(self.connections) > bounds.connections:
            request_id = new_id("req")
            event(
                log,
                "connection_refused",
                level=logging.WARNING,
                connections=bounds.connections,
                request_id=request_id,
            )
            self._refused = True
            self.transport.write(last_answer(_TOO_MANY, request_id))
            self.transport.close()
            self._watch_write()
            return
        self._due = self.loop.time() + bounds.idle
        self._arm(self._due)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        cycle = self._running
        if cycle is not None and cycle is not self.cycle and not cycle.response_complete:
            cycle.disconnected = True  # uvicorn tells only the request that came last
            cycle.message_event.set()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        self._disarm()
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        now = self.loop.time()
        was_in_head, was_in_body, cycle = self._in_head, self._in_body, self.cycle
        size = self._head_size + len(data)
        self._head_may_be_long = size > self.bounds.head_bytes or (was_in_head and self._head_may_be_long)
        self._beside += len(data)
        rest = data
        while rest:
            try:
                self.parser.feed_data(rest)
                break
            except httptools.HttpParserError as error:
                self._refuse(error.__context__ if isinstance(error.__context__, Refused) else _NO_HTTP)
                return
            except httptools.HttpParserUpgrade as error:
                if self._should_upgrade():
                    if self._running is not None and not self._running.response_complete:
                        self._refuse(_NO_HTTP)
                    else:
                        self.handle_websocket_upgrade()
                    return
                rest = self._plain + rest[error.args[0] :]
                self._plain = b""
        if self._in_head:
            if not was_in_head:
                self._due = now + self.bounds.head_time
            if was_in_body or self.cycle is not cycle:  # the read began with an earlier message: not counted
                size = 0
            if size > self.bounds.head_bytes:
                self._refuse(self._head_too_large())
                return
            self._head_size = size
        elif self._in_body:
            self._due = now + self.bounds.body_pause
            if self.cycle.response_complete:
                self._unwanted += len(data)
                if self._unwanted > self.bounds.body_bytes:
                    self.transport.abort()
                    return
            elif self._beside > self.bounds.head_bytes:
                self._refuse(self._head_too_large())
                return
        elif self.cycle is not None and not self.cycle.response_complete:
            self._due = 0.0  # our turn
            return
        self._arm(self._due)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """uvicorn's, less the callback at the task's end, which would cost a round of the event loop."""
        self._running = cycle
        self.tasks.add(self.loop.create_task(self._answered(cycle, app)))

    async def _answered(self, cycle: RequestResponseCycle, app: Any) -> None:
        try:
            await cycle.run_asgi(app)
        finally:
            self.tasks.discard(cast("asyncio.Task[None]", asyncio.current_task(self.loop)))

    # --- the parser ---

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        bounds = self.bounds
        if self._head_may_be_long:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > bounds.head_bytes:
                raise self._head_too_large()
        for name, value in self.headers:
            if name == b"content-length" and int(value) > bounds.body_bytes:
                raise Refused(
                    Kind.TOO_LARGE,
                    "body_too_large",
                    f"The request body of {int(value)} bytes is over the bound of {bounds.body_bytes}: send less.",
                )
        if len(self.pipeline) >= PIPELINED:
            raise _PIPELINED
        if self.parser.should_upgrade() and not self._should_upgrade():
            self._plain = self._without_upgrade()
            if self._plain:
                return
        super().on_headers_complete()
        # weakly: the cycle holds the scope, and a ring would lie in memory until the collector's rarest round
        if not self.parser.should_upgrade():  # else it asks for a websocket
            self.scope[CYCLE] = weakref.ref(self.cycle)  # type: ignore[literal-required]
            self.headers = []  # trailers go here, and so nowhere (RFC 9110 §6.5.1)
        self._in_head = False
        self._in_body = True
        self._head_size = self._unwanted = self._beside = 0

    def _without_upgrade(self) -> bytes:
        """The head that was read, without its Upgrade, for the parser to read anew; empty where there is none (CONNECT).

        RFC 9110 §7.8: an offer may be ignored, and the request is as any other. But the parser ends it with its head, so that
        its body would be lost, or be taken for requests that who sent it to a proxy before us has made up. Java's client
        offers h2c with the first request of each connection.
        """
        kept = [item for item in self.headers if item[0] != b"upgrade"]
        if len(kept) == len(self.headers):
            return b""
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        return b"".join([line, *[b"%b: %b\r\n" % item for item in kept], b"\r\n"])

    def on_body(self, body: bytes) -> None:
        self._beside = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._plain:
            return
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._watch_write()  # closing waits for the client to read
            return
        if self.pipeline:  # nothing more is read before these are answered
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            return
        self.flow.resume_reading()
        if not self._in_head and not self._in_body:
            self._due = self.loop.time() + self.bounds.idle
            self._arm(self._due)

    # --- writing ---

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_write()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_due = 0.0

    def _watch_write(self) -> None:
        if self.transport.get_write_buffer_size():
            self._write_left = self._unread()
            self._write_due = self.loop.time() + self.bounds.write
            self._arm(self._write_due)

    def _unread(self) -> int:
        """Bytes that the client has not taken: ours, and the kernel's (megabytes on a fast link; see tcp(7), SIOCOUTQ)."""
        queued = fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
        return self.transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)

    # --- refusing ---

    def _head_too_large(self) -> Refused:
        message = f"Request line and headers are over the bound of {self.bounds.head_bytes} bytes: send fewer."
        return Refused(Kind.HEADERS, "headers_too_large", message)

    def _refuse(self, refused: Refused) -> None:
        """Answer what is being read, if it is its turn, and close."""
        request_id = new_id("req")
        client = self.client[0] if self.client else None
        event(log, "request_refused", code=refused.code, request_id=request_id, client=client)
        self._refused = True
        self._in_head, in_body, self._in_body = False, self._in_body, False
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not in_body:  # an earlier request's answer is under way: it is finished, then the connection ends
                cycle.keep_alive = False
                self._due = 0.0
                return
            cycle.disconnected = True  # its app hears that the client is gone
            cycle.message_event.set()
            if cycle.response_started or self.pipeline:
                self.transport.abort()
                return
        shape = shape_of(PATHS.get(self.url.partition(b"?")[0].decode("latin-1"), ""))  # as far as it came
        self.transport.write(last_answer(refused, request_id, shape))
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
            self._due = self.loop.time() + _LINGER
            self._arm(self._due)
        else:
            self.transport.close()
            self._watch_write()

    # --- time ---

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_at(at, self._on_timer)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = self._write_due = 0.0

    def _on_timer(self) -> None:
        self._timer = None
        soon = self.loop.time() + 0.001
        over = any(0.0 < due <= soon for due in (self._due, self._write_due))
        if over and not self._over:
            self._over = True
            self._arm(soon + _LATE)
            return
        self._over = False
        if self._write_due and self._write_due <= soon:
            left = self._unread()
            if self._write_left - left < _PROGRESS:
                event(log, "client_does_not_read", unread=left, client=self.client[0] if self.client else None)
                self.transport.abort()
                return
            self._watch_write()
        if self._due and self._due <= soon:
            self._too_slow()
        for due in (self._due, self._write_due):
            if due > soon:
                self._arm(due)

    def _too_slow(self) -> None:
        bounds = self.bounds
        if self._refused:
            self.transport.abort()
        elif self.flow.read_paused and (self._in_head or self._in_body):
            self._due = self.loop.time() + bounds.body_pause  # it waits for us
        elif self._in_head:
            message = f"The request's headers did not come within {bounds.head_time:g} s: send them at once."
            self._refuse(Refused(Kind.TOO_SLOW, "headers_too_slow", message))
        elif self._in_body:
            message = f"The request's body paused for more than {bounds.body_pause:g} s: send it without pauses."
            self._refuse(Refused(Kind.TOO_SLOW, "body_too_slow", message))
        elif self.transport.get_write_buffer_size():
            self.transport.abort()
        elif self._unheard():
            self._due = self.loop.time() + _LATE
        else:
            self.transport.close()

    def _unheard(self) -> bool:
        """Whether the kernel has something for us that the event loop has not read."""
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))


def protocol_class(config: Config) -> type[BoundedProtocol]:
    """The protocol with this configuration's bounds; pass it to uvicorn as `http`."""
    bounds = Bounds(
        head_bytes=config.max_header_bytes,
        head_time=config.header_timeout,
        body_bytes=config.max_body,
        body_pause=config.body_timeout,
        idle=config.keepalive_timeout,
        write=config.write_timeout,
        connections=config.max_connections,
    )
    return type("GatewayProtocol", (BoundedProtocol,), {"bounds": bounds})
