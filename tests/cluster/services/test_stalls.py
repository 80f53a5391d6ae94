"""F05: whoever stands still, wherever in his work and for however long, no node that reports is taken for worse than it is.

The real code at a database whose clock the test sets. Before each query of a round of the controllers' work in turn,
the process that runs it stands still; what it does after is what a thawed process does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from django.db import connection
from django.test import Client

from cluster import selectors
from cluster.domain import health, signing
from cluster.domain.states import NodeState
from cluster.models import ClusterIdentity, Node, Replica
from cluster.selectors import from_unix
from cluster.services import calls, hearing, members
from cluster.wire import to_dict
from tests.cluster.rows import Machine, a_ready_replica, report, tick
from tests.rows import a_user

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]  # thousands of queries
T = 1_800_000_000.0
MARK = "1234567890.125"
"""Stands for the clock in compiled queries, until they run."""


class World:
    """A controller, three nodes that report in time, and the readers that judge them. `seen`: all that they said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, heartbeat: float, offline: float) -> None:
        self.now, self.heartbeat, self.offline = T, heartbeat, offline
        self.seen: list[NodeState] = []
        self.count, self.stall_at = 0, -1
        self.stall: Callable[[], None] = lambda: None
        monkeypatch.setitem(selectors.NOW, connection.vendor, MARK)
        judge = health.node_state

        def note(*args: Any, **more: Any) -> NodeState:
            self.seen.append(judge(*args, **more))
            return self.seen[-1]

        monkeypatch.setattr(health, "node_state", note)
        with connection.execute_wrapper(self.at_this_moment):
            first, self.replica = a_ready_replica()
            self.machines = [first, Machine(), Machine()]
        self.page, self.client = Client(), Client()
        self.page.force_login(a_user("root", superuser=True))

    def at_this_moment(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        self.count += 1
        if self.count == self.stall_at:
            self.stall()
        return execute(sql.replace(MARK, f"{self.now:.6f}"), params, many, context)

    def fresh(self) -> None:
        """Heard without a gap for long, every node a moment ago."""
        self.now += 10_000
        Node.objects.update(last_seen_at=from_unix(self.now))
        long_ago = from_unix(self.now - 9_000)
        ClusterIdentity.objects.update(listening_since=long_ago, listening_at=from_unix(self.now))
        hearing.forget()
        self.count, self.stall_at = 0, -1

    def beat(self, machine: Machine) -> None:
        """One heartbeat; tried again at once where it became too old on its way."""
        mine = [report(self.replica, "ready", port=1234, pid=42)] if machine is self.machines[0] else []
        for _ in range(2):
            body = orjson.dumps(to_dict(machine.beat(*mine)))
            answer = machine.post(self.client, "/api/v1/agent/heartbeat", body)
            if answer.status_code == 200:
                return
        raise AssertionError(answer.content)

    def heard(self) -> None:
        for _ in range(2):
            answer = self.machines[0].get(self.client, "/api/v1/agent/heard")
            if answer.status_code == 200:
                return
        raise AssertionError(answer.content)

    def look(self) -> None:
        """Those who judge nodes: the tick, the map, the API."""
        tick()
        members.publish()
        assert self.page.get("/api/v1/nodes").status_code == 200

    def round(self, *, looks: bool = True) -> None:
        """The work of one span between two heartbeats."""
        for machine in self.machines:
            self.beat(machine)
        for part in range(3):
            self.heard()
            if looks and part == 2:
                self.look()
            self.now += self.heartbeat / 3

    def all_go_on(self, seconds: float) -> None:
        """So long the one stands still, and the nodes go on with another controller."""
        until = self.now + seconds
        while self.now < until:
            self.round(looks=False)


@pytest.fixture(
    params=[
        pytest.param((1.0, 4.0, 8.0), id="short", marks=pytest.mark.prove),
        pytest.param((30.0, 90.0, 300.0), id="default", marks=pytest.mark.prove),
        pytest.param((30.0, 90.0, 120.0), id="soon_offline"),  # fewer rounds of the others while one stands still
    ]
)
def world(request: pytest.FixtureRequest, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    heartbeat, stale, offline = request.param
    settings.CONFIG = replace(settings.CONFIG, heartbeat=heartbeat, stale_after=stale, offline_after=offline)
    monkeypatch.setattr(calls, "_seen", signing.Seen())
    made = World(monkeypatch, heartbeat, offline)
    with connection.execute_wrapper(made.at_this_moment):
        yield made
    hearing.forget()


@pytest.mark.any_database
def test_f05_a_stall_of_everything_before_any_query_makes_no_node_worse(world: World) -> None:
    def stall() -> None:
        world.now += 2 * world.offline

    every = 1 if world.offline < 100 else 3  # `make prove` has every query
    assert stand_still_before_queries(world, stall, every=every) > 40


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="on SQLite nobody goes on beside one who stalls")
def test_f05_a_stall_of_one_while_others_go_on_makes_no_node_worse(world: World) -> None:
    """A third of the queries in each run, another one each time: the others' work meanwhile is hundreds of queries."""

    def stall() -> None:
        if not connection.in_atomic_block:  # what the others do would be part of it
            world.all_go_on(1.2 * world.offline)

    assert stand_still_before_queries(world, stall, every=3) > 40


def test_after_the_database_s_clock_was_set_back_the_dead_node_is_found_and_no_other(world: World) -> None:
    world.fresh()
    world.seen.clear()
    world.now -= 3600
    dead = world.machines.pop()
    until = world.now + world.offline - 2 * world.heartbeat
    while world.now < until:
        world.round()
    assert NodeState.OFFLINE not in world.seen
    for _ in range(4):
        world.round()
    assert {view.id for view in selectors.world().nodes if view.state is not NodeState.ONLINE} == {dead.node.id}


def stand_still_before_queries(world: World, stall: Callable[[], None], *, every: int = 1) -> int:
    """Before each, or each so many-th, beginning with any of the first; of how many."""
    world.fresh()
    world.round()
    queries, before = world.count, Replica.objects.get()
    for number in range(random.randint(1, every), queries + 1, every):
        world.fresh()
        world.seen.clear()
        world.stall_at, world.stall = number, stall
        world.round()
        world.round()
        assert set(world.seen) == {NodeState.ONLINE}, f"query {number} of {queries}"
    after = Replica.objects.get()
    assert (after.id, after.generation, after.state) == (before.id, before.generation, "ready")
    return queries


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="on SQLite the settings' timeout does it")
def test_nobody_waits_for_ever_for_a_process_that_was_stopped_while_it_held_a_lock() -> None:
    with connection.cursor() as cursor:
        for name, value in (("lock_timeout", "20s"), ("idle_in_transaction_session_timeout", "1min")):
            cursor.execute(f"SHOW {name}")
            assert cursor.fetchone() == (value,)
