"""Random faults against routing: real gateways in virtual time, and what must hold whatever happens.

An even seed is a gentle schedule: at any time at most one inference node is gone, and nothing else is wrong. There every
request for a model that two nodes have must succeed, unless the node that went had accepted it.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from catalog.domain import keys
from cluster.domain import signing
from cluster.domain.modules import MapFile, MapNode, ModuleMap, ModuleReport, ModulesFile
from cluster.wire import EnginesFile, LocalEngine, to_dict
from llmgw_site.lib.config import load
from routing.domain.nodes import Rule, Strategy, Works
from routing.domain.snapshot import KeyEntry, ModelEntry, Placed, Snapshot
from routing.gateway import lifespan
from routing.gateway.lifespan import Gateway
from tests.sim.network import CONNECT, Connection, FakeUpstream, Network, Place, serve
from tests.sim.virtual import LoopClock, VirtualLoop

KEY = keys.make(keys.KEY_PREFIX, entropy=b"s" * 32)
PRIVATE = [signing.body_digest(f"node {number}".encode()) for number in range(8)]
PUBLIC = [signing.public_hex(private) for private in PRIVATE]
CONTROLLER = signing.public_hex("c0" * 32)
MODELS = {"all": 3, "pair": 2, "single": 1, "vectors": 2}
"""Models, and on how many nodes each is."""
PATHS = {"vectors": ("/v1/embeddings",)}
CHATS = ("/v1/chat/completions", "/v1/completions")
BUSY, REST, STEP, LIST = 110.0, 50.0, 0.5, 4.0
"""Virtual seconds with faults, and without; between two looks, and between two looks at the lists of models."""
TINY = 1e-6
SKIP, LATE, BACK = 30.0, 46.0, 16.0
"""Virtual seconds that a node is skipped; after which a model whose nodes are all gone is off the list (refresh, a slow
question, and one look); after which one is back that answers (a slow question, the pause before the next, and its time)."""


@dataclass
class Outcome:
    """What a client saw."""

    uid: str
    model: str
    status: int = 0
    body: bytes = b""
    clean: bool = False
    left: bool = False  # it did not wait

    @property
    def good(self) -> bool:
        return self.status == 200 and self.clean and b'"error"' not in self.body

    @property
    def code(self) -> str:
        for line in self.body.split(b"\n"):
            if b'"error"' in line:
                return str(orjson.loads(line.removeprefix(b"data: "))["error"]["code"])
        return ""


class Schedule:
    """One run on a loop of its own; `play` raises AssertionError where something does not hold."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.gentle = seed, seed % 2 == 0
        self.dice = random.Random(seed)
        self.loop = VirtualLoop()
        self.folder = folder / str(seed)
        self.network = Network(random.Random(seed + 1))
        self.network.on_attempt = self._before_attempt
        self.network.on_missed = lambda source, place: self.missed.__setitem__((source, place.name), self.loop.time())
        self.network.on_answered = self._answered
        self.missed: dict[tuple[str, str], float] = {}  # who could not reach whom, when last
        self.gateways: dict[str, Gateway] = {}
        self.state: dict[str, str] = {}  # of the map
        self.gone_since: dict[str, float | None] = {}  # a node that answers no question, since when
        self.good_since: dict[str, float] = {}
        self.outcomes: list[Outcome] = []
        self.cut: set[str] = set()  # requests that a node had accepted when it was killed
        self.broken: list[AssertionError] = []  # found where a gateway would take it for its own defect
        self.numbers = 0
        self.maps = 0

    def play(self) -> None:
        asyncio.set_event_loop(self.loop)
        random.seed(self.seed)  # the gateways' own dice
        try:
            self.loop.run_until_complete(self._play())
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            asyncio.set_event_loop(None)
            self.loop.close()

    # --- the cluster ----------------------------------------------------------------------------------------------

    def _build(self) -> None:
        self.inference = [f"i{number}" for number in range(self.dice.randint(3, 4))]
        self.routers = [f"r{number}" for number in range(self.dice.randint(1, 2))]
        self.roles = dict.fromkeys(self.inference, ("inference",))
        self.roles |= dict.fromkeys(self.routers, ("router",)) | {"e0": ("edge",)}
        if self.dice.random() < 0.3:  # one machine that is both
            self.roles["e0"] = ("edge", "router")
        self.names = list(self.roles)
        self.on = {model: self.dice.sample(self.inference, count) for model, count in MODELS.items()}
        for name in self.names:
            self.state[name], self.gone_since[name], self.good_since[name] = "online", None, 0.0
            self._node(name)
        self._publish()

    def _node(self, name: str) -> None:
        config = load({"LLMGW_DATA": str(self.folder / name), "LLMGW_ACCESS_LOG": "0"})
        config = replace(config, first_byte_timeout=60.0, idle_timeout=30.0)
        for path in (config.snapshot_file, config.node_file):
            path.parent.mkdir(parents=True, exist_ok=True)
        number = self.names.index(name)
        identity = {
            "node_id": f"node_{name}", "private_key": PRIVATE[number], "controller_public_key": CONTROLLER, "address": ""
        }  # fmt: skip
        _write(config.node_file, identity)
        _write(config.modules_file, to_dict(ModulesFile(modules=self._reports(name), roles=self.roles[name])))
        _write(config.snapshot_file, to_dict(self._snapshot()))
        engines = []
        for model, on in self.on.items():
            if name in on:
                host = f"{model}.{name}"
                self.network.places[host] = Place(host)
                engines.append(
                    LocalEngine(
                        replica_id=f"rep_{host}",
                        model=model,
                        engine="fake",
                        state="ready",
                        host=host,
                        port=1,
                        key="k",
                        slots=2,
                    )
                )
        _write(config.engines_file, to_dict(EnginesFile(written_at=0.0, engines=tuple(engines))))
        upstream: Any = FakeUpstream(self.network, name)
        gateway = lifespan.build(config, clock=LoopClock(self.loop), upstream=upstream)
        gateway.rule.rule = Rule(strategy=self.dice.choice(list(Strategy)), affinity=self.dice.random() < 0.3)
        gateway.table.look()
        self.gateways[name] = gateway
        self.network.places[name] = Place(name, gateway=gateway)

    def _snapshot(self) -> Snapshot:
        models = []
        for model, on in self.on.items():
            placed = tuple(
                Placed(replica_id=f"rep_{model}.{name}", node_id=f"node_{name}", state="ready", slots=2) for name in on
            )
            replicas = tuple(item.replica_id for item in placed)
            models.append(
                ModelEntry(name=model, created=1, replicas=replicas, placed=placed, embeddings=model == "vectors")
            )
        key = KeyEntry(key_id="key_1", sha256=KEY.sha256, prefix=KEY.prefix, project_id="p")
        return Snapshot(version="e:1", made_at=0.0, keys=(key,), models=tuple(models))

    def _reports(self, name: str) -> tuple[ModuleReport, ...]:
        return tuple(ModuleReport(name=role) for role in self.roles[name])

    def _publish(self) -> None:
        """The controllers tell every node the map."""
        self.maps += 1
        rows = tuple(
            MapNode(
                node_id=f"node_{name}", name=name, address=f"http://{name}:8880", public_key=PUBLIC[number],
                state=self.state[name], modules=self._reports(name),
            )
            for number, name in enumerate(self.names)
        )  # fmt: skip
        told = to_dict(MapFile(map=ModuleMap(version=f"m:{self.maps}", made_at=0.0, nodes=rows)))
        for gateway in self.gateways.values():
            _write(gateway.config.map_file, told)
            gateway.members.look()

    # --- what happens ---------------------------------------------------------------------------------------------

    async def _play(self) -> None:
        self._build()
        self.gateways["e0"].ledger.start()
        looks = self.loop.create_task(self._looks())
        clients: list[asyncio.Task[None]] = []
        try:
            end = self.loop.time() + BUSY
            while self.loop.time() < end:
                await self._wait(self.dice.expovariate(1 / 5.0), looks)
                if self.dice.random() < 0.3:
                    self._fault()
                clients += [self.loop.create_task(self._client()) for _ in range(self.dice.choice((1, 1, 1, 5)))]
            self._heal()
            if clients:
                await asyncio.wait(clients)
            await self._wait(REST, looks)
            for client in clients:
                client.result()
            await self._rest()
        finally:
            looks.cancel()
            self.gateways["e0"].ledger.stop()

    async def _wait(self, seconds: float, looks: asyncio.Task[None]) -> None:
        await asyncio.sleep(seconds)
        if looks.done():
            looks.result()
        for error in self.broken:
            raise error

    async def _client(self, model: str = "") -> None:
        """One request through the edge, and what must hold of it when it is over."""
        self.numbers += 1
        uid = f"q{self.numbers}"
        model = model or self.dice.choice(list(MODELS))
        path = self.dice.choice(PATHS.get(model, CHATS))
        stream = model != "vectors" and self.dice.random() < 0.6
        body: dict[str, Any] = {"model": model, "uid": uid, "stream": stream}
        body |= {"input": "x", "prompt": "x", "messages": [{"role": "user", "content": self.dice.choice("abc")}]}
        outcome = Outcome(uid, model)
        self.outcomes.append(outcome)
        connection = Connection(Place("client"))
        headers = [(b"authorization", f"Bearer {KEY.text}".encode()), (b"content-type", b"application/json")]
        if self.dice.random() < 0.2:
            headers.append((b"x-session-id", b"mine"))
        work = asyncio.ensure_future(
            serve(self.gateways["e0"].app, connection, b"POST", path.encode(), headers, orjson.dumps(body))
        )
        if not self.gentle and self.dice.random() < 0.15:
            outcome.left = True
            self.loop.call_later(self.dice.uniform(0.1, 4.0), connection.abort)
        try:
            await connection.opened(2000.0, 2000.0)
            outcome.status = connection.status
            while piece := await connection.read():
                outcome.body += piece
            outcome.clean = not stream or outcome.body.endswith(b"data: [DONE]\n\n") or outcome.status != 200
        except Exception as error:
            self.network.say(f"{uid} client: {error!r}")
        await work
        self.network.say(f"{uid} {model} ended {outcome.status} {outcome.code or ('good' if outcome.good else 'cut')}")
        self._settled(outcome)

    def _fault(self) -> None:
        acts: tuple[Callable[[], None], ...] = (self._lose_node,)
        if not self.gentle:
            acts = (
                self._lose_node, self._lose_node, self._lose_router, self._blackhole_engine, self._crash_engine, self._cut,
                self._slow, self._errors, self._lose_all,
            )  # fmt: skip
        self.dice.choice(acts)()

    def _for_a_while(self, undo: Callable[[], None], most: float = 100.0) -> None:
        self.loop.call_later(self.dice.uniform(1.0, most), undo)

    def _lose_node(self, name: str = "") -> None:
        name = name or self.dice.choice(self.inference)
        if self.gone_since[name] is not None:
            return
        if self.gentle:  # one at a time, and the next only when nobody waits for a connection to the last any more
            latest = max(self.good_since[item] for item in self.inference)
            if any(self.gone_since[item] for item in self.inference) or self.loop.time() - latest < CONNECT + 1:
                return
        self._lose(
            name,
            self.dice.choice(("refuse", "refuse", "blackhole") if self.gentle else ("refuse", "blackhole", "mute")),
        )

    def _lose(self, name: str, fault: str) -> None:
        place, since = self.network.places[name], self.loop.time()
        self.network.say(f"{name}: {fault}")
        place.fault, self.gone_since[name] = fault, since
        if fault == "refuse":
            self.cut |= place.kill()
        told = self.dice.random() < 0.5

        def offline() -> None:
            if told and self.gone_since[name] == since:
                self.state[name] = "offline"
                self._publish()

        self.loop.call_later(40.0, offline)
        self._for_a_while(lambda: self._return(name))

    def _return(self, name: str) -> None:
        if self.gone_since[name] is None:
            return
        self.network.say(f"{name} is back")
        self.network.places[name].fault = ""
        self.gone_since[name], self.good_since[name] = None, self.loop.time()
        if self.state[name] != "online":
            self.state[name] = "online"
            self._publish()

    def _lose_router(self) -> None:
        name = self.dice.choice(self.routers)
        if self.gone_since[name] is None:
            self._lose(name, self.dice.choice(("refuse", "blackhole", "mute")))

    def _lose_all(self) -> None:
        for name in self.inference:
            if self.gone_since[name] is None:
                self._lose(name, "refuse")

    def _engine(self) -> Place:
        return self.dice.choice([place for place in self.network.places.values() if place.gateway is None])

    def _crash_engine(self) -> None:
        place = self._engine()
        self.network.say(f"{place.name} crashes")
        place.kill()
        self._for_a_while(lambda: setattr(place, "fault", ""), 20.0)

    def _blackhole_engine(self) -> None:
        place = self._engine()
        place.fault = self.dice.choice(("blackhole", "mute"))
        self._for_a_while(lambda: setattr(place, "fault", ""), 20.0)

    def _cut(self) -> None:
        """Connections to a place break in the middle, or before the first byte, for a while."""
        place = self.network.places[self.dice.choice(sorted(self.network.places))]
        place.cut_after = self.dice.randint(0, 4)
        self._for_a_while(lambda: setattr(place, "cut_after", None), 20.0)

    def _slow(self) -> None:
        place = self.network.places[self.dice.choice(sorted(self.network.places))]
        place.slow = self.dice.uniform(0.1, 5.0)
        self._for_a_while(lambda: setattr(place, "slow", 0.0), 20.0)

    def _errors(self) -> None:
        place = self._engine()
        place.error = self.dice.choice((400, 429, 500, 503))
        self._for_a_while(lambda: setattr(place, "error", 0), 20.0)

    def _heal(self) -> None:
        for name in self.names:
            self._return(name)
        for place in self.network.places.values():
            place.fault, place.cut_after, place.slow, place.error = "", None, 0.0, 0

    # --- what must hold -------------------------------------------------------------------------------------------

    async def _looks(self) -> None:
        """Beside it all: questions to nodes, clients that left, and the lists of models."""
        lists = 0.0
        while True:
            for name, gateway in self.gateways.items():
                if self.gone_since[name] is None:
                    gateway._poller.look()
                if gateway.app.active:
                    gateway._look(self.loop.time(), gateway.config.keepalive_comment)
            if self.loop.time() >= lists:
                self._look_at_lists()
                lists += LIST
            await asyncio.sleep(STEP)

    def _look_at_lists(self) -> None:
        """A model is off every list soon after its last node has gone, and on it soon after one is back."""
        now = self.loop.time()
        for name, gateway in self.gateways.items():
            if (
                self.gone_since[name] is not None
                or now - self.good_since[name] < LATE
                or self.roles[name] == ("inference",)
            ):
                continue
            listed = gateway.peers.listed()
            for model, on in self.on.items():
                gone = [self.gone_since[item] for item in on]
                if all(since is not None and now - since > LATE for since in gone):
                    assert model not in listed, f"{name} lists {model} though {on} are gone"
                if any(self.gone_since[item] is None and now - self.good_since[item] > BACK for item in on):
                    assert model in listed, f"{name} does not list {model} though one of {on} is back"

    def _answered(self, source: str, place: Place, began: float) -> None:
        """A node that answers is not skipped, if it was asked after it had been missed; at the same instant nobody knows."""
        missed = self.missed.get((source, place.name), began - 1.0)
        if abs(began - missed) < TINY:
            self.missed[source, place.name] = math.nan
        elif began > missed:
            self.missed.pop((source, place.name), None)

    def _before_attempt(self, source: str, place: Place, uid: str, model: str) -> None:
        try:
            self._attempt(source, place, uid, model)
        except AssertionError as error:
            self.broken.append(error)

    def _attempt(self, source: str, place: Place, uid: str, model: str) -> None:
        """Before a request goes to another node: one that could not be reached is left out for SKIP, while there are others."""
        if place.gateway is None or place.name not in self.inference:
            return
        peers, now = self.gateways[source].peers, self.loop.time()
        rows = peers.rows(self.gateways[source].table.view.routes[model].model)
        tried = self.network.asked[uid].missed
        others = [row.node.name for row in rows if row.state is not Works.CANNOT and row.node.name not in tried]
        for name in others:
            late = now - self.missed.get((source, name), -1e9)
            marked = peers.skipped(f"node_{name}")
            assert marked or not late < SKIP - TINY, f"{source} does not skip {name}, missed {late:.1f} s ago"
            assert not marked or not late > SKIP + TINY or peers.standings[f"node_{name}"].silent, (
                f"{source} skips {name}, missed {late:.1f} s ago"
            )
        if peers.skipped(f"node_{place.name}"):
            assert all(peers.skipped(f"node_{name}") for name in others), f"{source} takes {place.name} before {others}"

    def _settled(self, outcome: Outcome) -> None:
        asked = self.network.asked.get(outcome.uid)
        if asked is None:
            assert not outcome.good
            return
        uid = outcome.uid
        assert max(asked.accepted.values(), default=0) <= 1, f"{uid} was accepted twice: {asked}"
        assert max(asked.attempts.values(), default=0) <= 2, f"{uid} was tried more than twice: {asked}"
        if outcome.good:
            assert asked.accepted["engine"] == 1, f"{uid} succeeded without an engine"
        elif not outcome.left:
            assert outcome.status >= 400 or outcome.code or outcome.status == 0 or not outcome.clean, (
                f"{uid}: {outcome}"
            )
            assert outcome.status != 404, f"{uid}: {outcome.body!r}"
        if self.gentle and len(self.on[outcome.model]) > 1:
            assert outcome.good or uid in self.cut, f"{uid} failed by itself: {outcome} {asked}"

    async def _rest(self) -> None:
        """All is well again: every model is listed and answers, and nothing is left under way."""
        for model in MODELS:
            await self._client(model)
            assert self.outcomes[-1].good or self.outcomes[-1].left, f"{model} does not answer: {self.outcomes[-1]}"
        await asyncio.sleep(STEP * 4)
        for name, gateway in self.gateways.items():
            assert gateway.peers.in_flight == {}, f"{name} counts {gateway.peers.in_flight}"
            assert gateway.flights.counts == {}, f"{name} counts {gateway.flights.counts}"
            assert not gateway.app.active, f"{name} has requests under way"
            if self.roles[name] != ("inference",):
                assert sorted(gateway.peers.listed()) == sorted(MODELS)
        assert not self.network.tasks
        assert all(place.running == 0 for place in self.network.places.values())
        closed = Counter[str]()
        for path in self.gateways["e0"].config.usage.glob("*.jsonl"):
            closed.update(orjson.loads(line)["op"] for line in path.read_bytes().splitlines())
        assert closed["close"] == len(self.outcomes), f"{closed} records of {len(self.outcomes)} requests"


def _write(path: Path, value: Any) -> None:
    """A new file each time, as the product writes it, without its care for power cuts."""
    beside = path.with_suffix(".new")
    beside.write_bytes(orjson.dumps(value))
    beside.replace(path)
