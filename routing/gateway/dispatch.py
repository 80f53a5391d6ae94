"""Where a request goes: an engine of this node, its cloud module, another node, or a router; and where it may go instead.

What is allowed by modules and by how the request came says routing/domain/way.py; which replica or node it is,
choose.py and nodes.py. A second place is asked for once at most, and only where no connection to the first stood.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from dataclasses import replace
from enum import Enum
from typing import Protocol

from cluster.domain.modules import MapNode, Module
from cluster.domain.states import NodeState
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused
from routing.domain import media
from routing.domain.choose import Route, Seat, choose, not_ready, vet
from routing.domain.endpoints import ENDPOINTS
from routing.domain.openai import Ask
from routing.domain.waking import NO_CONTROLLER, parked
from routing.domain.way import FORWARDED, HANDED, Way, already_forwarded, stopped, way
from routing.gateway.activation import Activation
from routing.gateway.exchange import Exchange
from routing.gateway.hop import Via
from routing.gateway.ledger import Ledger
from routing.gateway.load import Flights
from routing.gateway.membership import Members
from routing.gateway.peers import Peers
from routing.gateway.recording import under_way
from routing.gateway.table import Table

GRACE = 3.0
"""Seconds that a request waits for another engine, or the same one anew, when no connection to its engine stood."""
DIED = "engine_died"
"""What the agent says of an engine that ended while it served."""

_NONE: frozenset[str] = frozenset()
MOST_SESSION = 256
"""Bytes of a client's x-session-id that a router is told."""


class Cloud(Protocol):
    """What is needed of the cloud module."""

    def serves(self, route: Route) -> bool:
        """Whether it can send this external model's requests to its provider."""

    async def answer(self, exchange: Exchange, ask: Ask, route: Route, body: bytes) -> None:
        """Send a request to its provider and the answer to the client. Raises Refused."""


class Own(Enum):
    """The cloud module of this node."""

    CLOUD = "cloud"


Place = Seat | Via | Own


class Dispatch:
    """Knows all who could answer."""

    def __init__(
        self,
        config: Config,
        *,
        members: Members,
        peers: Peers,
        cloud: Cloud,
        table: Table,
        flights: Flights,
        activation: Activation,
        ledger: Ledger,
    ) -> None:
        self._config = config
        self._members = members
        self._peers = peers
        self._cloud = cloud
        self._table = table
        self._flights = flights
        self._activation = activation
        self._ledger = ledger

    async def first(self, exchange: Exchange, ask: Ask, body: bytes) -> Place:
        """The place for a request that nobody was sent yet. Raises Refused.

        1. mostly: an engine here has room
        2. a model that nobody serves now, and that may come up (`waking.wakes`), is waited for, here where the request is
           to be placed
        3. an engine of this node that has just died is waited for, up to GRACE: it is being started again
        """
        route = self._vetted(exchange, ask)
        found = way(hop=exchange.hop, runs=self._members.runs, routers=self._knows_routers)
        if isinstance(found, Refused):
            raise found
        if found is not Way.HAND:
            here = self._here(route, self._session(exchange, body), _NONE)
            if here is not None:  # 1
                return here
            if route.wakes and exchange.hop != FORWARDED:  # 2
                await self._woken(exchange, ask, found)
                route = self._vetted(exchange, ask)
        place = self._place(exchange, found, route, body, _NONE)
        if isinstance(place, Refused) and found is not Way.HAND and self._comes_back(route):  # 3
            again = await self._anew(exchange, ask)
            place = place if again is None else again
        if isinstance(place, Refused):
            raise place
        return place

    async def _woken(self, exchange: Exchange, ask: Ask, found: Way) -> None:
        """Wait until somebody serves a model that may come up. Raises Refused: it does not.

        Meanwhile a client that leaves is noticed, and one that streams is sent comments. Where no controller answers, what
        the snapshot says of a model that always runs is the better answer.
        """

        def up(ready: bool) -> bool:
            route = self._table.view.routes.get(ask.model)
            if route is None or not route.model.enabled:
                return True  # says so
            if self._here(route, "", frozenset()) is not None:
                return True
            if found is not Way.ROUTE:
                return False
            if self._peers.works(route):
                return True
            return ready and not isinstance(self._peers.choose(route, session=""), Refused)

        if up(False):
            return
        route = self._table.view.routes[ask.model]
        refused = parked(route.model)
        if refused is None:
            under_way(exchange, self._ledger)
            exchange.waits, exchange.pings = True, exchange.may_ping()
            now, patience = exchange.loop.time(), self._config.activation_timeout
            until = exchange.began + patience
            if exchange.hurries(route.model.fallbacks):  # another model may answer
                patience = min(self._config.fallback_after, patience)
                until = min(now + patience, until)
            refused = await self._activation.wait(route.model.base, ask.model, up, until=until, patience=patience)
            exchange.waits = False
        if refused is not None and (route.model.on_demand or refused.code != NO_CONTROLLER):
            raise refused

    def _comes_back(self, route: Route) -> bool:
        """Whether an engine of this node died a moment ago and is being started again."""
        return self._members.runs(Module.INFERENCE) and any(item.code == DIED for item in route.waiting)

    async def second(self, exchange: Exchange, ask: Ask, body: bytes, failed: Place) -> Place | None:
        """Another place, after no connection to the first stood; None: there is none.

        1. a router                     another router
        2. another node                 another node
        3. an engine here               another engine here, else another node if this node routes;
                                        else any engine of the model that comes up within GRACE: the agent was told
        """
        found = way(hop=exchange.hop, runs=self._members.runs, routers=self._knows_routers)
        route = self._table.view.routes.get(ask.model)
        if isinstance(found, Refused) or route is None:
            return None
        if isinstance(failed, Via):  # 1, 2
            without = frozenset((failed.node.node_id,))
            other = self._hand(exchange, without) if found is Way.HAND else self._peer(exchange, route, body, without)
            return None if isinstance(other, Refused) else other
        if not isinstance(failed, Seat):
            return None
        place = self._place(exchange, found, route, body, frozenset((failed.replica_id,)))  # 3
        return await self._anew(exchange, ask) if isinstance(place, Refused) else place

    async def _anew(self, exchange: Exchange, ask: Ask) -> Place | None:
        table, loop = self._table, asyncio.get_running_loop()
        view, until = table.view, loop.time() + GRACE
        while loop.time() < until:
            await asyncio.sleep(0.05)
            route = table.view.routes.get(ask.model)
            if table.view is view or route is None:
                continue
            place = self._here(route, "", frozenset())
            if place is not None:
                return place
        return None

    def _vetted(self, exchange: Exchange, ask: Ask) -> Route:
        """The model's route, if it may be asked for. Raises Refused.

        A node to which another passed the request, and which does not know the model yet, is only late: 503, not 404.
        """
        route = self._table.view.routes.get(ask.model)
        if route is not None:
            exchange.model = route.model.base
        elif exchange.caller is not None:
            text = f"This node has not heard of the model '{ask.model[:200]}' yet: try again in a few seconds."
            raise Refused(Kind.UNAVAILABLE, "model_not_ready", text, param="model", retry_after=2)
        assert exchange.key is not None
        found = vet(route, exchange.key, name=ask.model, embeddings=ENDPOINTS[exchange.endpoint].embeddings)
        if isinstance(found, Refused):
            raise found
        if ask.fetched and route is not None and route.model.external is None:
            raise media.refused(ask.fetched)
        return found

    # --- by the way ---

    def _place(
        self, exchange: Exchange, found: Way, route: Route, body: bytes, without: Collection[str]
    ) -> Place | Refused:
        """`without` names replicas of this node."""
        if found is Way.HAND:
            return self._hand(exchange, frozenset())
        session = self._session(exchange, body)
        place = self._here(route, session, without)
        if place is not None:
            return place
        if found is Way.ROUTE:
            return self._peer(exchange, route, body, frozenset())
        return self._not_again(route) if exchange.hop == FORWARDED else self._not_ready(route)

    def _here(self, route: Route, session: str, without: Collection[str]) -> Seat | Own | None:
        """An own provider's, or an own engine's; None: nothing of this node can answer."""
        if route.model.external is not None:
            return Own.CLOUD if self._cloud.serves(route) else None
        if not route.seats or not self._members.runs(Module.INFERENCE):
            return None
        flights = self._flights
        seat = choose(
            route,
            in_flight=flights.loads,
            dice=random.random(),
            session=session,
            without=without,
            full=flights.full,
        )
        return None if isinstance(seat, Refused) else seat

    def _not_ready(self, route: Route) -> Refused:
        """503 `model_not_ready`, by what this node runs."""
        return not_ready(route if self._members.runs(Module.INFERENCE) else replace(route, seats=(), waiting=()))

    def _not_again(self, route: Route) -> Refused:
        """What a forwarded request is told that cannot be answered here.

        1. the module that would answer does not run   503 `module_stopped`
        2. a replica is on its way up or down here     503 `model_not_ready`
        3. nobody is said to serve it                  503 `model_not_ready`: the router has yet to hear of it
        4. it is served elsewhere                      508 `already_forwarded`
        """
        module = Module.INFERENCE if route.model.external is None else Module.CLOUD
        if not self._members.runs(module):  # 1
            return stopped(module)
        elsewhere = route.model.external is not None or any(
            item.node_id != self._members.node_id for item in route.model.placed
        )
        here = route.waiting or route.seats
        return not_ready(route) if here or not elsewhere else already_forwarded(route.model.name)  # 2, 3, 4

    def _peer(self, exchange: Exchange, route: Route, body: bytes, without: frozenset[str]) -> Via | Refused:
        session = self._session(exchange, body)
        node = self._peers.choose(route, session=session, without=without)
        return node if isinstance(node, Refused) else Via(node=node, hop=FORWARDED, session=session)

    def _session(self, exchange: Exchange, body: bytes) -> str:
        """What names the conversation: a router says it to whom it forwards; an edge only passes on what the client said."""
        if exchange.caller is not None and exchange.hop == FORWARDED:
            return exchange.caller.marks.session
        explicit = exchange.session
        if exchange.caller is not None:
            explicit = exchange.caller.marks.session.encode("latin-1") or None
        assert exchange.key is not None
        if exchange.conversation is None:
            exchange.conversation = self._peers.session(exchange.key.key_id, explicit, body)
        return exchange.conversation

    # --- routers ---

    def _named(self) -> MapNode | None:
        """The router that the settings name; None where they name none, or none that is in the map."""
        return self._members.at(self._config.router_url) if self._config.router_url else None

    def _knows_routers(self) -> bool:
        return self._named() is not None or bool(self._members.others(Module.ROUTER))

    def _hand(self, exchange: Exchange, without: frozenset[str]) -> Via | Refused:
        """A router: the one that the settings name; else, or if that was tried or fails to answer, any of the map."""
        named = self._named()
        routers = [node for node in self._members.others(Module.ROUTER) if node.node_id not in without]
        if named is not None and named.node_id not in without and named not in routers:
            routers.append(named)  # whatever the map says of its modules
        if not routers:
            text = "No other router is known to this edge: try again in a moment, or ask an administrator."
            return Refused(Kind.UNAVAILABLE, "no_chat_upstream", text, retry_after=5)
        node = self._best(routers, named)
        session = exchange.session[:MOST_SESSION].decode("latin-1").strip() if exchange.session else ""
        return Via(node=node, hop=HANDED, session=session)

    def _best(self, routers: list[MapNode], named: MapNode | None) -> MapNode:
        """1. not those that lately could not be reached, nor offline ones, unless all are; 2. the named one; 3. any."""
        pool = [node for node in routers if node.state != NodeState.OFFLINE] or routers  # 1
        pool = [node for node in pool if not self._peers.skipped(node.node_id)] or pool
        return named if named in pool and named is not None else random.choice(pool)  # 2, 3
