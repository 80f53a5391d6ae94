"""Several whole gateways in the test's event loop: edges, routers, inference nodes, each with files, listeners, engine."""

from __future__ import annotations

import asyncio
import functools
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from cluster.wire import EnginesFile, StartingReplica, from_dict, to_dict
from llmgw_site.lib.files import write_json
from routing.domain.records import UsageRecord
from routing.domain.snapshot import AliasEntry, KeyEntry, ModelEntry, Placed, ScopeEntry, Snapshot
from routing.gateway import lifespan
from routing.gateway.serve import for_nodes
from tests.fakes.scripted_engine import ScriptedEngine
from tests.processes import reserved
from tests.routing.gateway.listening import listening
from tests.routing.gateway.nodes import Cluster, Node
from tests.routing.gateway.rig import KEY, NARROW, TINY, ask, key_entry, local_engine, until
from tests.routing.gateway.scripted import Handler, Server, serving

SETTINGS: dict[str, Any] = {"connect_timeout": 30.0}
"""No connection that a busy machine makes late is one to a node that is away. What waits for the end of this says its own."""


class Site:
    """One running gateway. `client` talks to its client listener with KEY."""

    def __init__(self, node: Node, gateway: lifespan.Gateway) -> None:
        self.node = node
        self.gateway = gateway
        self.engine: ScriptedEngine
        self.client: httpx.AsyncClient
        self.node_port = 0
        self.away = socket.socket()  # keeps its port while nobody listens there
        self._node_stack = AsyncExitStack()

    @property
    def node_id(self) -> str:
        return self.node.node_id

    async def chat(self, script: Any = "hello", **fields: Any) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json=ask(script, **fields))

    def records(self, op: str = "close") -> list[UsageRecord]:
        files = sorted(self.node.config.usage.glob("*.jsonl"))
        lines = [json.loads(line) for path in files for line in path.open()]
        return [from_dict(UsageRecord, line["record"]) for line in lines if line["op"] == op]

    def busy(self, site: Site | Node, count: int = 1) -> None:
        """As if so many requests of this gateway were in progress there: another node is chosen first."""
        for _ in range(count):
            self.gateway.peers.enter(site.node_id, TINY)

    async def record(self) -> UsageRecord:
        await until(lambda: self.records())
        assert len(self.records()) == 1
        return self.records()[0]

    @property
    def asked(self) -> int:
        """Requests that reached the engine."""
        return len(self.engine.requests)

    def counts(self) -> list[object]:
        gateway = self.gateway
        return [gateway.flights.counts, gateway.peers.in_flight, gateway.app.active]


class Many:
    """The cluster: `start` sites and scripted nodes, then `settle`."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.cluster = Cluster(folder)
        self.sites: dict[str, Site] = {}
        self.models: list[ModelEntry] = [ModelEntry(name=TINY, created=1)]
        self.keys: tuple[KeyEntry, ...] = (key_entry(KEY, "all"), key_entry(NARROW, "narrow", models=("other",)))
        self.aliases: tuple[AliasEntry, ...] = ()
        self.scopes: tuple[ScopeEntry, ...] = ()
        self.scheme = "http"
        self.slots = 2  # of each engine
        self.polls = False  # whether nodes ask each other what they serve; if not, the snapshot alone says it
        self._stack = stack

    async def start(self, name: str, *modules: str, serves: tuple[str, ...] = (), **settings: Any) -> Site:
        """A gateway with these modules, whose engine serves these models."""
        node = self.cluster.add(name, *modules, **(SETTINGS | settings))
        gateway = lifespan.build(node.config)
        site = self.sites[name] = Site(node, gateway)
        site.engine = await self._stack.enter_async_context(ScriptedEngine())
        self._write(site, serves)
        self.cluster.publish()
        if not self.polls:
            gateway._poller.look = lambda: None  # type: ignore[method-assign]
        await gateway.start()
        self._stack.push_async_callback(gateway.stop)
        port = await self._stack.enter_async_context(listening(gateway.app, node.config))
        site.client = await self._stack.enter_async_context(
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}",
                headers={"authorization": f"Bearer {KEY.text}"},
                timeout=60,
                limits=httpx.Limits(max_keepalive_connections=0),  # no race with the edge that closes an idle one
            )
        )
        await self._stack.enter_async_context(site._node_stack)
        await self.listen(site)
        return site

    async def listen(self, site: Site) -> None:
        """Open the node listener, the first time on a free port."""
        tls = site.gateway.members.certificates.server if self.scheme == "https" else None
        app, config = site.gateway.node_app, site.node.config
        site.away.close()
        site.node_port = await site._node_stack.enter_async_context(
            listening(app, for_nodes(config), tls=tls, port=site.node_port)
        )
        site.node.address = f"{self.scheme}://127.0.0.1:{site.node_port}"

    async def unreachable(self, site: Site) -> None:
        """Close the node listener: connections are refused from now on."""
        await site._node_stack.aclose()
        site.away = self._stack.enter_context(reserved(site.node_port))

    async def scripted(self, name: str, *modules: str, handler: Handler, serves: tuple[str, ...] = ()) -> Server:
        """A node of the map that is a byte server."""
        node = self.cluster.add(name, *modules)
        self._write_models(node, serves)
        server = await self._stack.enter_async_context(serving(handler))
        node.address = f"http://127.0.0.1:{server.target.port}"
        return server

    def ghost(self, name: str, *modules: str, address: str = "", serves: tuple[str, ...] = ()) -> Node:
        """A node of the map at whose address nobody listens."""
        node = self.cluster.add(name, *modules, address=address or f"http://127.0.0.1:{closed_port()}")
        self._write_models(node, serves)
        return node

    def _write(self, site: Site, serves: tuple[str, ...], starting: tuple[str, ...] = ()) -> None:
        engines = tuple(
            local_engine(f"rep_{site.node.name}_{model}", model, site.engine.port, slots=self.slots) for model in serves
        )
        waiting = tuple(
            StartingReplica(replica_id=f"rep_{site.node.name}_{model}", model=model, state="starting")
            for model in starting
        )
        write_json(
            site.node.config.engines_file, to_dict(EnginesFile(written_at=0.0, engines=engines, starting=waiting))
        )
        self._write_models(site.node, serves + starting)

    def serve(self, site: Site, *models: str, starting: tuple[str, ...] = ()) -> None:
        """What its engines are from now on; where replicas shall run stays."""
        self._write(site, models, starting)

    def _write_models(self, node: Node, serves: tuple[str, ...]) -> None:
        for number, model in enumerate(self.models):
            placed = Placed(replica_id=f"rep_{node.name}_{model.name}", node_id=node.node_id, state="ready")
            if model.name in serves and placed not in model.placed:
                ids = (*model.replicas, placed.replica_id)
                self.models[number] = replace(model, placed=(*model.placed, placed), replicas=ids)

    def change(self, name: str, **fields: Any) -> None:
        """A model's entry in the snapshot."""
        self.models = [replace(model, **fields) if model.name == name else model for model in self.models]

    def publish(self) -> None:
        """Snapshot and map as they are now, to every node, and looked at."""
        self.cluster.publish()
        snapshot = Snapshot(
            version=f"e1:{self.cluster.version}",
            made_at=0.0,
            keys=self.keys,
            models=tuple(self.models),
            aliases=self.aliases,
            scopes=self.scopes,
        )
        for site in self.sites.values():
            write_json(site.node.config.snapshot_file, to_dict(snapshot))
            site.gateway.members.look()
            site.gateway.table.look()

    async def settle(self) -> None:
        """Publish, and wait until every gateway knows it."""
        self.publish()
        version = f"e1:{self.cluster.version}"
        await until(lambda: all(site.gateway.table.view.version == version for site in self.sites.values()))
        await until(
            lambda: all(
                site.gateway.members.map is not None and site.gateway.members.map.version == f"m:{self.cluster.version}"
                for site in self.sites.values()
            )
        )

    async def idle(self) -> None:
        """Nothing is under way anywhere: every count is back to zero."""
        await until(lambda: not any(any(site.counts()) for site in self.sites.values()))


@asynccontextmanager
async def many(folder: Path) -> AsyncIterator[Many]:
    async with AsyncExitStack() as stack:
        yield Many(folder, stack)


@asynccontextmanager
async def chain(folder: Path, *, slots: int = 2, **settings: Any) -> AsyncIterator[tuple[Many, Site, Site, Site]]:
    """edge -> router -> inference, the whole way that a request can have."""
    async with many(folder) as town:
        town.slots = slots
        edge = await town.start("edge", "edge", **settings)
        router = await town.start("router", "router", **settings)
        worker = await town.start("worker", "inference", serves=(TINY,), **settings)
        await town.settle()
        yield town, edge, router, worker


@functools.cache
def _closed() -> socket.socket:
    return reserved()


def closed_port() -> int:
    """A port on which nobody listens; each time the same one."""
    port: int = _closed().getsockname()[1]
    return port


@asynccontextmanager
async def deaf() -> AsyncIterator[socket.socket]:
    """A listener that answers no connection at all: its queue of connections is full. Closed by the test, it refuses, which who
    connects hears at its next try: a second, three, seven after the first."""
    with socket.socket() as handle:
        handle.bind(("127.0.0.1", 0))
        handle.listen(0)
        fillers = []
        try:
            for _ in range(4):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(handle.getsockname())
                fillers.append(filler)
            await asyncio.sleep(0)
            yield handle
        finally:
            for filler in fillers:
                filler.close()
