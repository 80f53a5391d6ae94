"""One request on its way: the only mutable thing there is per request, and how it is answered.

States: open -> (started: the status is sent) -> over. Whatever ends it, `over` is set first, so nobody ends it twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any, Protocol

from llmgw_site.lib.clock import new_id
from llmgw_site.lib.errors import Refused
from routing.domain.endpoints import MODELS, OTHER, Shape, shape_of
from routing.domain.envelopes import error_body, error_event
from routing.domain.meter import Counts, StreamMeter
from routing.domain.named_meter import NamedMeter
from routing.domain.openai import Ask
from routing.domain.passing import PassMeter
from routing.domain.queueing import Line
from routing.domain.records import Outcome, UsageRecord
from routing.domain.snapshot import PriceEntry
from routing.domain.sse import COMMENT
from routing.domain.tenancy import Holder
from routing.gateway.callers import Caller
from routing.gateway.direct import DirectWriter, answer_whole, send_interim
from routing.gateway.errors import Headers, render
from routing.gateway.headers import request_id
from routing.gateway.limiter import Reservation

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Redact(Protocol):
    """Takes what is internal out of what a client is sent (edge.py)."""

    def headers(self, headers: Headers) -> Headers: ...

    def text(self, text: bytes) -> bytes: ...


class Spans(Protocol):
    """The trace of a request, where traces are kept (tracing.py)."""

    def scheduled(self) -> None: ...

    def queued(self) -> None: ...

    def declined(self, code: str) -> None: ...

    def sent(self, exchange: Exchange, *, provider: str) -> None: ...

    def end(self, exchange: Exchange, record: UsageRecord, *, key: str) -> None: ...


class Rest(Protocol):
    """What follows of a body that passes piece by piece (upload.py)."""

    over: bool
    guarded: bool

    def left(self) -> int | None: ...

    def stream(self, head: bytes) -> AsyncIterator[bytes]: ...


_SOONER = 0.8
"""Of the silence that a client is left in, after which the node that answers for another one sends a comment."""
_BEATS = (b"x-llmgw-beats", b"1")
"""Says that this version sends interim answers (hop.py)."""
EVENT_STREAM = b"text/event-stream"
CLIENT_GONE = 499
"""Status in records and logs of a request whose client left first (nginx's number); nobody is sent it."""


class ClientGone(Exception):
    """The client closed its connection while its body was being read."""


class Exchange:
    """See the module. Times: `started_at` is Unix time, `began` and what is compared with it are the loop's."""

    __slots__ = (
        "_receive",
        "alias_target",
        "ask",
        "asked",
        "authorization",
        "beat_at",
        "began",
        "caller",
        "code",
        "content_coding",
        "content_length",
        "conversation",
        "counts",
        "endpoint",
        "first_token_at",
        "forwarded_at",
        "gone",
        "hopes",
        "inner_queue_s",
        "inner_schedule_s",
        "key",
        "line",
        "loop",
        "meter",
        "model",
        "node_id",
        "opened",
        "outcome",
        "over",
        "own_schedule_s",
        "pings",
        "price",
        "queued_s",
        "quiet_since",
        "rates",
        "record_id",
        "redact",
        "relays",
        "replica_id",
        "request_id",
        "reserved",
        "scope",
        "send",
        "sending",
        "session",
        "shape",
        "started",
        "started_at",
        "status",
        "task",
        "told",
        "trace",
        "upload",
        "waits",
        "watcher",
        "working",
        "writer",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        endpoint: str,
        now: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.scope = scope
        self._receive = receive
        self.send = send
        self.endpoint = endpoint
        self.started_at = now
        self.loop = loop  # looked up once: to ask for the running one costs a system call on Python 3.11
        self.began = self.quiet_since = self.beat_at = loop.time()
        self.authorization: bytes | None = None
        self.content_length: int | None = None
        self.content_coding = b""
        self.session: bytes | None = None  # what the client calls its conversation
        self.conversation: str | None = None  # what names it here, once that was looked for in the body
        wish: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                self.authorization = value
            elif name == b"x-request-id":
                wish = value
            elif name == b"content-length":
                self.content_length = int(value) if value.isdigit() else None
            elif name == b"content-encoding":
                self.content_coding = value.lower()
            elif name == b"x-session-id":
                self.session = value
        self.shape = shape_of(endpoint)
        if endpoint in (MODELS, OTHER) and any(name == b"anthropic-version" for name, _ in scope["headers"]):
            self.shape = Shape.ANTHROPIC
        self.request_id = request_id(wish, new_id)
        self.record_id = ""
        self.opened = False  # the spool has it
        self.key: Holder | None = None
        self.ask: Ask | None = None
        self.asked = ""  # the model that the client named, where another one is to answer
        self.alias_target = ""  # what an alias that it named stood for
        self.hopes: bool | None = None  # another model is left to ask, if nobody has accepted it; None: it is not said
        self.model = ""  # as metrics may have it: a name of the catalogue
        self.caller: Caller | None = None  # the node that passed this on; None: a client asks
        self.redact: Redact | None = None
        self.reserved: Reservation | None = None  # of the limits that apply to the key
        self.rates: Headers = []  # how they stand, for the client
        self.node_id = ""  # who answers, as far as it is known
        self.replica_id = ""
        self.queued_s = 0.0  # that it has waited for its turn, for this model, here and at the nodes before this one
        self.inner_queue_s: float | None = None  # that it waited at the nodes behind this one
        self.own_schedule_s = 0.0  # that looking for its place took here
        self.inner_schedule_s: float | None = None  # and there
        self.forwarded_at: float | None = None
        self.first_token_at: float | None = None
        self.meter: StreamMeter | NamedMeter | PassMeter | None = None
        self.counts: Counts | None = None
        self.price: PriceEntry | None = None  # of the model that answers a client of this node
        self.status = 0
        self.code = ""
        self.outcome = Outcome.FAILED
        self.started = False
        self.over = False
        self.gone = False
        self.pings = False  # comments may be sent now
        self.relays = False  # it came from a node and went to another one
        self.sending = False
        self.working = self.told = False  # an engine was sent it, as far as is known; the node before this one was told
        self.waits = False  # for a model that comes up, or for its turn
        self.line: Line | None = None  # of its model, while it has a place among those that run
        self.writer: DirectWriter | None = None
        self.trace: Spans | None = None
        self.task: asyncio.Task[Any] | None = None
        self.upload: Rest | None = None  # of a form whose files pass piece by piece
        self.watcher: asyncio.Task[None] | None = None

    @property
    def hop(self) -> str:
        """`handed` or `forwarded` for what another node passed on; empty for a client's own request."""
        return self.caller.marks.hop if self.caller is not None else ""

    def hurries(self, fallbacks: Collection[str]) -> bool:
        """Whether it waits only as long as one does for which another model is left. A node of an older version passes on
        requests without saying so: then the model's `fallbacks` say it."""
        return bool(fallbacks) if self.hopes is None else self.hopes

    def may_ping(self) -> bool:
        """Whether a client that streams may be sent comments while it waits: with one the status is sent, and no other model
        can answer any more."""
        return self.caller is None and self.ask is not None and self.ask.stream and not self.hopes

    @property
    def queue_s(self) -> float | None:
        """Seconds before it was forwarded, here and at the nodes behind this one; None: it was not."""
        if self.forwarded_at is None:
            return None
        return round(self.forwarded_at - self.began + (self.inner_queue_s or 0.0), 6)

    @property
    def schedule_s(self) -> float | None:
        """Of these, seconds in which its place was looked for, a model that had to come up included."""
        if self.forwarded_at is None:
            return None
        return round(self.own_schedule_s + (self.inner_schedule_s or 0.0), 6)

    def facts(self) -> Headers:
        """Who answers and how long it waited: told to the node before this one, never to a client."""
        if self.caller is None:
            return []
        facts = [(b"x-llmgw-node", self.node_id), (b"x-llmgw-replica", self.replica_id)]
        if self.queue_s is not None:
            facts += [(b"x-llmgw-queue-s", f"{self.queue_s:.6f}"), (b"x-llmgw-schedule-s", f"{self.schedule_s:.6f}")]
        return [_BEATS, *((name, value.encode()) for name, value in facts if value)]

    # --- in ---

    async def body(self, most: int) -> bytes | None:
        """The request's body; None if it is over `most` bytes. Raises ClientGone."""
        if self.content_length is not None and self.content_length > most:
            return None
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            whole: bytes = message.get("body", b"")
            return whole if len(whole) <= most else None
        parts: list[bytes] = []
        size = 0
        while message["type"] == "http.request":
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                return None
            if not message.get("more_body"):
                return b"".join(parts)
            message = await self._receive()
        raise ClientGone

    async def piece(self) -> tuple[bytes, bool]:
        """A piece of the body, and whether it is the last. Raises ClientGone."""
        message = await self._receive()
        if message["type"] != "http.request":
            raise ClientGone
        return message.get("body", b""), not message.get("more_body")

    def watch(self) -> None:
        """Listen for the client leaving, from now on; its leaving cancels the work on its request. One that still sends its
        body is heard by whoever reads that."""
        if self.upload is not None and not self.upload.over:
            return
        self.watcher = self.loop.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self.over and self.task is not None:
            self.gone = True
            self.task.cancel()

    # --- out ---

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer of our own; `headers` hold its length."""
        if self.redact is not None:
            if status >= 300:
                body = self.redact.text(body)
                headers = [item if item[0] != b"content-length" else (item[0], b"%d" % len(body)) for item in headers]
            headers = self.redact.headers(headers)
        if self.caller is not None:
            headers = [*headers, *self.facts()]
        await self._whole(status, [*headers, *self.rates, (b"x-request-id", self.request_id.encode())], body)

    async def document(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer of an engine's; `headers` hold its length."""
        self.outcome = Outcome.OK if not self.code else Outcome.FAILED
        await self._whole(status, self._told(headers), body)

    async def _whole(self, status: int, headers: Headers, body: bytes) -> None:
        self.status = status
        self.started = True
        if answer_whole(self.scope, self.send, status, headers, body):
            self.over = True
            return
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        self.over = True
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    def _told(self, headers: Headers) -> Headers:
        """An engine's headers, as this request's sender may see them, and what it is told beside them."""
        if self.redact is not None:
            headers = self.redact.headers(headers)
        if self.caller is not None:
            headers = [*headers, *self.facts()]
        return [*headers, *self.rates] if self.rates else headers

    async def start(self, status: int, headers: Headers) -> None:
        """Send status and headers; an answer's pieces follow."""
        self.status = status
        self.started = True
        await self.send({"type": "http.response.start", "status": status, "headers": self._told(headers)})

    async def finish(self, piece: bytes = b"") -> None:
        """Send the last piece: a clean end."""
        self.over, self.outcome = True, Outcome.OK if not self.code else Outcome.FAILED
        await self.send({"type": "http.response.body", "body": piece, "more_body": False})

    async def refuse(self, error: Refused, *, forwarded: bool) -> None:
        """End with an error, as far as the answer has got.

        1. nothing sent        the error answer
        2. an event stream     an error event and no `[DONE]`; then the connection is closed without a clean end
        3. any other body      the connection is closed without a clean end
        The server closes the connection of an answer that is left unfinished (cases 2 and 3).
        """
        self.over, self.code = True, error.code
        self.outcome = Outcome.FAILED if forwarded else Outcome.REFUSED
        if not self.started:  # 1
            status, headers, body = render(error, self.shape)
            await self.answer(status, headers, body)
        elif self.pings:  # 2
            between = b"" if self.meter is None or self.meter.at_boundary else b"\n\n"
            body = error_body(error, self.shape)
            if self.redact is not None:
                body = self.redact.text(body)
            await self._piece(between + error_event(body, self.shape))

    def silent(self, now: float, bound: float) -> bool:
        """Whether it is time for a comment, `bound` being the seconds that a client waits for one.

        The node that answers is the first to send one, which passes all the others. One in between sends none of its
        own: its head would go out before it has heard who answers.
        """
        if not self.pings or self.relays:
            return False
        return now - self.quiet_since >= (bound if self.caller is None else _SOONER * bound)

    def beat(self, now: float, every: float) -> None:
        """Say to the node that passed it on, so often, that it is still at hand here, until its answer begins; and once that an
        engine has it."""
        if self.caller is None or self.started or self.over:
            return
        if now - self.beat_at >= every or self.working is not self.told:
            self.beat_at, self.told = now, self.working
            send_interim(self.scope, self.facts() if self.working else [])

    async def ping(self, now: float) -> None:
        """Send a comment, and the status with it if that is still to be sent: from here on, errors are events."""
        if self.writer is not None and self.writer.full:  # it has not even read what there is
            return
        if self.over or not self.pings or self.sending or (self.meter is not None and not self.meter.at_boundary):
            return
        self.quiet_since = now
        if not self.started:
            await self.start(200, stream_headers([(b"content-type", EVENT_STREAM)], self.request_id))
        await self._piece(COMMENT)

    async def _piece(self, piece: bytes) -> None:
        await self.send({"type": "http.response.body", "body": piece, "more_body": True})


def stream_headers(headers: Headers, request_id: str) -> Headers:
    """Headers of an event stream of our own making."""
    return [*headers, *UNBUFFERED, (b"x-request-id", request_id.encode())]


UNBUFFERED: Headers = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
"""Asks proxies on the way to hand each event on as it comes."""
