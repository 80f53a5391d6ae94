"""cluster.domain.reconcile: two models on demand that have room for one of them take turns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cluster.domain.board import Board
from cluster.domain.plan import Keep, Start, Stop, recheck
from cluster.domain.reconcile import reconcile
from cluster.domain.states import ReplicaState
from cluster.domain.types import Claim, Klass, Share, Standing, World
from cluster.domain.victims import TURN
from cluster.domain.waits import WAITING_FOR_TURN
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_model, a_node, a_profile, a_replica

NOW = 1000.0
NODE = a_node(memory=8 * GIB)


def on_demand(name: str, **standing: Any) -> Any:
    standing = {"asked_at": NOW - 60, "used_at": NOW, **standing}
    profiles = (a_profile(f"{name}-cpu", memory=5 * GIB),)
    return a_model(name, base=0, most=1, profiles=profiles, standing=Standing(**standing))


A, B = on_demand("a"), on_demand("b", asked_at=NOW)


def held_by_a(state: ReplicaState = ReplicaState.READY, since: float = NOW) -> World:
    return World(
        models=(A, B), nodes=(NODE,), replicas=(a_replica(A, NODE, state=state, state_since=since, in_flight=3),)
    )


def codes(world: World, now: float) -> list[str]:
    return [wait.code for wait in reconcile(world, now).waits if wait.model_id == B.id]


def test_f38_who_waits_for_a_model_goes_on_waiting_while_another_has_its_turn() -> None:
    assert codes(held_by_a(), NOW + TURN - 1) == [WAITING_FOR_TURN]


def test_f38_after_its_turn_the_other_finishes_its_requests_and_gives_way() -> None:
    plan = reconcile(held_by_a(), NOW + TURN)
    assert [type(op) for op in plan.ops][:2] == [Stop, Keep]
    assert not [op for op in plan.ops if isinstance(op, Start)]


def test_while_the_other_still_loads_for_somebody_it_is_waited_for_too() -> None:
    assert codes(held_by_a(ReplicaState.STARTING), NOW + 5) == [WAITING_FOR_TURN]


def test_while_room_is_kept_for_the_other_it_is_waited_for_too() -> None:
    """A has just given way to B, whose room is not free yet, and is asked for again."""
    leaves = a_replica(A, NODE, run=False, state=ReplicaState.DRAINING)
    kept = Claim(model_id=B.id, shares=(Share(node_id=NODE.id, memory=5 * GIB),), until=NOW + 300)
    plan = reconcile(World(models=(A, B), nodes=(NODE,), replicas=(leaves,), claims=(kept,)), NOW)
    assert [wait.code for wait in plan.waits if wait.model_id == A.id] == [WAITING_FOR_TURN]
    assert not plan.ops


def test_while_the_other_is_being_placed_it_is_waited_for_too() -> None:
    """What B waited for has just come free, and this very plan starts it."""
    first = replace(B, standing=replace(B.standing, asked_at=NOW - 90))
    plan = reconcile(World(models=(A, first), nodes=(NODE,)), NOW)
    assert [op.model_id for op in plan.ops if isinstance(op, Start)] == [B.id]
    assert [wait.code for wait in plan.waits if wait.model_id == A.id] == [WAITING_FOR_TURN]


def test_where_nobody_will_give_way_there_is_simply_no_room() -> None:
    always = a_model("always", profiles=(a_profile("always-cpu", memory=5 * GIB),))
    world = World(models=(always, B), nodes=(NODE,), replicas=(a_replica(always, NODE, state_since=0.0),))
    (code,) = codes(world, NOW + TURN - 1)
    assert code.startswith("no_")


def test_f39_a_load_that_has_come_to_its_end_meanwhile_is_not_given_up() -> None:
    """Nobody waited for A when it was decided; when that is written, A is ready."""
    idle = replace(A, standing=replace(A.standing, used_at=NOW - 60))
    loading = a_replica(idle, NODE, state=ReplicaState.STARTING, state_since=NOW - 50)
    world = World(models=(idle, B), nodes=(NODE,), replicas=(loading,))
    (stop,) = [op for op in reconcile(world, NOW).ops if isinstance(op, Stop)]
    assert recheck(stop, Board(world)) == ""
    ready = replace(world, replicas=(replace(loading, state=ReplicaState.READY, state_since=NOW + 1),))
    assert recheck(stop, Board(ready)) == "it has become ready, and its turn has only begun"
    asked = replace(idle, standing=replace(idle.standing, used_at=NOW))
    assert recheck(stop, Board(replace(world, models=(asked, B)))) == "somebody waits for it again"
    higher = replace(ready, models=(idle, replace(B, klass=Klass.CRITICAL)))
    assert recheck(stop, Board(higher)) == "", "a higher class need not wait for a turn"
