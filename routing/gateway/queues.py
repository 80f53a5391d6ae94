"""Requests for this node's engines: as many run as there is room for, the others wait here, in the order of routing/domain/queueing.py.

One that runs has its line in `exchange.line` from the moment that its turn came until `leave`, whatever ends it. It takes of the
room as long as its replica is a part of that: what runs still at one that drains leaves the others to those that come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from cluster.domain.types import Klass
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Refused
from routing.domain.endpoints import COUNT_TOKENS, DETOKENIZE, TOKENIZE
from routing.domain.limits import reckon
from routing.domain.openai import Ask
from routing.domain.queueing import Line, Ticket, full, late
from routing.gateway.exchange import Exchange
from routing.gateway.metrics import Metrics
from routing.gateway.table import View

_LIGHT = frozenset({COUNT_TOKENS, TOKENIZE, DETOKENIZE})
"""No engine computes for them: they take no room."""


class Queues:
    """A line for each model that engines of this node are ready for."""

    def __init__(self, config: Config, metrics: Metrics) -> None:
        self.lines: dict[str, Line] = {}
        self._view = View()
        self._config = config
        self._metrics = metrics
        self._running: set[Exchange] = set()
        self._astray: set[Exchange] = set()  # of these, those at replicas that are no room now
        self._waits: dict[Ticket, tuple[Exchange, asyncio.Future[Refused | None]]] = {}

    @property
    def queued(self) -> Mapping[str, int]:
        """Requests that wait here, by replica: those of a model are told as if they waited at its replicas in equal parts."""
        found: dict[str, int] = {}
        for name, line in self.lines.items():
            route = self._view.routes.get(name)
            if line.waiting and route is not None and route.seats:
                share, rest = divmod(line.waiting, len(route.seats))
                found |= {seat.replica_id: share + (n < rest) for n, seat in enumerate(route.seats)}
        return found

    def follow(self, view: View) -> None:
        """Take over what there is room for now. Where there is none any more, those that wait look for another place."""
        self._view = view
        for name, route in view.routes.items():
            if route.room and not route.model.parent and name not in self.lines:
                self.lines[name] = Line()
        self._count()
        for name, line in list(self.lines.items()):
            found = view.routes.get(name)
            line.room = found.room if found is not None else 0
            if not line.room:
                for ticket in [item for item, (waiting, _) in self._waits.items() if waiting.model == name]:
                    self._decide(ticket, None, line)
                del self.lines[name]
            self._pump(line)

    def _count(self) -> None:
        """Who runs at a replica that is room, or was given its turn and has no replica yet."""
        for line in self.lines.values():
            line.running = 0
        self._astray.clear()
        for exchange in self._running:
            at, found, route = (
                exchange.replica_id,
                self.lines.get(exchange.model),
                self._view.routes.get(exchange.model),
            )
            if found is None or route is None or (at and all(seat.replica_id != at for seat in route.seats)):
                self._astray.add(exchange)
            else:
                exchange.line = found
                found.running += 1

    def enter(self, exchange: Exchange) -> bool:
        """Whether the request may run: its turn has come, or there is room and nobody waits for it."""
        line = self.lines.get(exchange.model)
        if line is None or exchange.line is not None or exchange.endpoint in _LIGHT:
            return True
        if line.enter():
            self._let_in(exchange, line)
            return True
        return False

    def _let_in(self, exchange: Exchange, line: Line) -> None:
        exchange.line, exchange.replica_id = line, ""  # a place that it was to have before is none any more
        self._running.add(exchange)

    async def wait(self, exchange: Exchange, ask: Ask, body: bytes) -> None:
        """Wait for its turn, or until there is no room at all any more: it is to look anew where it goes. What it has waited
        before (`exchange.queued_s`) counts against its bound, too.

        Raises Refused: `queue_full`, `queue_timeout`. Meanwhile a client that leaves is noticed at once, and one that streams
        is sent comments.
        """
        line, now, key = self.lines[exchange.model], exchange.loop.time(), exchange.key
        model = self._view.routes[exchange.model].model
        most = self._config.queue_length if model.queue_length is None else model.queue_length
        bound = self._config.queue_wait if model.queue_wait is None else model.queue_wait
        if exchange.hurries(model.fallbacks):
            bound = min(bound, self._config.fallback_after)
        assert key is not None
        ticket = Ticket(
            scope=key.project_id,
            tokens=reckon(exchange.endpoint, body, longest=ask.longest, answers=ask.answers, context=model.context),
            since=now,
            priority=self._view.priorities.get(key.key_id, 0),
            klass=self._view.classes.get(key.project_id, Klass.STANDARD),
        )
        refused = line.join(ticket, most=most)
        if refused is ticket:
            raise self._refused(exchange, full(model.name, line, most=most))
        above = line.taken_above(ticket.klass)
        future: asyncio.Future[Refused | None] = exchange.loop.create_future()
        self._waits[ticket] = exchange, future
        if refused is not None:
            told = full(model.name, line, most=most, own=refused.klass, came=ticket.klass)
            self._decide(refused, self._refused(exchange, told))
        exchange.waits, exchange.pings = True, exchange.may_ping()
        if exchange.watcher is None:
            exchange.watch()
        try:
            async with asyncio.timeout_at(now + max(0.0, bound - exchange.queued_s)):
                outcome = await future
            if outcome is not None:
                raise outcome
        except TimeoutError:
            if ticket in self._waits:
                waited = exchange.queued_s + exchange.loop.time() - now
                overtaken = line.taken_above(ticket.klass) - above
                raise self._refused(
                    exchange, late(model.name, line, ticket, waited=waited, overtaken=overtaken)
                ) from None
            if (
                not future.cancelled() and (outcome := future.result()) is not None
            ):  # else its turn came at this very moment
                raise outcome from None
        finally:
            exchange.waits = False
            seconds = exchange.loop.time() - now
            exchange.queued_s += seconds
            self._metrics.queued(exchange.model, seconds)
            if self._waits.pop(ticket, None) is not None:
                line.leave(ticket)

    def leave(self, exchange: Exchange) -> None:
        """It runs here no more; whoever is next may."""
        line = exchange.line
        if line is None:
            return
        exchange.line = None
        self._running.discard(exchange)
        if exchange in self._astray:
            self._astray.discard(exchange)
            return
        sent = exchange.forwarded_at
        line.over(None if sent is None else exchange.loop.time() - sent)
        if line.waiting:
            self._pump(line)

    def _pump(self, line: Line) -> None:
        while (ticket := line.take()) is not None:
            self._let_in(self._waits[ticket][0], line)
            self._decide(ticket, None)

    def _decide(self, ticket: Ticket, outcome: Refused | None, line: Line | None = None) -> None:
        """What becomes of one that waits; it leaves `line`, where it is still in it."""
        _, future = self._waits.pop(ticket)
        if line is not None:
            line.leave(ticket)
        if not future.done():  # else its client has left
            future.set_result(outcome)

    def _refused(self, exchange: Exchange, refused: Refused) -> Refused:
        self._metrics.queue_refused(exchange.model, refused.code)
        return refused
