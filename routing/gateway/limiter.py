"""Limits at the edge that a client asked: reserved before a request is passed on, settled when it is over, however it ends.

What is decided is in routing/domain/limits.py and leases.py. Where several edges are in the map, controllers count: one
question is under way at most, for everything that is to be said, at once where a request waits and else each second.
Without an answer this edge works on its share and no request waits, until controllers answer again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

import orjson

from cluster.domain.leasing import MOST, PARALLEL, REQUESTS, TOKENS, LimitsAnswer, LimitsAsk, LimitWant
from cluster.wire import WireError, from_dict, to_dict
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.logs import event
from routing.domain.leases import Counter, Parallel, PerMinute
from routing.domain.limits import (
    Standing,
    headers,
    reached,
    tightest,
    too_much,
)
from routing.domain.records import UsageRecord
from routing.domain.tenancy import Bound
from routing.gateway.activation import Controllers
from routing.gateway.headers import Headers
from routing.gateway.upstream import UpstreamError

log = logging.getLogger(__name__)

PATH = "/api/v1/agent/limits"
EVERY = 1.0
"""Seconds between two looks at what is to be said."""
PATIENCE = 0.5
"""Seconds in which a controller answers; else the next one is asked."""
BUDGET = 1.5
"""Seconds for all of them together: as long do requests wait at most."""
PAUSE = 2.0
"""Seconds between two tries while none answers."""
TRIES = 2
"""Questions that one request waits for: what came with the first may have gone to others that waited, too."""


class _Need(NamedTuple):
    """What a request needs of one limit."""

    bound: Bound
    kind: str
    counter: Counter
    limit: int
    amount: int


class Reservation(NamedTuple):
    """What a request holds. `counted`: of what controllers count."""

    at: float
    needs: tuple[_Need, ...]
    counted: bool

    def settle(self, now: float, record: UsageRecord) -> None:
        """Put what its record says in place of what was reserved. Once."""
        used = {
            REQUESTS: 1 if record.model_served else 0,
            TOKENS: (record.prompt_tokens or 0) + (record.completion_tokens or 0),
            PARALLEL: 0,
        }
        for need in self.needs:
            need.counter.settle(self.at, now, reserved=need.amount, used=used[need.kind], counted=self.counted)


class Limiter:
    """The counters of this edge. `edges`: how many the map has, this one included."""

    def __init__(self, controllers: Controllers, *, edges: Callable[[], int]) -> None:
        self._controllers = controllers
        self._edges = edges
        self._counters: dict[tuple[str, str], Counter] = {}
        self._heard = True
        self._tried_at = 0.0
        self._wake = asyncio.Event()
        self._answer: asyncio.Future[None] | None = None

    @property
    def alone(self) -> bool:
        """Whether this edge works on its share of the limits, since no controller answered when it last asked."""
        return not self._heard and self._edges() > 1

    @property
    def problems(self) -> tuple[str, ...]:
        """For people."""
        if not self.alone:
            return ()
        return (
            "no controller counts limits for all edges, so this one works on its share of them: look at Valkey there",
        )

    def counter(self, scope: str, kind: str) -> Counter:
        found = self._counters.get((scope, kind))
        if found is None:
            found = Parallel(scope) if kind == PARALLEL else PerMinute(scope, kind)
            self._counters[scope, kind] = found
        return found

    async def reserve(self, bounds: tuple[Bound, ...], tokens: int) -> tuple[Reservation, Headers]:
        """Take a request, its tokens and a place of every limit that applies, or nothing at all: raises Refused.

        1. it uses more than a limit has in all      429 `request_over_limit`
        2. all have room                             taken
        3. controllers may give more                 they are asked, and it is looked at again
        4. of those that have no room                429 of the one that has it last
        """
        loop = asyncio.get_running_loop()
        needs = tuple(self._needs(bounds, tokens))
        for need in needs:
            if need.amount > need.limit:
                raise too_much(need.bound, need.kind, need.limit, need.amount)  # 1
        for tries in range(TRIES + 1):
            now, counted = loop.time(), self._heard and self._edges() > 1
            short = [need for need in needs if not need.counter.passes(now, need.amount, counted=counted)]
            if not short:
                for need in needs:
                    need.counter.take(now, need.amount, counted=counted)
                return Reservation(now, needs, counted), self._told(needs, now, counted)  # 2
            if not counted or tries == TRIES or not all(need.counter.may_ask(now) for need in short):
                break
            await self._ask(short)  # 3
        raise self._refused(short, now, counted)  # 4

    def _needs(self, bounds: tuple[Bound, ...], tokens: int) -> Iterator[_Need]:
        edges = self._edges()
        for bound in bounds:
            limit = bound.limit
            for kind, most, amount in (
                (REQUESTS, limit.requests_per_minute, 1),
                (TOKENS, limit.tokens_per_minute, tokens),
                (PARALLEL, limit.parallel, 1),
            ):
                if most is not None:
                    counter = self.counter(bound.scope_id, kind)
                    counter.limit, counter.edges = most, edges
                    yield _Need(bound, kind, counter, most, amount)

    def _refused(self, short: list[_Need], now: float, counted: bool) -> Refused:
        worst, longest = short[0], -1.0
        for need in short:
            wait = need.counter.wait(now, need.amount, counted=counted)
            if (wait or 0.0) > longest:
                worst, longest = need, wait or 0.0
        room = worst.counter.left(now, counted=counted) if isinstance(worst.counter, PerMinute) else 0
        return reached(worst.bound, worst.kind, worst.limit, amount=worst.amount, room=room, wait=longest or None)

    def rates(self, bounds: tuple[Bound, ...]) -> Headers:
        """How the limits stand."""
        now = asyncio.get_running_loop().time()
        return self._told(tuple(self._needs(bounds, 0)), now, self._heard and self._edges() > 1)

    def _told(self, needs: tuple[_Need, ...], now: float, counted: bool) -> Headers:
        requests: list[Standing] = []
        tokens: list[Standing] = []
        for need in needs:
            if isinstance(need.counter, PerMinute):
                left, reset = need.counter.left(now, counted=counted), need.counter.reset(now, counted=counted)
                (tokens if need.kind == TOKENS else requests).append(Standing(need.limit, left, reset))
        return headers(tightest(requests), tightest(tokens))

    # --- with the controllers

    async def _ask(self, short: list[_Need]) -> None:
        """Wait until a question has been answered that says what these need, or that nobody answers."""
        loop = asyncio.get_running_loop()
        if self._answer is None:
            self._answer = loop.create_future()
        answer = self._answer
        for need in short:
            need.counter.waiting += need.amount
        self._wake.set()
        try:
            await asyncio.shield(answer)
        finally:
            for need in short:
                need.counter.waiting -= need.amount

    async def run(self) -> None:
        """Say what is to be said, for ever."""
        while True:
            try:
                async with asyncio.timeout(EVERY):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            answer, self._answer = self._answer, None
            try:
                await self._say()
            finally:
                if answer is not None:
                    answer.set_result(None)

    async def _say(self) -> None:
        now = asyncio.get_running_loop().time()
        self._forget(now)
        if self._edges() <= 1 or (not self._heard and now < self._tried_at + PAUSE):
            return
        wants: list[tuple[Counter, LimitWant]] = []
        for counter in self._counters.values():
            want = counter.want(now)
            if want is not None:
                wants.append((counter, want))
        if not wants and self._heard:
            return
        for first in range(0, max(1, len(wants)), MOST):
            part = wants[first : first + MOST]
            answer = await self._said(LimitsAsk(wants=tuple(want for _, want in part)))
            if answer is None:
                self._unheard(wants[first:])
                return
            grants = {(grant.scope, grant.kind): grant for grant in answer.grants}
            then = asyncio.get_running_loop().time()
            for counter, want in part:
                grant = grants.get((want.scope, want.kind))
                if grant is None:
                    counter.unheard(want)
                else:
                    counter.answered(now, then, want, grant)
        if not self._heard:
            self._heard = True
            event(log, "limits_counted_again")

    def _unheard(self, wants: list[tuple[Counter, LimitWant]]) -> None:
        told = {id(counter): want for counter, want in wants}
        for counter in self._counters.values():
            counter.unheard(told.get(id(counter)))
        self._tried_at = asyncio.get_running_loop().time()
        if self._heard:
            self._heard = False
            event(
                log,
                "limits_not_counted",
                level=logging.WARNING,
                edges=self._edges(),
                cure="this edge works on its share",
            )

    def _forget(self, now: float) -> None:
        for name in [name for name, counter in self._counters.items() if counter.idle(now)]:
            del self._counters[name]

    async def _said(self, question: LimitsAsk) -> LimitsAnswer | None:
        """What the first controller says that answers; None: none does."""
        body = orjson.dumps(to_dict(question))
        wrong = "the map has no controller"
        try:
            async with asyncio.timeout(BUDGET):
                for node in self._controllers.controllers():
                    try:
                        answer = await self._controllers.order(node, path=PATH, body=body, timeout=PATIENCE)
                        if answer.status == 200:
                            return from_dict(LimitsAnswer, orjson.loads(answer.body))
                        wrong = f"{node.name}: status {answer.status}: {answer.body[:200].decode(errors='replace')}"
                    except (UpstreamError, WireError, orjson.JSONDecodeError) as error:
                        wrong = f"{node.name}: {type(error).__name__}: {error}"
        except TimeoutError:
            pass
        if self._heard:
            event(log, "limits_not_heard", level=logging.WARNING, why=wrong[:300])
        return None
