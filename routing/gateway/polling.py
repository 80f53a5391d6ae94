"""Asks the other nodes what they serve: GET /api/v1/node/models, in the background.

Every node that runs inference or cloud, each CONFIG.peers_refresh; at once where a node is new in the map, has changed
there, or was just found gone by a request; soon again where it did not answer. Only routers ask, and edges. Each
question has its own time, size and task, so one slow node, or one that answers with garbage, spoils nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Protocol

import orjson

from cluster.domain.modules import MapNode, Module, ModuleMap
from cluster.domain.states import NodeState
from cluster.wire import WireError, from_dict
from llmgw_site.lib.clock import Clock
from llmgw_site.lib.config import Config
from llmgw_site.lib.logs import event
from llmgw_site.lib.units import KIB, MIB
from routing.domain.offers import NodeOffers, bounded
from routing.gateway.asking import Asking
from routing.gateway.peers import Cluster, Peers
from routing.gateway.remote import Answer
from routing.gateway.upstream import UpstreamError

log = logging.getLogger(__name__)

PATH = "/api/v1/node/models"
TIMEOUT = 5.0
"""Seconds that a node has for its answer."""
AGAIN = 5.0
"""Seconds after which a node that did not answer is asked again, if that is sooner than the next time."""
AT_ONCE = 32
"""Questions under way at the same time."""
MOST, SMALL = MIB, 64 * KIB
"""Bytes of an answer that are read at all, and that are read on the event loop; more takes a thread."""
LOOK = 0.2
"""Seconds between two looks at who is due."""


class Ask(Protocol):
    """`Remote.ask`."""

    def __call__(self, node: MapNode, *, method: str, path: str, timeout: float) -> Awaitable[Answer]: ...


class Poller:
    """Feeds `Peers`; `run` never ends."""

    def __init__(self, config: Config, clock: Clock, cluster: Cluster, peers: Peers, ask: Ask) -> None:
        self._refresh = config.peers_refresh
        self._clock = clock
        self._cluster = cluster
        self._peers = peers
        self._ask = ask
        self._map: ModuleMap | None = None  # the last that was looked at
        self._asks = False
        self._asked: dict[str, MapNode] = {}  # by node id
        self._due: dict[str, float] = {}  # the same: when next, monotonic
        self._seen: dict[str, tuple[object, ...]] = {}  # what of a node, when it changes, is a reason to ask at once
        self._under_way: Asking[str] = Asking()  # by node id
        self._failing: dict[str, str] = {}  # node id to what is wrong; logged when it changes

    async def run(self) -> None:
        await self._under_way.run(self.look, LOOK)

    def look(self) -> None:
        """Begin to ask whoever is due."""
        asks = self._cluster.runs(Module.ROUTER) or self._cluster.runs(Module.EDGE)
        if self._cluster.map is not self._map or asks != self._asks:
            self._map, self._asks = self._cluster.map, asks
            self._follow(self._nodes())
        nodes, now = self._asked, self._clock.monotonic()
        for node_id in self._peers.suspects & nodes.keys():
            self._due[node_id] = 0.0
        self._peers.suspects.clear()
        for node_id in sorted(nodes, key=lambda item: self._due[item]):
            if self._due[node_id] > now or len(self._under_way) >= AT_ONCE:
                break
            if node_id not in self._under_way:
                self._due[node_id] = now + self._refresh
                self._under_way.begin(node_id, self._one(nodes[node_id]), whom=node_id)

    def _nodes(self) -> dict[str, MapNode]:
        """Who is to be asked."""
        if self._map is None or not self._asks:
            return {}
        return {
            node.node_id: node
            for node in self._map.nodes
            if node.node_id != self._cluster.node_id
            and node.state != NodeState.OFFLINE
            and (node.runs(Module.INFERENCE) or node.runs(Module.CLOUD))
        }

    def _follow(self, nodes: dict[str, MapNode]) -> None:
        self._asked = nodes
        for node_id in [item for item in self._due if item not in nodes]:
            del self._due[node_id]
            self._seen.pop(node_id, None)
            self._failing.pop(node_id, None)
            self._peers.unknown(node_id)
        for node_id, node in nodes.items():
            seen = (node.address, node.public_key, node.state, node.modules)
            if self._seen.get(node_id) != seen:
                self._seen[node_id], self._due[node_id] = seen, 0.0
        if self._map is not None:
            self._peers.keep({node.node_id for node in self._map.nodes})

    async def _one(self, node: MapNode) -> None:
        """1. no answer in time: silent; 2. an answer that is none: up, and nothing is known; 3. what it offers.

        What comes once it is no longer asked, or has moved, says nothing of it any more.
        """
        node_id = node.node_id
        try:
            answer = await self._ask(node, method="GET", path=PATH, timeout=TIMEOUT)
        except UpstreamError as error:  # 1
            if self._moved(node):
                return
            self._peers.silent(node_id)
            self._due[node_id] = self._clock.monotonic() + min(AGAIN, self._refresh)
            self._note(node, f"{type(error).__name__}: {error}")
            return
        offers, wrong = None, ""
        try:
            offers = await asyncio.to_thread(_read, answer) if len(answer.body) > SMALL else _read(answer)
        except (orjson.JSONDecodeError, WireError) as error:
            wrong = str(error)
        if self._moved(node):
            return
        self._peers.heard(node_id, offers)  # 2 3
        self._note(node, wrong)

    def _moved(self, node: MapNode) -> bool:
        """Whether this node is no longer asked, or no longer there."""
        now = self._asked.get(node.node_id)
        return now is None or (now.address, now.public_key) != (node.address, node.public_key)

    def _note(self, node: MapNode, wrong: str) -> None:
        if wrong != self._failing.get(node.node_id, ""):
            self._failing[node.node_id] = wrong
            name = "peer_failing" if wrong else "peer_answers"
            level = logging.WARNING if wrong else logging.INFO
            event(log, name, level=level, node=node.name, node_id=node.node_id, why=wrong[:300] or None)


def _read(answer: Answer) -> NodeOffers:
    """Raises WireError, or orjson.JSONDecodeError."""
    if answer.status != 200 or len(answer.body) > MOST:
        raise WireError(f"status {answer.status}, {len(answer.body)} bytes")
    return bounded(from_dict(NodeOffers, orjson.loads(answer.body)))
