"""Asks the engines of this node: once for what they say of their model, and again and again for their own figures.

All requests of clients pass this gateway and are counted; what an engine has beyond that (somebody else's, or what it has
not noticed to be over) is `Flights.foreign`, and counts in the choice as well. What a figure is says routing/domain/figures.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from cluster.wire import LocalEngine
from llmgw_site.lib.units import MIB
from routing.domain.engines import facts_in
from routing.domain.figures import Scraped, figures_in, heard
from routing.gateway.asking import Asking
from routing.gateway.load import Flights
from routing.gateway.remote import whole
from routing.gateway.table import View
from routing.gateway.upstream import Target, Upstream, UpstreamError

LOOK = 1.0
"""Seconds between two looks at who is to be asked, at most."""
AGAIN = 10.0
"""Seconds before an engine that did not say what its model is, is asked again."""
TIMEOUT = 5.0
MOST = MIB
"""Bytes of an answer that are read."""

Ask = Callable[[LocalEngine], Coroutine[Any, Any, None]]


class Engines:
    """`facts` is what each replica's engine says of its model, `scraped` its figures. `run` never ends.

    `every`: seconds between two scrapes of an engine.
    """

    def __init__(self, upstream: Upstream, flights: Flights, *, view: Callable[[], View], every: float) -> None:
        self.facts: dict[str, dict[str, object]] = {}
        self._upstream = upstream
        self._flights = flights
        self._view = view
        self._every = every
        self._due: dict[tuple[str, str], float] = {}  # by what is asked, and whom
        self._under_way: Asking[tuple[str, str]] = Asking()

    @property
    def told(self) -> Mapping[str, tuple[str, Scraped]]:
        """Of each engine that was asked already: the model, and what is known of it."""
        scraped = self._flights.scraped
        return {
            engine.replica_id: (engine.model, scraped[engine.replica_id])
            for engine in self._view().engines
            if engine.replica_id in scraped
        }

    async def run(self) -> None:
        await self._under_way.run(self.look, min(LOOK, self._every))

    def look(self) -> None:
        """Begin to ask whoever is due; forget those that are gone."""
        engines = {engine.replica_id: engine for engine in self._view().engines}
        self._keep(engines)
        now = asyncio.get_running_loop().time()
        for engine in engines.values():
            if engine.state == "ready" and engine.replica_id not in self.facts:
                self._begin("facts", engine, self._ask_facts, now, AGAIN)
            self._begin("figures", engine, self._scrape, now, self._every)

    def _begin(self, what: str, engine: LocalEngine, ask: Ask, now: float, pause: float) -> None:
        key = what, engine.replica_id
        if key not in self._under_way and now >= self._due.get(key, 0.0):
            self._due[key] = now + pause
            self._under_way.begin(key, ask(engine), whom=engine.replica_id)

    def _keep(self, engines: Mapping[str, LocalEngine]) -> None:
        for known in (self.facts, self._flights.foreign, self._flights.full, self._flights.scraped):
            for replica_id in [item for item in known if item not in engines]:
                del known[replica_id]
        for key in [item for item in self._due if item[1] not in engines]:
            del self._due[key]

    async def _ask_facts(self, engine: LocalEngine) -> None:
        """An engine that does not answer such a question is none the worse for it."""
        try:
            self.facts[engine.replica_id] = facts_in(await self._get(engine, b"/v1/models"))
        except (UpstreamError, ValueError, TimeoutError):
            pass

    async def _scrape(self, engine: LocalEngine) -> None:
        try:
            found = figures_in(await self._get(engine, b"/metrics"))
        except (UpstreamError, ValueError, TimeoutError):
            found = None
        name, flights = engine.replica_id, self._flights
        if name not in {item.replica_id for item in self._view().engines}:
            return  # it went while it was asked
        scraped = heard(flights.scraped.get(name, Scraped()), found, asyncio.get_running_loop().time())
        flights.scraped[name] = scraped
        figures = scraped.figures
        if figures is not None and figures.waiting and figures.running:
            flights.full[name] = figures.running
        else:
            flights.full.pop(name, None)
        there = figures.requests if figures is not None else None
        foreign = 0 if there is None else there - flights.counts.get(name, 0)
        if found is not None and foreign > 0:
            flights.foreign[name] = foreign
        elif found is not None or there is None:
            flights.foreign.pop(name, None)

    async def _get(self, engine: LocalEngine, path: bytes) -> bytes:
        headers = [(b"authorization", f"Bearer {engine.key}".encode()), (b"accept-encoding", b"identity")]
        async with asyncio.timeout(TIMEOUT):
            response = await self._upstream.request(
                Target(engine.host, engine.port),
                method=b"GET",
                path=path,
                headers=headers,
                first_byte_timeout=TIMEOUT,
                idle_timeout=TIMEOUT,
            )
            body = await whole(response, MOST)
        if response.status != 200:
            raise ValueError(f"status {response.status}")
        return body
