"""Asking nodes what they serve: when, whom, and what becomes of answers that are none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from cluster.domain.modules import MapNode
from cluster.wire import to_dict
from llmgw_site.lib.config import load
from routing.domain.offers import NodeOffers, Offer
from routing.domain.snapshot import ModelEntry, Placed
from routing.gateway import polling
from routing.gateway.peers import Peers
from routing.gateway.polling import MOST, PATH, TIMEOUT, Poller
from routing.gateway.remote import Answer
from routing.gateway.upstream import Broken, NotReached, TooSlow
from tests.routing.gateway.fake_cluster import SELF, FakeClock, FakeCluster, map_node, view_of
from tests.routing.gateway.rig import until

CONFIG = load({})
A, B = map_node("a"), map_node("b")


def offers(*names: str) -> Answer:
    told = NodeOffers(node_id="n", models=tuple(Offer(model=name) for name in names))
    return Answer(status=200, headers=[], body=orjson.dumps(to_dict(told)))


class World:
    """A poller whose questions tests answer. `answers` by node name: an answer, an exception, or a coroutine function."""

    def __init__(self, *nodes: MapNode, runs: tuple[str, ...] = ("router",)) -> None:
        self.clock = FakeClock()
        self.cluster = FakeCluster(self.clock, *nodes, runs=runs)
        placed = tuple(Placed(replica_id=f"r{name}", node_id=f"node_{name}", state="ready") for name in "ab")
        self.view = view_of(ModelEntry(name="m", created=1, placed=placed))
        self.peers = Peers(CONFIG, self.clock, self.cluster, view=lambda: self.view)
        self.poller = Poller(CONFIG, self.clock, self.cluster, self.peers, self._ask)
        self.asked: list[str] = []
        self.answers: dict[str, Any] = {}

    async def _ask(self, node: MapNode, *, method: str, path: str, timeout: float) -> Answer:
        assert (method, path, timeout) == ("GET", PATH, TIMEOUT)
        self.asked.append(node.name)
        answer = self.answers.get(node.name, offers("m"))
        if callable(answer):
            answer = await answer()
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    async def turn(self, seconds: float = 0.0) -> list[str]:
        """Who is asked once so much time has passed."""
        self.clock.at += seconds
        before = len(self.asked)
        self.poller.look()
        for _ in range(5):
            await asyncio.sleep(0)
        return self.asked[before:]

    def state(self, name: str) -> str:
        standing = self.peers.standings.get(f"node_{name}")
        if standing is None:
            return "not asked"
        return "silent" if standing.silent else "garbage" if standing.offers is None else "known"


async def test_every_node_is_asked_at_once_and_then_each_thirty_seconds() -> None:
    world = World(A, B)
    assert await world.turn() == ["a", "b"]
    assert await world.turn(29.9) == []
    assert await world.turn(0.1) == ["a", "b"]
    assert (world.state("a"), world.state("b")) == ("known", "known")


async def test_only_others_that_run_inference_or_cloud_and_are_not_offline_are_asked() -> None:
    world = World(
        A,
        map_node("me", node_id=SELF),
        map_node("edge", "edge", "router"),
        map_node("cl", "cloud"),
        map_node("off", state="offline"),
        map_node("late", state="stale"),
    )
    assert await world.turn() == ["a", "cl", "late"]


@pytest.mark.parametrize(
    ("runs", "asks"), [(("router",), True), (("edge",), True), (("inference", "controller"), False)]
)
async def test_only_routers_and_edges_ask(runs: tuple[str, ...], asks: bool) -> None:
    assert bool(await World(A, runs=runs).turn()) is asks


@pytest.mark.parametrize(
    "after",
    [
        map_node("a", address="http://moved.invalid:1"),
        map_node("a", "inference", "cloud"),
        map_node("a", public_key="11"),
    ],
)
async def test_a_node_that_is_new_or_has_changed_in_the_map_is_asked_at_once(after: MapNode) -> None:
    world = World(A)
    await world.turn()
    world.cluster.set(A, B)
    assert await world.turn(1.0) == ["b"]
    world.cluster.set(after, B)
    assert await world.turn(1.0) == ["a"]


async def test_a_node_that_a_request_found_gone_is_asked_at_once_but_only_once() -> None:
    world = World(A, B)
    await world.turn()
    world.answers["a"] = NotReached("refused")
    world.peers.unreachable("node_a")
    assert await world.turn(0.2) == ["a"]
    world.peers.unreachable("node_a")
    assert await world.turn(0.2) == []


@pytest.mark.parametrize("error", [NotReached("refused"), TooSlow("idle", 5.0), Broken("cut", headers_received=False)])
async def test_f07_a_node_that_does_not_answer_is_asked_again_soon_and_the_bad_state_clears_by_itself(
    error: Exception,
) -> None:
    world = World(A)
    world.answers["a"] = error
    await world.turn()
    assert world.state("a") == "silent"
    assert world.peers.listed() == {}
    del world.answers["a"]
    assert await world.turn(4.9) == []
    assert await world.turn(0.2) == ["a"]
    assert world.state("a") == "known"
    assert list(world.peers.listed()) == ["m"]


@pytest.mark.parametrize(
    "garbage",
    [
        Answer(status=200, headers=[], body=b"<html>"),
        Answer(status=200, headers=[], body=b"[]"),
        Answer(status=200, headers=[], body=b'{"node_id":"n","models":[{"model":7}]}'),
        Answer(status=200, headers=[], body=b" " * (MOST + 1)),
        Answer(status=500, headers=[], body=b""),
        Answer(status=401, headers=[], body=b"{}"),
    ],
)
async def test_garbage_of_one_node_spoils_nothing_and_marks_nobody(garbage: Answer) -> None:
    world = World(A, B)
    world.answers["a"] = garbage
    await world.turn()
    await until(lambda: world.state("a") == "garbage")
    assert world.state("b") == "known"
    assert world.peers.down_for("node_a") is None
    assert list(world.peers.listed()) == ["m"]


async def test_a_long_answer_is_read_beside_the_event_loop() -> None:
    world = World(A)
    world.answers["a"] = offers(*(f"model-{number}" for number in range(2000)))
    await world.turn()
    await until(lambda: world.state("a") == "known")
    offered = world.peers.standings["node_a"].offers
    assert offered is not None
    assert len(offered) == 2000


async def test_a_slow_node_delays_no_other_and_is_not_asked_twice_at_once() -> None:
    world = World(A, B)
    gate = asyncio.Event()

    async def slowly() -> Answer:
        await gate.wait()
        return offers("m")

    world.answers["a"] = slowly
    assert await world.turn() == ["a", "b"]
    assert world.state("b") == "known"
    assert await world.turn(31.0) == ["b"]
    gate.set()
    await world.turn()
    assert world.state("a") == "known"


async def test_not_more_than_so_many_questions_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "AT_ONCE", 3)
    world = World(*(map_node(f"n{number}") for number in range(10)))
    gate = asyncio.Event()

    async def wait() -> Answer:
        await gate.wait()
        return offers()

    world.answers.update({f"n{number}": wait for number in range(10)})
    assert len(await world.turn()) == 3
    assert await world.turn() == []
    gate.set()
    seen = 3
    for _ in range(10):
        seen += len(await world.turn())
    assert seen == 10


async def test_what_a_node_said_is_forgotten_when_it_is_no_longer_asked() -> None:
    world = World(A)
    await world.turn()
    world.cluster.set(map_node("a", state="offline"))
    await world.turn()
    assert world.peers.standings["node_a"].offers is None
    world.cluster.set()
    await world.turn()
    assert world.peers.standings == {}


@pytest.mark.parametrize("answer", [NotReached("refused"), offers("m")], ids=["silent", "answers"])
@pytest.mark.parametrize(
    ("after", "again"),
    [((), []), ((map_node("a", "router"),), []), ((map_node("a", address="http://moved.invalid:1"),), ["a"])],
    ids=["gone", "other-role", "moved"],
)
async def test_an_answer_that_comes_after_its_node_went_or_changed_says_nothing(
    after: tuple[MapNode, ...], again: list[str], answer: Any
) -> None:
    world = World(A)
    gate = asyncio.Event()

    async def slowly() -> Any:
        await gate.wait()
        return answer

    world.answers["a"] = slowly
    assert await world.turn() == ["a"]
    world.cluster.set(*after)
    assert await world.turn() == []
    del world.answers["a"]
    gate.set()
    assert await world.turn() == []
    assert world.peers.standings == {}
    assert await world.turn(0.2) == again
    assert world.state("a") == ("known" if again else "not asked")


@asynccontextmanager
async def running(work: Callable[[], Awaitable[Any]]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_it_runs_by_itself_and_leaves_nothing_behind() -> None:
    world = World(A)
    never = asyncio.Event()

    async def hang() -> Answer:
        await never.wait()
        return offers()

    world.answers["a"] = hang
    async with running(world.poller.run):
        while not world.asked:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1
