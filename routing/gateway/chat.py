"""Chat, text completions and embeddings: key, body, choice, forwarding. The same road for all three."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from llmgw_site.lib.clock import Clock, new_id
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import format_bytes
from routing.domain.choose import Seat, choose, vet
from routing.domain.openai import EMBEDDINGS, Ask, parse, upstream_body
from routing.gateway.auth import identify
from routing.gateway.errors import from_upstream
from routing.gateway.exchange import Exchange
from routing.gateway.forward import forward
from routing.gateway.ledger import Ledger
from routing.gateway.load import Flights
from routing.gateway.metrics import UNKNOWN, Metrics
from routing.gateway.peers import Peers
from routing.gateway.table import Table
from routing.gateway.upstream import Broken, Upstream, UpstreamError

GRACE = 3.0
"""Seconds that a request waits for another engine, or the same one anew, when no connection to its engine stood."""


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


class Generate:
    """Answers the POST endpoints. Raises Refused for everything it refuses."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def __call__(self, exchange: Exchange) -> None:
        parts = self._parts
        exchange.model = UNKNOWN
        view = parts.table.view
        exchange.key = identify(exchange.authorization, view.keys, known=bool(view.version), now=exchange.started_at)
        exchange.record_id = new_id("rec")
        body = await self._read(exchange)
        ask = exchange.ask = parse(exchange.endpoint, body, max_depth=parts.config.max_json_depth)
        seat = self._choose(exchange, ask)
        if isinstance(seat, Refused):
            raise seat
        exchange.seat = seat
        parts.ledger.open(_opened(exchange, seat))
        await self._run(exchange, ask, seat, body)

    async def _read(self, exchange: Exchange) -> bytes:
        config = self._parts.config
        if exchange.content_coding not in (b"", b"identity"):
            raise Refused(
                Kind.INVALID, "unsupported_content_encoding", "A compressed request body is not read: send it plain."
            )
        body = await exchange.body(config.max_body)
        if body is None:
            raise Refused(
                Kind.TOO_LARGE,
                "body_too_large",
                f"The request body is over the bound of {format_bytes(config.max_body)}: send less.",
            )
        return body

    def _choose(self, exchange: Exchange, ask: Ask, without: tuple[str, ...] = ()) -> Seat | Refused:
        parts = self._parts
        route = parts.table.view.routes.get(ask.model)
        if route is not None:
            exchange.model = ask.model
        assert exchange.key is not None
        found = vet(route, exchange.key, name=ask.model, embeddings=exchange.endpoint == EMBEDDINGS)
        if isinstance(found, Refused):
            return found
        return choose(found, in_flight=parts.flights.counts, dice=random.random(), without=without)

    async def _run(self, exchange: Exchange, ask: Ask, seat: Seat, body: bytes) -> None:
        """Forward; once more elsewhere if, and only if, no connection stood. Nothing is ever sent twice."""
        tried = False
        while True:
            try:
                await self._forward(exchange, ask, seat, body)
                if exchange.code:  # the engine's own error, passed on; its codes are no closed set
                    self._parts.metrics.engine_failed(exchange.model, "engine_error")
                return
            except Refused as error:  # an answer that no engine of ours gives while it is well
                self._parts.metrics.engine_failed(exchange.model, error.code)
                self._parts.flights.suspect(seat.replica_id)
                raise
            except UpstreamError as error:
                self._note(exchange, seat, error)
                if error.reached or tried:
                    raise from_upstream(error, ask.model) from error
                tried = True
                other = await self._other(exchange, ask, seat)
                if other is None:
                    raise from_upstream(error, ask.model) from error
                exchange.seat = seat = other

    async def _forward(self, exchange: Exchange, ask: Ask, seat: Seat, body: bytes) -> None:
        parts = self._parts
        config = parts.config
        route = parts.table.view.routes.get(ask.model)
        first, idle = (route.model.first_byte_timeout, route.model.idle_timeout) if route else (None, None)
        loop = asyncio.get_running_loop()
        if exchange.forwarded_at is None:
            exchange.forwarded_at = loop.time()
        exchange.pings = ask.stream
        parts.flights.enter(seat.replica_id)
        try:
            await forward(
                exchange,
                seat,
                upstream_body(body, ask, served_name=seat.served_name),
                parts.upstream,
                first_byte_timeout=config.first_byte_timeout if first is None else first,
                idle_timeout=config.idle_timeout if idle is None else idle,
            )
        finally:
            parts.flights.leave(seat.replica_id)

    def _note(self, exchange: Exchange, seat: Seat, error: UpstreamError) -> None:
        parts = self._parts
        parts.metrics.engine_failed(exchange.model, from_upstream(error, "").code)
        if isinstance(error, Broken) or not error.reached:
            parts.flights.suspect(seat.replica_id)

    async def _other(self, exchange: Exchange, ask: Ask, seat: Seat) -> Seat | None:
        """Another seat now; or any seat once the agent has looked (it was told), within GRACE. None: there is none."""
        other = self._choose(exchange, ask, without=(seat.replica_id,))
        if isinstance(other, Seat):
            return other
        table = self._parts.table
        view, loop = table.view, asyncio.get_running_loop()
        until = loop.time() + GRACE
        while loop.time() < until:
            await asyncio.sleep(0.05)
            if table.view is not view and isinstance(other := self._choose(exchange, ask), Seat):
                return other
        return None


def _opened(exchange: Exchange, seat: Seat) -> dict[str, object]:
    key, ask = exchange.key, exchange.ask
    assert key is not None
    assert ask is not None
    return {
        "record_id": exchange.record_id,
        "request_id": exchange.request_id,
        "started_at": exchange.started_at,
        "endpoint": exchange.endpoint,
        "stream": ask.stream,
        "key_id": key.key_id,
        "project_id": key.project_id,
        "model_asked": ask.model,
        "model_served": exchange.model,
        "replica_id": seat.replica_id,
    }
