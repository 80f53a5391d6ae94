"""Asks the engines of this node: once for what they say of their model, and again and again how many requests they have.

The second only where a model has several replicas here, since only then there is a choice. All requests of clients pass
this gateway and are counted; what an engine has beyond that (somebody else's, or what it has not noticed to be over) is
`Flights.foreign`, and counts in the choice as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from llmgw_site.lib.units import MIB
from routing.domain.choose import Seat
from routing.domain.engines import facts_in, requests_in
from routing.gateway.asking import Asking
from routing.gateway.load import Flights
from routing.gateway.remote import whole
from routing.gateway.table import View
from routing.gateway.upstream import Target, Upstream, UpstreamError

LOOK = 1.0
"""Seconds between two looks at who is to be asked."""
OFTEN, AGAIN = 2.0, 10.0
"""Seconds between two questions for requests, and before an engine that did not say what its model is, is asked again."""
TIMEOUT = 2.0
MOST = MIB
"""Bytes of an answer that are read."""


class Engines:
    """`facts` is what each replica's engine says of its model. `run` never ends."""

    def __init__(self, upstream: Upstream, flights: Flights, *, view: Callable[[], View]) -> None:
        self.facts: dict[str, dict[str, Any]] = {}
        self._upstream = upstream
        self._flights = flights
        self._view = view
        self._due: dict[tuple[str, Seat], float] = {}  # by what is asked, and whom
        self._under_way: Asking[tuple[str, Seat]] = Asking()

    async def run(self) -> None:
        await self._under_way.run(self.look, LOOK)

    def look(self) -> None:
        """Begin to ask whoever is due; forget those that are gone."""
        routes = [route for route in self._view().routes.values() if not route.model.parent]
        seats = {seat for route in routes for seat in route.seats}
        several = {seat for route in routes if len(route.seats) > 1 for seat in route.seats}
        self._keep(seats, several)
        now = asyncio.get_running_loop().time()
        wanted: list[tuple[str, Seat, Callable[[Seat], Awaitable[None]]]] = [
            ("facts", seat, self._ask_facts) for seat in seats if seat.replica_id not in self.facts
        ]
        wanted += [("requests", seat, self._ask_requests) for seat in several]
        for what, seat, ask in wanted:
            key = what, seat
            if key in self._under_way or now < self._due.get(key, 0.0):
                continue
            self._due[key] = now + (AGAIN if what == "facts" else OFTEN)
            self._under_way.begin(key, self._ask(key, ask), whom=seat.replica_id)

    def _keep(self, seats: set[Seat], several: set[Seat]) -> None:
        names, counted = {seat.replica_id for seat in seats}, {seat.replica_id for seat in several}
        for replica_id in [item for item in self.facts if item not in names]:
            del self.facts[replica_id]
        for replica_id in [item for item in self._flights.foreign if item not in counted]:
            del self._flights.foreign[replica_id]
        for key in [item for item in self._due if item[1] not in seats]:
            del self._due[key]

    async def _ask(self, key: tuple[str, Seat], ask: Callable[[Seat], Awaitable[None]]) -> None:
        """An engine that does not answer such questions is none the worse for it."""
        try:
            await ask(key[1])
        except (UpstreamError, ValueError, TimeoutError):
            if key[0] == "requests":
                self._flights.foreign.pop(key[1].replica_id, None)

    async def _ask_facts(self, seat: Seat) -> None:
        self.facts[seat.replica_id] = facts_in(await self._get(seat, b"/v1/models"))

    async def _ask_requests(self, seat: Seat) -> None:
        there = requests_in(await self._get(seat, b"/metrics"))
        foreign = 0 if there is None else there - self._flights.counts.get(seat.replica_id, 0)
        if foreign > 0:
            self._flights.foreign[seat.replica_id] = foreign
        else:
            self._flights.foreign.pop(seat.replica_id, None)

    async def _get(self, seat: Seat, path: bytes) -> bytes:
        headers = [(b"authorization", f"Bearer {seat.key}".encode()), (b"accept-encoding", b"identity")]
        async with asyncio.timeout(TIMEOUT):
            response = await self._upstream.request(
                Target(seat.host, seat.port),
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
