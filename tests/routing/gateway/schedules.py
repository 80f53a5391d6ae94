"""Random schedules: requests of every kind, clients that leave, engines that die, and gateways that are killed and started anew; an
agent ships the records all the while.

`_World` is one gateway with room for all. `_Hops` is an edge and the node with the engines, each a process, with few slots, a short
queue, a model that answers for the other one, and a key with limits.

`run` gives what happened, as the clients, the engines and the controllers saw it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import httpx
import orjson

from cluster.wire import EnginesFile, LocalEngine, to_dict
from llmgw_site.lib.config import Config
from llmgw_site.lib.files import private_folder, write_json
from routing.domain.snapshot import LimitEntry, ModelEntry, Placed
from tests.fakes.scripted_engine import ScriptedEngine, Seen
from tests.routing.gateway.nodes import Cluster
from tests.routing.gateway.process import Process, ready
from tests.routing.gateway.rig import KEY, NARROW, TINY, VECTORS, config_for, key_entry, local_engine, snapshot
from tests.routing.gateway.scripted import until
from workers.agent.usage import Spool

AT_ONCE = 12
PATHS = {
    "chat.completions": "/v1/chat/completions", "completions": "/v1/completions", "embeddings": "/v1/embeddings",
    "messages": "/v1/messages", "responses": "/v1/responses",
}  # fmt: skip
ENDS: list[dict[str, Any]] = [
    {}, {}, {}, {"gap": 0.004}, {"silent": 0.1}, {"cached": 3}, {"die_after": 2}, {"die_after": 0}, {"cut_after": 1},
    {"error_after": 1}, {"reset": True}, {"status": 500, "body": "{}"}, {"never": True}, {"head_silent": 0.1},
]  # fmt: skip
"""What becomes of it at the engine; a client leaves by itself where nothing would come."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One request. `leaves_after`: pieces of the answer, 0 before its head, None: the client stays; `patience` in seconds."""

    name: str
    endpoint: str
    stream: bool
    tokens: int
    script: dict[str, Any]
    leaves_after: int | None
    patience: float
    limited: bool  # asked with the key that has limits, if there is one

    def body(self) -> dict[str, Any]:
        """Where each endpoint has its text stands what the engine shall do."""
        text = json.dumps({"tokens": self.tokens, **self.script})
        body: dict[str, Any] = {"model": VECTORS if self.endpoint == "embeddings" else TINY}
        if self.endpoint in ("chat.completions", "messages"):
            body["messages"] = [{"role": "user", "content": text}]
        else:
            body["prompt" if self.endpoint == "completions" else "input"] = text
        return {**body, "stream": True} if self.stream else body


def draw(dice: random.Random, number: int) -> Draw:
    endpoint = dice.choice(list(PATHS))
    script = dice.choice(ENDS)
    leaves = dice.randint(0, 2) if dice.random() < 0.3 else None
    return Draw(
        name=f"random-{number}",
        endpoint=endpoint,
        stream=endpoint != "embeddings" and dice.random() < 0.6,
        tokens=dice.randint(3, 9),
        script=script,
        leaves_after=0 if "never" in script else leaves,
        patience=dice.uniform(0.0, 0.3),
        limited=dice.random() < 0.3,
    )


@dataclass(kw_only=True)
class Met:
    """How a request ended for its client. `whole`: with a clean end; `status` 0: there was no answer's head."""

    status: int = 0
    whole: bool = False
    left: bool = False


@dataclass
class Ran:
    """What happened, by the requests' names; records as dicts, by their ids."""

    draws: dict[str, Draw] = field(default_factory=dict)
    met: dict[str, Met] = field(default_factory=dict)
    seen: dict[str, list[Seen]] = field(default_factory=lambda: defaultdict(list))  # at the engines
    stored: dict[str, dict[str, Any]] = field(default_factory=dict)  # at the controllers
    changed: list[str] = field(default_factory=list)  # records that came a second time, and as something else
    again: int = 0  # records that came a second time
    log: list[dict[str, Any]] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)  # files of the spool
    behind: list[str] = field(default_factory=list)  # lines of the spool of the node that answers for the first one


class _World:
    """A gateway's files, the gateway, two engines with the same models, and an agent's shipping."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.dice = dice
        self.ran = Ran()
        self.engines = [ScriptedEngine(), ScriptedEngine()]
        self.config, self.behind = self._files(folder)
        self.gateway = Process(self.config.data, log=folder / "gateway.log")
        self.gateways = [self.gateway]
        """The first is asked, and has the records; the last has the engines."""

    def _files(self, folder: Path) -> tuple[Config, Config]:
        config = config_for(folder)
        private_folder(config.snapshot_file.parent)
        private_folder(config.run)
        config.snapshot_file.write_bytes(orjson.dumps(to_dict(snapshot())))
        return config, config

    def publish(self) -> None:
        ports = [engine.port for engine in self.engines]
        engines = [local_engine(f"rep_1{'b' * n}", TINY, port, slots=64) for n, port in enumerate(ports)]
        engines.append(local_engine("rep_3", VECTORS, ports[0], slots=64))
        self.write(*engines)

    def write(self, *engines: LocalEngine) -> None:
        write_json(self.behind.engines_file, to_dict(EnginesFile(written_at=self.dice.random(), engines=engines)))

    async def kill_gateway(self) -> None:
        await self.kill(self.gateway)

    async def kill(self, gateway: Process) -> None:
        gateway.end()
        gateway.start()
        await ready(gateway)

    async def kill_engine(self) -> None:
        engine = self.dice.choice(self.engines)
        await engine.stop()
        await asyncio.sleep(self.dice.uniform(0.0, 0.2))
        await engine.start()
        self.publish()  # as the agent does for one that it started anew

    async def client(self, http: httpx.AsyncClient, item: Draw) -> None:
        """Ask; again only where nobody was there and so nothing was sent."""
        met = self.ran.met[item.name] = Met()
        while True:
            try:
                async with asyncio.timeout(item.patience if item.leaves_after == 0 else None):
                    await self._ask(http, item, met)
            except httpx.ConnectError:
                await asyncio.sleep(0.05)
                continue
            except (
                AttributeError
            ) as error:  # of a socket that closes as it opens: anyio asks one that is gone for its name
                if "getpeername" not in str(error):
                    raise
                await asyncio.sleep(0.05)
                continue
            except TimeoutError:
                met.left = True
            except httpx.HTTPError:
                pass  # it broke off
            return

    limited: ClassVar[dict[str, str]] = {}
    """Headers of what is asked with the other key."""

    async def _ask(self, http: httpx.AsyncClient, item: Draw, met: Met) -> None:
        headers, count = {"x-request-id": item.name}, 0
        if item.limited:
            headers |= self.limited
        async with http.stream("POST", PATHS[item.endpoint], json=item.body(), headers=headers) as answer:
            met.status = answer.status_code
            async for _ in answer.aiter_raw():
                count += 1
                if count == item.leaves_after:
                    met.left = True
                    return
        met.whole = True

    async def ship(self, stop: asyncio.Event) -> None:
        """As the agent does; now and then the answer is lost, or the agent starts anew."""
        spool = Spool(self.config.usage)
        while True:
            last = stop.is_set()
            while (batch := spool.next_batch()) is not None:
                for record in batch.records:
                    self._store(record)
                if last or self.dice.random() < 0.7:
                    spool.committed(batch, {record["record_id"] for record in batch.records})
                elif self.dice.random() < 0.5:
                    spool = Spool(self.config.usage)
                await asyncio.sleep(0)
            if last:
                return
            await asyncio.sleep(0.05)

    def _store(self, record: dict[str, Any]) -> None:
        ran, name = self.ran, record["record_id"]
        if name in ran.stored:
            ran.again += 1
            if ran.stored[name] != record:
                ran.changed.append(name)
        ran.stored[name] = record


class _Hops(_World):
    """See the module. Nothing is known of one node at the other but what files say: no controller is there."""

    limited: ClassVar[dict[str, str]] = {"authorization": f"Bearer {NARROW.text}"}

    def __init__(self, folder: Path, dice: random.Random) -> None:
        super().__init__(folder, dice)
        self.node = Process(self.behind.data, log=folder / "node.log")
        self.gateways.append(self.node)
        for gateway in self.gateways:
            gateway.environ |= {"LLMGW_QUEUE_LENGTH": "3", "LLMGW_QUEUE_WAIT": "0.4", "LLMGW_FALLBACK_AFTER": "0.2",
                                "LLMGW_NODE_SKIP": "0.5", "LLMGW_CONNECT_TIMEOUT": "2"}  # fmt: skip
        self.cluster.nodes["node"].address = f"http://127.0.0.1:{self.node.node}"
        self.cluster.publish()

    def _files(self, folder: Path) -> tuple[Config, Config]:
        self.cluster = Cluster(folder)
        nodes = [self.cluster.add("edge", "edge", "router"), self.cluster.add("node", "inference")]
        placed = {
            model: tuple(
                Placed(replica_id=f"rep_{model}_{n}", node_id="node_node", state="ready", slots=1) for n in range(2)
            )
            for model in (TINY, "second", VECTORS)
        }
        models = tuple(
            ModelEntry(name=name, created=1, replicas=tuple(item.replica_id for item in places), placed=places,
                       embeddings=name == VECTORS, fallbacks=("second",) if name == TINY else ())
            for name, places in placed.items()
        )  # fmt: skip
        few = LimitEntry(requests_per_minute=12, tokens_per_minute=9_000, parallel=2)
        told = snapshot(models=models, keys=(key_entry(KEY, "all"), key_entry(NARROW, "narrow", limit=few)))
        for node in nodes:
            write_json(node.config.snapshot_file, to_dict(told))
        return nodes[0].config, nodes[1].config

    def publish(self) -> None:
        self.write(
            *(
                local_engine(f"rep_{model}_{n}", model, engine.port, slots=1)
                for model in (TINY, "second", VECTORS)
                for n, engine in enumerate(self.engines)
            )
        )

    async def kill_node(self) -> None:
        await self.kill(self.node)


async def run(folder: Path, *, seed: int, requests: int, kills: int, deaths: int, hops: bool = False) -> Ran:
    """`kills` of each gateway and `deaths` of engines among so many requests, at random. `hops`: over two gateways."""
    dice = random.Random(seed)
    world = _Hops(folder, dice) if hops else _World(folder, dice)
    ran, gateway = world.ran, world.gateway
    ran.draws = {item.name: item for item in (draw(dice, number) for number in range(requests))}
    each = [(world.kill_gateway, kills), (world.kill_engine, deaths)]
    if isinstance(world, _Hops):
        each.append((world.kill_node, kills))
    blows = sorted(
        ((at, blow) for blow, count in each for at in dice.sample(range(5, requests - 5), count)),
        key=lambda blow: blow[0],
    )
    todo, ended, stop = iter(ran.draws.values()), 0, asyncio.Event()
    async with AsyncExitStack() as stack:
        for engine in world.engines:
            await stack.enter_async_context(engine)
        world.publish()
        for process in world.gateways:
            stack.callback(process.end)
            process.start()
            await ready(process)
        limits = httpx.Limits(max_keepalive_connections=0)
        headers = {"authorization": f"Bearer {KEY.text}"}
        http = await stack.enter_async_context(
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{gateway.client}", headers=headers, timeout=60, limits=limits,
                trust_env=False,
            )
        )  # fmt: skip

        async def worker() -> None:
            nonlocal ended
            for item in todo:
                await world.client(http, item)
                ended += 1
                if ran.met[item.name].status in (429, 502):  # else all of them would be asked while a node is away
                    await asyncio.sleep(0.3)

        async def fate() -> None:
            for at, blow in blows:
                await until(lambda at=at: ended >= at, seconds=120)  # type: ignore[misc]
                await asyncio.sleep(dice.uniform(0.0, 0.05))
                await blow()

        async with asyncio.TaskGroup() as group:
            shipping = group.create_task(world.ship(stop))
            work = [group.create_task(worker()) for _ in range(AT_ONCE)]
            work.append(group.create_task(fate()))
            await asyncio.wait(work)
            await world.kill_gateway()  # what is open now is closed by the next one
            for process in world.gateways:
                assert process.child is not None
                process.child.terminate()
            await until(lambda: all(item.child and item.child.poll() is not None for item in world.gateways))
            stop.set()
            await shipping
    for engine in world.engines:
        for seen in engine.requests:
            ran.seen[seen.headers["x-request-id"]].append(seen)
    ran.log = [json.loads(line) for line in gateway.stderr().splitlines()]
    if world.behind is not world.config:
        ran.behind = [line for path in world.behind.usage.glob("*.jsonl") for line in path.read_text().splitlines()]
    ran.left_over = sorted(path.name for path in world.config.usage.glob("spool-*.jsonl"))
    return ran
