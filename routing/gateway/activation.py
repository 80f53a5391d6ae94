"""Models that nobody serves: this gateway tells a controller that requests wait, and they wait for what becomes of that
attempt.

For each model, and each adapter that is asked for, one exchange with the controllers is under way, however many requests wait here. It is said again each
POLL seconds as long as somebody waits: so controllers know who waits for what is loading, and that nobody does any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from cluster.domain.demand import Stage
from cluster.domain.modules import MapNode
from cluster.wire import Demand, DemandAnswer, WireError, from_dict, to_dict
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.logs import event
from routing.domain.waking import came_to_nothing, no_controller, too_long
from routing.gateway.remote import Answer
from routing.gateway.upstream import UpstreamError

log = logging.getLogger(__name__)

PATH = "/api/v1/agent/demand"
POLL = 1.0
"""Seconds between two questions how an attempt stands."""
LOOK = 0.05
"""Seconds between two looks whether there is a place now."""
PATIENCE = 3.0
"""Seconds in which a controller answers; else the next one is asked."""
LOST_AFTER = 30.0
"""Seconds without any controller after which waiting is given up: they would have said by now what becomes of it."""

AGAIN = 1.0
"""Seconds in which further requests are told what the last one was: however often somebody asks for what cannot start,
controllers are asked once a second."""

Up = Callable[[bool], bool]
"""Whether a request of the model would find a place now. True: controllers say that it is ready, so a node of which
nothing better is known will do."""


class Controllers(Protocol):
    """What is needed to ask them."""

    def controllers(self) -> list[MapNode]:
        """Those of the map, the one to ask first in front."""

    async def order(self, node: MapNode, *, path: str, body: bytes, timeout: float) -> Answer:
        """One signed call; its answer is proved to be the controllers'. Raises UpstreamError."""


@dataclass(eq=False)
class _Load:
    """A model that requests wait for here. `over`: None where there is a place now, else what they are told."""

    name: str
    asked: str  # the same, or an adapter of it: what is up for the one may not be for the other
    over: asyncio.Future[Refused | None]
    waiting: int = 0
    task: asyncio.Task[None] | None = None
    attempt: float | None = None
    ready: bool = False
    far: str = ""  # how far it is, as controllers said last
    heard_at: float = field(default=0.0)  # when a controller last answered, by the loop's time


class Activation:
    """Brings models up for requests."""

    def __init__(self, controllers: Controllers) -> None:
        self._controllers = controllers
        self._loads: dict[str, _Load] = {}  # by what was asked for
        self._told: dict[str, tuple[float, Refused]] = {}  # by model: when its last attempt came to nothing, and why

    @property
    def waiting(self) -> dict[str, int]:
        """Requests that wait, by model."""
        found: dict[str, int] = {}
        for load in self._loads.values():
            found[load.name] = found.get(load.name, 0) + load.waiting
        return found

    async def wait(self, name: str, asked: str, up: Up, *, until: float, patience: float) -> Refused | None:
        """Wait until there is a place for a request of this model; a refusal says why there will be none.

        `asked`: the model's name, or an adapter's of it. `until`: by the loop's time; `patience`: how long that is, in seconds,
        for the client. Cancelled where the client leaves: then it counts no longer as waiting.
        """
        loop = asyncio.get_running_loop()
        told = self._lately(loop.time()).get(name)
        if told is not None:
            return told[1]
        load = self._loads.get(asked)
        if load is None or load.over.done():
            load = self._loads[asked] = _Load(name, asked, loop.create_future())
            load.task = loop.create_task(self._guarded(load, self._bring_up(load, up)))
        load.waiting += 1
        try:
            async with asyncio.timeout_at(until):
                return await asyncio.shield(load.over)
        except TimeoutError:
            return too_long(name, patience, far=load.far)
        finally:
            load.waiting -= 1
            if not load.waiting:
                self._forget(load)

    def _lately(self, now: float) -> dict[str, tuple[float, Refused]]:
        """Attempts that came to nothing a moment ago."""
        if self._told:
            self._told = {name: item for name, item in self._told.items() if now - item[0] < AGAIN}
        return self._told

    def _forget(self, load: _Load) -> None:
        if self._loads.get(load.asked) is load:
            del self._loads[load.asked]
        if load.task is not None:
            load.task.cancel()

    async def stop(self) -> None:
        """End all; whoever waits still is ended by the application."""
        tasks = [load.task for load in self._loads.values() if load.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _guarded(self, load: _Load, work: Coroutine[Any, Any, Refused | None]) -> None:
        """A defect of ours must not let requests wait until their time is over."""
        try:
            outcome = await work
        except Exception as error:
            event(log, "activation_failed", level=logging.ERROR, model=load.name, error=repr(error))
            outcome = no_controller(load.name)
        if outcome is not None:
            self._told[load.name] = asyncio.get_running_loop().time(), outcome
        if not load.over.done():
            load.over.set_result(outcome)

    async def _bring_up(self, load: _Load, up: Up) -> Refused | None:
        """1. there is a place; 2. the attempt came to nothing; 3. no controller answers."""
        loop = asyncio.get_running_loop()
        began = load.heard_at = loop.time()
        due = 0.0
        event(log, "activation_begun", model=load.name)
        while True:
            if up(load.ready):  # 1
                event(log, "activation_done", model=load.name, seconds=round(loop.time() - began, 3))
                return None
            if loop.time() >= due:
                refused = await self._ask(load)
                if refused is not None and not up(load.ready):  # 2, 3
                    event(
                        log, "activation_over", model=load.name, code=refused.code, reason=refused.extra.get("reason")
                    )
                    return refused
                due = loop.time() + POLL
            await asyncio.sleep(LOOK)

    async def _ask(self, load: _Load) -> Refused | None:
        """Ask how the attempt stands, the first time: that there be one. None: it goes on."""
        loop = asyncio.get_running_loop()
        order = Demand(model=load.name, attempt=load.attempt)
        answer = await self._said(order)
        if answer is None:
            if load.attempt is not None and loop.time() - load.heard_at < LOST_AFTER:
                return None
            load.ready = True  # nobody knows better: where a node may be ready by now, it says so itself
            return no_controller(load.name)
        load.heard_at = loop.time()
        load.attempt = answer.attempt
        load.ready = answer.state == Stage.READY
        load.far = answer.message if answer.state == Stage.STARTING else ""
        return came_to_nothing(load.name, state=answer.state, code=answer.code, message=answer.message)

    async def _said(self, order: Demand) -> DemandAnswer | None:
        """What the first controller says that answers; None: none does."""
        body = orjson.dumps(to_dict(order))
        for node in self._controllers.controllers():
            wrong = ""
            try:
                answer = await self._controllers.order(node, path=PATH, body=body, timeout=PATIENCE)
                if answer.status == 200:
                    return from_dict(DemandAnswer, orjson.loads(answer.body))
                wrong = f"status {answer.status}: {answer.body[:200].decode(errors='replace')}"
            except (UpstreamError, WireError, orjson.JSONDecodeError) as error:
                wrong = f"{type(error).__name__}: {error}"
            event(log, "demand_not_heard", level=logging.WARNING, node=node.name, model=order.model, why=wrong[:300])
        return None
