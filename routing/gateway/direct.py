"""Answers that are written past uvicorn's `send`, where that would cost more than it does.

What is relied on of its cycle is held by tests/routing/gateway/test_answer_whole.py.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

CYCLE = "llmgw.cycle"
"""Where a scope has uvicorn's side of its request, weakly (protocol.py)."""
_BODILESS = frozenset((204, 304))


class DirectWriter:
    """Writes pieces of a started, chunked answer to the client without a coroutine. Call `direct_writer` for one."""

    __slots__ = ("_cycle", "drain")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self.drain = cycle.flow.drain

    @property
    def disconnected(self) -> bool:
        return self._cycle.disconnected

    @property
    def full(self) -> bool:
        """The client has not read what is buffered: await `drain`."""
        return self._cycle.flow.write_paused

    def write(self, piece: bytes) -> bool:
        """False: await `drain` before the next one. What a client that is gone is sent goes nowhere."""
        cycle = self._cycle
        if not cycle.disconnected:
            cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return not cycle.flow.write_paused


def cycle_of(scope: Any) -> Any:
    """uvicorn's side of this request while it runs; None under another server."""
    cycle = scope.get(CYCLE)
    return None if cycle is None else cycle()


def answer_whole(scope: Any, send: Any, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
    """Write head and body at once, which ends the answer: uvicorn's `send` writes them apart, a packet each, and looks at
    each header three times. `headers` are lower-case and hold the body's length.

    False, and nothing is done, where that is not all there is to it:

    1. another server's request, or somebody changes on the way what is sent
    2. an answer that has begun, to a client that is gone or does not read, or is its connection's last one
    3. statuses and methods without a body, and headers that are none: uvicorn knows what to do
    """
    cycle = cycle_of(scope)
    if cycle is None or send != cycle.send:  # 1
        return False
    if cycle.response_started or cycle.disconnected or cycle.flow.write_paused or not cycle.keep_alive:  # 2
        return False
    head = b"".join(
        [STATUS_LINE[status], *[b"%b: %b\r\n" % item for item in (*cycle.default_headers, *headers)], b"\r\n"]
    )
    lines = len(cycle.default_headers) + len(headers) + 2
    if status in _BODILESS or scope["method"] == "HEAD":  # 3
        return False
    if head.count(b"\n") != lines or head.count(b"\r") != lines or b"\0" in head:  # 3
        return False
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(head + body)
    cycle.message_event.set()
    cycle.on_response()
    return True


def send_interim(scope: Any, headers: list[tuple[bytes, bytes]]) -> None:
    """An interim answer (RFC 9110 §15.2; 102, RFC 2518 §10.1), before the answer: the request is being worked at."""
    cycle = cycle_of(scope)
    if cycle is not None and not cycle.response_started and not cycle.disconnected:
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        cycle.transport.write(b"HTTP/1.1 102 Processing\r\n%b\r\n" % lines)


def direct_writer(scope: Any) -> DirectWriter | None:
    """For an answer that has started; None under another server, or where the answer is not chunked."""
    cycle = cycle_of(scope)
    if cycle is None or not cycle.chunked_encoding or scope["method"] == "HEAD":
        return None
    return DirectWriter(cycle)
