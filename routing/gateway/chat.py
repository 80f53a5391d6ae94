"""The POST endpoints: key, body, choice, forwarding. The same road for all of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from llmgw_site.lib.clock import Clock, new_id
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import format_bytes
from routing.domain import budgets
from routing.domain.choose import Seat
from routing.domain.endpoints import ENDPOINTS
from routing.domain.fallbacks import NOT_ACCEPTED, TRIED, order, renamed
from routing.domain.limits import reckon
from routing.domain.meter import Counts
from routing.domain.openai import Ask, parse, upstream_body
from routing.domain.outgoing import outgoing
from routing.domain.prompts import fewest
from routing.domain.tenancy import Bound, Purse
from routing.domain.way import HANDED
from routing.gateway import aliases, hop, upload
from routing.gateway.auth import authorization, identify
from routing.gateway.dispatch import Cloud, Dispatch, Place
from routing.gateway.errors import from_node, from_upstream
from routing.gateway.exchange import Exchange
from routing.gateway.forward import forward
from routing.gateway.headers import Headers
from routing.gateway.hop import Via
from routing.gateway.ledger import Ledger
from routing.gateway.limiter import Limiter
from routing.gateway.load import Flights
from routing.gateway.membership import Members
from routing.gateway.metrics import UNKNOWN, Metrics
from routing.gateway.peers import Peers
from routing.gateway.queues import Queues
from routing.gateway.recording import under_way
from routing.gateway.speech import Speech
from routing.gateway.table import Table
from routing.gateway.tracing import EXTERNAL, NODE
from routing.gateway.upstream import SENT, Upstream, UpstreamError


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The long-lived things that requests share."""

    config: Config
    clock: Clock
    table: Table
    ledger: Ledger
    flights: Flights
    peers: Peers
    metrics: Metrics
    upstream: Upstream
    members: Members
    cloud: Cloud
    dispatch: Dispatch
    queues: Queues
    limiter: Limiter


class Generate:
    """Answers the POST endpoints. Raises Refused for everything it refuses."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._speech = Speech()

    async def __call__(self, exchange: Exchange) -> None:
        """A client is known by its key. A request that another node passed on has been: its body is still to be proved."""
        parts = self._parts
        exchange.model = UNKNOWN
        if exchange.caller is None:
            view = parts.table.view
            exchange.key = identify(
                authorization(exchange), view.keys, known=bool(view.version), now=exchange.started_at
            )
            exchange.record_id = new_id("rec")
        ask, body = await self._asked(exchange)
        if exchange.caller is None and parts.table.view.aliases:
            ask, body = aliases.resolve(exchange, parts.table.view, parts.peers, ask, body)
        exchange.ask = ask
        route = parts.table.view.routes.get(ask.model)
        if exchange.upload is not None and route is not None and route.model.external is not None:
            exchange.upload.guarded = False
        if exchange.trace is not None:
            exchange.trace.scheduled()
        if exchange.key is not None and exchange.key.purses is not None:
            exchange.rates = self._vet_budgets(exchange, exchange.key.purses, ask)
        if exchange.key is not None and exchange.key.bounds is not None:  # of a client's own request
            await self._reserve(exchange, exchange.key.bounds, ask, body)
        if exchange.caller is not None:
            exchange.hopes, exchange.queued_s = hop.told_of(exchange.scope["headers"])
            await self._answer(exchange, ask, body)
        elif exchange.asked or (route is not None and route.model.fallbacks):
            await self._first_of(exchange, ask, body)
        else:
            exchange.hopes = False
            await self._answer(exchange, ask, body)

    def _vet_budgets(self, exchange: Exchange, purses: tuple[Purse, ...], ask: Ask) -> Headers:
        """What the client is told of its budgets. Raises Refused."""
        route = self._parts.table.view.routes.get(ask.model)
        return budgets.stand(purses, route.model.price if route is not None else None, exchange.started_at)

    async def _first_of(self, exchange: Exchange, ask: Ask, body: bytes) -> None:
        """By the model, or by the first of its fallbacks that can, while nobody has accepted the request and nothing was sent.
        A client that named another one, or an alias, is told which.

        If none can, the client is told why the first could not. A form with files has no fallbacks: it is not held.
        """
        assert exchange.key is not None
        routes = self._parts.table.view.routes
        names: tuple[str, ...] = (ask.model,)
        if exchange.upload is None:
            prompt = reckon(exchange.endpoint, body, longest=0, answers=0, context=None)
            now = exchange.started_at
            names = order(routes, exchange.key, ask, endpoint=exchange.endpoint, prompt=prompt, now=now)
        named = exchange.asked
        told, why = exchange.rates, None
        for left, name in zip(range(len(names) - 1, -1, -1), names, strict=True):
            exchange.ask, sent = renamed(ask, body, name)
            if name != (named or ask.model):
                exchange.asked, exchange.rates = named or ask.model, [*told, (b"x-llmgw-model", name.encode())]
            exchange.hopes = bool(left)
            try:
                return await self._answer(exchange, exchange.ask, sent)
            except Refused as error:
                if exchange.started or error.code not in NOT_ACCEPTED:
                    raise
                if why is None:
                    why = error.with_traceback(None)  # its frames are this one's, too
                    tried = exchange.forwarded_at if error.code in TRIED else None
                    first = exchange.node_id, exchange.replica_id, tried
                if left and exchange.trace is not None:
                    exchange.trace.declined(error.code)
                exchange.forwarded_at = exchange.inner_queue_s = exchange.inner_schedule_s = None
                exchange.pings, exchange.working, exchange.queued_s = False, False, 0.0
        exchange.ask, exchange.asked, exchange.rates = ask, named, told
        exchange.model = routes[ask.model].model.base
        assert why is not None
        exchange.node_id, exchange.replica_id, exchange.forwarded_at = first
        raise why

    async def _answer(self, exchange: Exchange, ask: Ask, body: bytes) -> None:
        """By the model of `ask`. Raises Refused."""
        parts = self._parts
        try:
            place = await self._place(exchange, ask, body)
            self._note_place(exchange, place)
            under_way(exchange, parts.ledger)
            await self._run(exchange, ask, place, body)
        finally:
            parts.queues.leave(exchange)
            if (counts := exchange.counts) is not None and counts.estimated and counts.prompt is None:
                route = parts.table.view.routes.get(ask.model)
                counts.prompt = fewest(exchange.endpoint, body, context=route.model.context if route else None)
                counts.estimated = counts.prompt is not None or counts.completion is not None

    async def _place(self, exchange: Exchange, ask: Ask, body: bytes) -> Place:
        """Where it goes: of an engine here, once there is room. Raises Refused."""
        queues = self._parts.queues
        place = await self._scheduled(exchange, ask, body)
        while isinstance(place, Seat) and not queues.enter(exchange):
            under_way(exchange, self._parts.ledger)
            if exchange.trace is not None:
                exchange.trace.queued()
            await queues.wait(exchange, ask, body)
            if exchange.trace is not None:
                exchange.trace.scheduled()
            place = await self._scheduled(exchange, ask, body)  # where it was to go may have gone
        if not isinstance(place, Seat):
            queues.leave(exchange)
        return place

    async def _scheduled(self, exchange: Exchange, ask: Ask, body: bytes) -> Place:
        """Where it goes, a model that has to come up for it included. Raises Refused."""
        now = exchange.loop.time
        began = now()
        try:
            return await self._parts.dispatch.first(exchange, ask, body)
        finally:
            exchange.own_schedule_s += now() - began

    async def _asked(self, exchange: Exchange) -> tuple[Ask, bytes]:
        """What is asked for, and the body: of a form with files its beginning, which another node cannot have signed."""
        config, caller = self._parts.config, exchange.caller
        if ENDPOINTS[exchange.endpoint].form:
            if caller is not None:
                caller.check(None)
            ask, body = await upload.begin(exchange, most=config.max_body)
        else:
            body = await self._read(exchange)
            if caller is not None:
                caller.check(body)
            ask = parse(exchange.endpoint, body, max_depth=config.max_json_depth)
        return ask, body

    async def _reserve(self, exchange: Exchange, bounds: tuple[Bound, ...], ask: Ask, body: bytes) -> None:
        """Take what the request may use of every limit that applies; App settles it. Raises Refused."""
        parts = self._parts
        route = parts.table.view.routes.get(ask.model)
        context = route.model.context if route is not None else None
        tokens = reckon(exchange.endpoint, body, longest=ask.longest, answers=ask.answers, context=context)
        try:
            exchange.reserved, rates = await parts.limiter.reserve(bounds, tokens)
            exchange.rates += rates
        except Refused:
            exchange.rates += parts.limiter.rates(bounds)
            raise

    async def _read(self, exchange: Exchange) -> bytes:
        config = self._parts.config
        if exchange.content_coding not in (b"", b"identity"):
            raise Refused(
                Kind.INVALID, "unsupported_content_encoding", "A compressed request body is not read: send it plain."
            )
        body = await exchange.body(config.max_body + (hop.ADDED_BODY if exchange.caller is not None else 0))
        if body is None:
            raise Refused(
                Kind.TOO_LARGE,
                "body_too_large",
                f"The request body is over the bound of {format_bytes(config.max_body)}: send less.",
            )
        return body

    async def _run(self, exchange: Exchange, ask: Ask, place: Place, body: bytes) -> None:
        """Forward; once more elsewhere if, and only if, no connection stood and nothing was sent to the client."""
        parts = self._parts
        tried = False
        while True:
            try:
                await self._forward(exchange, ask, place, body)
                if exchange.code and isinstance(place, Seat):  # its own error, passed on; its codes are no closed set
                    parts.metrics.engine_failed(exchange.model, "engine_error")
                return
            except asyncio.CancelledError as error:
                if exchange.gone:
                    _left(exchange, place, sent=error.args == (SENT,))
                raise
            except Refused as error:
                if (
                    isinstance(place, Seat) and error.kind not in _THEIRS
                ):  # what no engine of ours says while it is well
                    parts.metrics.engine_failed(exchange.model, error.code)
                    parts.flights.suspect(place.replica_id)
                raise
            except UpstreamError as error:
                exchange.working = error.reached
                refused = self._note_error(exchange, place, error)
                if error.reached or tried or exchange.started:
                    raise refused from error
                tried = True
                other = await parts.dispatch.second(exchange, ask, body, place)
                if other is None:
                    raise refused from error
                place = other
                if not isinstance(place, Seat):
                    parts.queues.leave(exchange)
                self._note_place(exchange, place)

    async def _forward(self, exchange: Exchange, ask: Ask, place: Place, body: bytes) -> None:
        parts = self._parts
        config = parts.config
        route = parts.table.view.routes.get(ask.model)
        if route is not None and exchange.caller is None:
            exchange.price = route.model.price
        first, idle = (route.model.first_byte_timeout, route.model.idle_timeout) if route else (None, None)
        first = config.first_byte_timeout if first is None else first
        idle = config.idle_timeout if idle is None else idle
        exchange.relays = exchange.caller is not None and isinstance(place, Via)
        if isinstance(place, Seat):
            out = outgoing(
                exchange.endpoint, ask, body, served_name=place.served_name, lora=place.lora, engine=place.engine
            )
            out = self._speech.first(place.replica_id, out, exchange.loop.time())
            _forwarded(exchange, ask)
            exchange.working = True
            parts.flights.enter(place.replica_id)
            try:
                await forward(
                    exchange,
                    place,
                    out,
                    parts.upstream,
                    self._speech,
                    first_byte_timeout=first,
                    idle_timeout=idle,
                )
            finally:
                parts.flights.leave(place.replica_id)
        elif isinstance(place, Via):
            _forwarded(exchange, ask)
            more = hop.patience(config, place.hop)
            longest = route.model.queue_wait if route else None
            queue = config.queue_wait if longest is None else longest
            wakes = config.activation_timeout if place.hop == HANDED and route and route.wakes else 0.0
            await hop.send(
                exchange,
                place,
                upstream_body(body, ask, served_name=""),
                members=parts.members,
                peers=parts.peers,
                upstream=parts.upstream,
                first_byte_timeout=first + more + queue + wakes,
                idle_timeout=idle + more,
            )
        else:
            assert route is not None
            await parts.cloud.answer(exchange, ask, route, body)

    def _note_place(self, exchange: Exchange, place: Place) -> None:
        exchange.node_id = place.node.node_id if isinstance(place, Via) else self._parts.members.node_id
        exchange.replica_id = place.replica_id if isinstance(place, Seat) else ""
        if exchange.trace is not None:
            kind = place.engine if isinstance(place, Seat) else NODE if isinstance(place, Via) else EXTERNAL
            exchange.trace.sent(exchange, provider=kind)

    def _note_error(self, exchange: Exchange, place: Place, error: UpstreamError) -> Refused:
        """Count it, have the engine looked at, and say what the client is told."""
        parts = self._parts
        refused = (from_upstream if isinstance(place, Seat) else from_node)(error, exchange.model)
        parts.metrics.engine_failed(exchange.model, refused.code)
        if isinstance(place, Seat):
            parts.flights.suspect(place.replica_id)
        return refused


_THEIRS = frozenset((Kind.INVALID, Kind.TOO_LARGE))
"""Refusals of what a client sent: no engine is to blame."""


def _forwarded(exchange: Exchange, ask: Ask) -> None:
    """It is about to be sent: its time in the queue is over, and a client that streams may be sent comments."""
    if exchange.forwarded_at is None:
        exchange.forwarded_at = exchange.loop.time()
    exchange.pings = ask.stream


def _left(exchange: Exchange, place: Place, *, sent: bool) -> None:
    """Its client left. What was sent to an engine has been read there, though no token may have come back: it is counted.

    Of another node that is known once it has said so.
    """
    counts = exchange.counts or Counts()
    sent = exchange.working if isinstance(place, Via) else sent or exchange.counts is not None
    if exchange.record_id and sent and counts.completion is None and not counts.by_usage:
        exchange.counts, counts.estimated = counts, True
