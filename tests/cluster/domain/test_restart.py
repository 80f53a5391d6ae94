"""Restarts by hand: a new one beside the old, in its place where nothing else fits, or given up and said so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.domain.board import Board
from cluster.domain.plan import Remember, Renew, Start, Stop
from cluster.domain.reconcile import reconcile
from cluster.domain.restart import restarted
from cluster.domain.states import ReplicaState
from cluster.domain.types import Klass, ModelView, NodeView, ReplicaView, Standing, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_model, a_node, a_replica, applied, nodes_work

T = 1_000_000.0
READY = ReplicaState.READY


def asked(model: ModelView, *replicas: ReplicaView, in_place: bool = False) -> ModelView:
    return replace(model, standing=Standing(restarting=tuple(item.name_now for item in replicas), in_place=in_place))


def a_world(model: ModelView, node: NodeView, *replicas: ReplicaView, **fields: Any) -> World:
    return World(models=(asked(model, *replicas, **fields),), nodes=(node,), replicas=replicas)


def settle(world: World, *, ticks: int = 12, least: int = 0) -> World:
    """Ticks until nothing changes; at no time fewer ready replicas than `least`."""
    for tick in range(ticks):
        world = nodes_work(applied(world, reconcile(world, T + 2 * tick)))
        assert sum(item.run and item.state is READY for item in world.replicas) >= least
    assert reconcile(world, T + 100).ops == ()
    return world


def test_a_new_one_is_started_beside_and_then_the_old_one_stops() -> None:
    model, node = a_model(), a_node()
    old = a_replica(model, node)
    world = settle(a_world(model, node, old), least=1)
    assert [item.id for item in world.replicas] != [old.id]
    assert [item.state for item in world.replicas] == [READY]
    assert world.models[0].standing == Standing()


def test_several_are_restarted_one_after_the_other_and_all_of_them_serve_meanwhile() -> None:
    model, node = a_model(base=3), a_node(memory=32 * GIB)
    old = [a_replica(model, node, slot=slot) for slot in range(3)]
    world = settle(a_world(model, node, *old), ticks=30, least=3)
    assert not {item.id for item in world.replicas} & {item.id for item in old}
    assert len(world.replicas) == 3


def test_where_only_the_old_one_is_in_the_way_it_starts_anew_in_its_place() -> None:
    model = a_model()
    node = a_node(memory=2 * GIB, memory_available=GIB)
    old = a_replica(model, node)
    world = a_world(model, node, old)
    (op,) = reconcile(world, T).ops
    assert isinstance(op, Renew)
    assert "there is no room for a second replica beside it" in op.reason
    world = settle(replace(world, nodes=(replace(node, memory_available=2 * GIB),)))
    assert [(item.id, item.generation, item.state) for item in world.replicas] == [(old.id, 2, READY)]
    assert world.models[0].standing == Standing()


def test_where_nothing_would_fit_even_then_it_is_given_up_and_the_old_one_runs_on() -> None:
    model = a_model()
    node = a_node(maintenance="cordoned", maintenance_why="a fan")
    old = a_replica(model, node)
    world = a_world(model, node, old)
    (op,) = reconcile(world, T).ops
    assert isinstance(op, Remember)
    assert f"the restart of {old.id} is given up, it runs on" in op.reason
    assert "a fan" in op.reason
    world = settle(world, least=1)
    assert [(item.id, item.generation, item.run) for item in world.replicas] == [(old.id, 1, True)]
    assert world.models[0].standing == Standing()


def test_in_place_it_stops_first_though_there_is_room() -> None:
    model, node = a_model(), a_node()
    old = a_replica(model, node)
    world = a_world(model, node, old, in_place=True)
    assert [type(op) for op in reconcile(world, T).ops] == [Renew]
    world = settle(world)
    assert [(item.id, item.generation) for item in world.replicas] == [(old.id, 2)]
    assert world.models[0].standing == Standing()


def test_in_place_one_after_the_other() -> None:
    model, node = a_model(base=2), a_node()
    old = [a_replica(model, node, slot=slot) for slot in range(2)]
    world = settle(a_world(model, node, *old, in_place=True), least=1)
    assert sorted((item.id, item.generation) for item in world.replicas) == sorted((item.id, 2) for item in old)


def test_one_that_failed_for_good_is_started_anew_when_asked() -> None:
    model, node = a_model(), a_node()
    old = a_replica(model, node, state=ReplicaState.FAILED, code="engine_args_refused")
    world = a_world(model, node, old)
    ops = reconcile(world, T).ops
    assert [type(op) for op in ops] == [Renew]
    world = settle(world)
    assert [(item.id, item.generation, item.state) for item in world.replicas] == [(old.id, 2, READY)]


def test_one_that_keeps_failing_is_started_anew_at_once_when_asked() -> None:
    model, node = a_model(), a_node()
    old = a_replica(model, node, state=ReplicaState.BACKOFF, attempt=3, code="start_timeout")
    assert [type(op) for op in reconcile(a_world(model, node, old), T).ops] == [Remember, Renew]


def test_a_restart_is_done_when_its_replicas_are_gone_stopped_or_new() -> None:
    model, node = a_model(base=3), a_node()
    there = [a_replica(model, node, slot=slot) for slot in range(3)]
    model = asked(model, *there)
    now = [replace(there[0], generation=2), replace(there[1], run=False), there[2]]
    board = Board(World(models=(model,), nodes=(node,), replicas=tuple(now)))
    assert restarted(board, model) == (Standing(restarting=(there[2].name_now,)), "")
    board = Board(World(models=(model,), nodes=(node,), replicas=tuple(now[:2])))
    assert restarted(board, model) == (Standing(), "the restart is done")


def test_the_restart_of_a_model_that_is_disabled_is_forgotten() -> None:
    model, node = a_model(enabled=False), a_node()
    replica = a_replica(model, node)
    model = asked(model, replica)
    board = Board(World(models=(model,), nodes=(node,), replicas=(replica,)))
    assert restarted(board, model) == (Standing(), "")


def test_a_plan_begins_with_one_start_only() -> None:
    model, node = a_model(base=2), a_node()
    old = [a_replica(model, node, slot=slot) for slot in range(2)]
    ops = reconcile(a_world(model, node, *old), T).ops
    assert [type(op) for op in ops] == [Start]
    assert not any(isinstance(op, Stop) for op in ops)


def test_a_restart_borrows_room_of_a_lower_class_and_returns_it() -> None:
    """Room for two replicas: the model's own and a less important one's, which is back when the restart is done."""
    model, node = a_model("main"), a_node(memory=5 * GIB // 2)
    other = a_model("other", klass=Klass.OPPORTUNISTIC)
    old, borrowed = a_replica(model, node), a_replica(other, node)
    world = World(models=(asked(model, old), other), nodes=(node,), replicas=(old, borrowed))
    seen: set[str] = set()
    for tick in range(30):
        plan = reconcile(world, T + 2 * tick)
        seen |= {op.replica_id for op in plan.ops if isinstance(op, Stop) and op.for_model == model.id}
        world = nodes_work(applied(world, plan))
        assert any(item.model_id == model.id and item.run and item.state is READY for item in world.replicas)
    assert seen == {borrowed.id}
    by_model = {item.model_id: item for item in world.replicas}
    assert len(world.replicas) == 2
    assert by_model[model.id].id != old.id
    assert by_model[other.id].id != borrowed.id
    assert {item.state for item in world.replicas} == {READY}
    assert world.claims == ()
    assert world.models[0].standing == Standing()


@pytest.mark.parametrize("state", [ReplicaState.BACKOFF, ReplicaState.STARTING])
def test_a_successor_that_is_not_ready_yet_makes_way_for_another_when_asked_and_the_old_one_goes_when_it_is(
    state: ReplicaState,
) -> None:
    model, node = a_model(), a_node()
    after = replace(model, profiles=(replace(model.profiles[0], digest="changed"),))
    old = a_replica(model, node)
    new = a_replica(after, node, slot=1, state=state, attempt=2, code="engine_start_failed")
    world = World(models=(asked(after, new),), nodes=(node,), replicas=(old, new))
    ops = [op for op in reconcile(world, T).ops if not isinstance(op, Remember)]
    assert [(type(op), op.subject) for op in ops] == [(Stop, new.id), (Start, model.id)]
    world = settle(world, least=1)
    assert [(item.id != new.id, item.digest) for item in world.replicas] == [(True, "changed")]


def test_of_two_that_are_ready_and_to_be_replaced_the_outdated_one_goes_first() -> None:
    model, node = a_model(), a_node()
    after = replace(model, profiles=(replace(model.profiles[0], digest="changed"),))
    old, new = a_replica(model, node), a_replica(after, node, slot=1)
    world = World(models=(asked(after, old, new),), nodes=(node,), replicas=(old, new))
    stops = [op.replica_id for op in reconcile(world, T).ops if isinstance(op, Stop)]
    assert stops == [old.id]
    world = settle(world, least=1)
    assert [item.digest for item in world.replicas] == ["changed"]
    assert not {item.id for item in world.replicas} & {old.id, new.id}
