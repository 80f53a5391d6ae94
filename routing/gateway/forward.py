"""The way to an engine and back: one request, its answer piece by piece as it comes, read for usage on the side.

`carry` brings any upstream's answer to the client: an engine's, a provider's (cloud.py), another node's (hop.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from llmgw_site.lib.errors import Kind, Refused
from routing.domain import media
from routing.domain.choose import Seat
from routing.domain.costs import cost, told
from routing.domain.endpoints import Shape
from routing.domain.envelopes import body_of, error_event
from routing.domain.meter import BodyMeter, StreamMeter
from routing.domain.named_meter import NamedMeter
from routing.domain.openai import engine_error, lacking
from routing.domain.outgoing import Outgoing
from routing.domain.passing import PassMeter
from routing.domain.records import Outcome
from routing.domain.several import Tally, Told
from routing.gateway.direct import DirectWriter, direct_writer
from routing.gateway.errors import JSON, NO_RETRY
from routing.gateway.exchange import EVENT_STREAM, UNBUFFERED, Exchange
from routing.gateway.headers import Headers, to_client, to_engine
from routing.gateway.inflate import plain
from routing.gateway.speech import Speech
from routing.gateway.upload import payload
from routing.gateway.upstream import Broken, Response, Target, Upstream, UpstreamError

Meter = StreamMeter | NamedMeter | PassMeter

ERROR_BODY = 64 << 10
"""Bytes of an engine's error answer that are read; more of it is not needed to say what is wrong."""
HELD = 64 << 10
"""Bytes of a document that is sent only once all of it is here."""


async def forward(
    exchange: Exchange,
    seat: Seat,
    out: Outgoing,
    upstream: Upstream,
    speech: Speech,
    *,
    first_byte_timeout: float,
    idle_timeout: float,
) -> None:
    """Send it to the seat and its answer to the client. Raises UpstreamError, also after a part was passed on."""

    async def send(out: Outgoing) -> Response:
        response = await upstream.request(
            Target(seat.host, seat.port),
            method=b"POST",
            path=out.path.encode(),
            headers=to_engine(
                exchange.scope["headers"],
                key=seat.key,
                request_id=exchange.request_id,
                form=exchange.upload is not None,
            ),
            **payload(exchange, out.body),
            first_byte_timeout=first_byte_timeout,
            idle_timeout=idle_timeout,
        )
        return plain(response)

    response = await speech.ask(seat.replica_id, out, send, exchange.loop.time())
    await carry(exchange, response, partial(_error, secret=seat.key))


async def carry(
    exchange: Exchange, response: Response, failed: Callable[[Exchange, Response], Awaitable[None]]
) -> None:
    """Bring an answer to the client; one that is no 200 is left to `failed`. Raises UpstreamError, also after a part."""
    try:
        if response.status != 200:
            await failed(exchange, response)
            return
        headers, kind, coding, length = to_client(response.headers, request_id=exchange.request_id)
        ask = exchange.ask
        assert ask is not None
        if ask.stream and kind.startswith(EVENT_STREAM) and not coding:
            await _stream(exchange, response, headers)
        elif exchange.started:
            response.abort()
            raise Broken("the answer is no event stream", headers_received=True)
        else:
            exchange.pings = False
            await _body(exchange, response, headers, length, readable=not coding and exchange.caller is None)
    except UpstreamError:
        raise
    except BaseException:
        response.abort()
        raise


async def _body(
    exchange: Exchange, response: Response, headers: Headers, length: int | None, *, readable: bool
) -> None:
    """An answer that is one document: its length is the engine's where it named one."""
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    meter = BodyMeter(exchange.shape)
    exchange.counts = meter.counts
    ask = exchange.ask
    tally = Tally(ask.prompts) if readable and ask is not None and ask.answers > 1 else None
    piece = await response.read()  # before the status: an engine that breaks here still gets its proper error
    if length is not None and len(piece) < length <= HELD:
        piece += await _rest(response, length - len(piece))
    if readable:
        (meter.whole if length == len(piece) <= HELD else meter.feed)(piece)
        if tally is not None:
            tally.feed(piece)
            if length == len(piece):
                tally.apply(meter.counts)
        if (
            not meter.counts.estimated
            and (micro := cost(exchange.price, meter.counts)) is not None
            and exchange.price is not None
        ):
            headers.append((b"x-llmgw-cost", told(micro, exchange.price.currency).encode()))
    if length == len(piece):
        await exchange.document(200, headers, piece)
        return
    await exchange.start(200, headers)
    left = length
    send = exchange.send
    try:
        while piece:
            if left is not None:
                left -= len(piece)
                if not left:
                    await exchange.finish(piece)
                    return
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = await response.read()
            if readable:
                meter.feed(piece)
            if tally is not None:
                tally.feed(piece)
        await exchange.finish()
    finally:
        if tally is not None:
            tally.apply(meter.counts)


async def _rest(response: Response, missing: int) -> bytes:
    """What is still to come of a short document: nobody can use a part of it, and a node that dies here is a 502."""
    parts: list[bytes] = []
    while missing > 0 and (piece := await response.read()):
        parts.append(piece)
        missing -= len(piece)
    return b"".join(parts)


async def _stream(exchange: Exchange, response: Response, headers: Headers) -> None:
    """An event stream: each piece goes on as it came, but for the usage chunk that the client did not ask for.

    Who counts is the gateway that the client asked; for the others an event stream is only to be ended properly.
    """
    assert exchange.ask is not None
    meter: Meter
    shape = exchange.shape
    redact = None if exchange.redact is None else exchange.redact.text
    if exchange.caller is not None:
        meter = PassMeter(shape)
    elif shape is Shape.OPENAI:
        ask = exchange.ask
        each = Told(ask.answers, ask.prompts) if ask.answers > 1 else None
        meter = StreamMeter(strip=not ask.include_usage, redact=redact, each=each)
    else:
        meter = NamedMeter(shape, redact=redact)
    exchange.meter = meter
    exchange.counts = meter.counts
    if not exchange.started:
        names = {name for name, _ in headers}
        headers += [item for item in UNBUFFERED if item[0] not in names]
        await exchange.start(200, headers)
    try:
        writer = exchange.writer = direct_writer(exchange.scope)
        if writer is not None:
            await response.pump(_sink(exchange, meter, writer), writer.drain)
        else:
            await _relay(exchange, response, meter)
        rest = meter.finish()
        if not meter.done and meter.error is None:
            raise Broken("the stream ended without its last event", headers_received=True)
        exchange.code = meter.error or ""
        await exchange.finish(rest)
    except UpstreamError:
        if meter.error is None:
            raise
        exchange.over, exchange.code, exchange.outcome = True, meter.error, Outcome.FAILED  # the client was told
    finally:
        exchange.sending = False
        exchange.first_token_at = meter.first_token_at
        meter.finish()


def _sink(exchange: Exchange, meter: Meter, writer: DirectWriter) -> Callable[[bytes], bool]:
    """What is done with a piece as it comes from the socket: the hottest few lines of the gateway."""
    now, feed, write = exchange.loop.time, meter.feed, writer.write

    def sink(piece: bytes) -> bool:
        exchange.quiet_since = at = now()
        out = feed(piece, at)
        return write(out) if out else True

    return sink


async def _relay(exchange: Exchange, response: Response, meter: Meter) -> None:
    """The same under a server that offers no direct writing."""
    now = exchange.loop.time
    while piece := await response.read():
        exchange.quiet_since = at = now()
        if out := meter.feed(piece, at):
            exchange.sending = True
            await exchange.send({"type": "http.response.body", "body": out, "more_body": True})
            exchange.sending = False


async def read_error(response: Response, *, whole: bool = False) -> bytes:
    """The body of an error answer within the bound. Cut short: what came is enough, unless `whole` (UpstreamError)."""
    parts: list[bytes] = []
    size = 0
    try:
        while size < ERROR_BODY and (piece := await response.read()):
            parts.append(piece)
            size += len(piece)
    except UpstreamError:
        if whole:
            raise
    response.abort()
    return b"".join(parts)[:ERROR_BODY]


async def _error(exchange: Exchange, response: Response, *, secret: str) -> None:
    """An engine's error answer, in the endpoint's shape and with its status.

    1. 401, 403   our own key was refused, which is no fault of the client's: 502
    2. below 400, or beyond 599   no answer to such a request: 502
    3. about a picture, sound or film that the request brings: 400, whatever the engine's status
    4. no such path: 400
    """
    status = response.status
    told = await read_error(response)
    if status in (401, 403):  # 1
        raise Refused(
            Kind.UPSTREAM, "engine_refused_key", "The engine refused the gateway's own key: tell an administrator."
        )
    if not 400 <= status < 600:  # 2
        raise Refused(Kind.UPSTREAM, "engine_broken", f"The engine answered with the unexpected status {status}.")
    error = engine_error(status, told, secret=secret)
    status, error = media.told(status, error)  # 3
    status, error = lacking(status, error, exchange.scope["path"])  # 4
    body = body_of(status, error, exchange.shape)
    headers: Headers = [JSON, (b"content-length", b"%d" % len(body))]
    headers += [(name, value) for name, value in response.headers if name.lower() == b"retry-after"]
    await send_error(exchange, status, headers, body, code=error["code"])


async def send_error(exchange: Exchange, status: int, headers: Headers, body: bytes, *, code: str) -> None:
    """End with an error that came from upstream: as the answer, or as an event where the answer has begun."""
    exchange.code, exchange.outcome = code, Outcome.FAILED
    if exchange.started:
        if exchange.redact is not None:
            body = exchange.redact.text(body)
        exchange.over = True
        await exchange.send(
            {"type": "http.response.body", "body": error_event(body, exchange.shape), "more_body": True}
        )
        return
    if status == 501 and NO_RETRY not in headers:  # what it cannot do it cannot do a second later
        headers = [*headers, NO_RETRY]
    await exchange.answer(status, headers, body)
