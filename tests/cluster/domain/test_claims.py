"""Room that is taken and kept, from the plan to its use: what it is checked against, and when it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.domain.board import Board
from cluster.domain.claims import CLAIM_FOR, SETTLE, ended
from cluster.domain.plan import Keep, Plan, Release, Remove, Start, Stop, recheck
from cluster.domain.reconcile import reconcile
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import Claim, NodeView, ReplicaView, Share, Standing, World
from cluster.domain.victims import GRACE
from llmgw_site.lib.units import GIB
from tests.cluster.builders import (
    READY,
    a_card,
    a_model,
    a_node,
    a_profile,
    applied,
    nodes_work,
    with_replica,
)
from tests.cluster.crowd import HIGH, LOW, NOW, ORG, carded, on, scoped, sized

# --- the plan, and what it is checked against


def preempting() -> tuple[World, Plan, ReplicaView]:
    node = a_node("one", memory=8 * GIB)
    low, model = sized("low", 6, base=1), sized("model", 6, HIGH, base=1)
    world = World(models=(low, model), nodes=(node,), replicas=(on(node, low, state_since=NOW - 900),))
    return world, reconcile(world, NOW), world.replicas[0]


def test_a_plan_stops_the_victim_keeps_the_room_and_tells_the_victims_model_why() -> None:
    _, plan, there = preempting()
    stop, keep = plan.ops
    assert isinstance(stop, Stop)
    assert isinstance(keep, Keep)
    assert (stop.replica_id, stop.for_model, stop.grace, stop.busy) == (there.id, "mod_model", GRACE, False)
    assert keep.claim.until == NOW + CLAIM_FOR
    codes = {wait.model_id: wait.code for wait in reversed(plan.waits)}
    assert codes == {"mod_low": "gave_way", "mod_model": "no_memory_now"}


def test_the_preempted_model_is_held_back_until_the_room_is_used_and_returns_later() -> None:
    world, plan, there = preempting()
    world = applied(world, plan)
    for _ in range(3):  # it drains: nothing else happens, least of all a second victim or a return
        assert reconcile(world, NOW + 10).ops == ()
    world = with_replica(world, there.id, state=ReplicaState.STOPPED)
    plan = reconcile(world, NOW + 20)
    assert [(type(op), op.subject) for op in plan.ops] == [(Remove, there.id), (Start, "mod_model")]
    world = nodes_work(nodes_work(applied(world, plan)))
    assert world.claims == ()
    assert reconcile(world, NOW + 30).ops == ()
    world = replace(world, models=tuple(replace(m, base=0) if m.id == "mod_model" else m for m in world.models))
    world = nodes_work(applied(world, reconcile(world, NOW + 40)))
    plan = reconcile(world, NOW + 50)
    assert [op.model_id for op in plan.ops if isinstance(op, Start)] == ["mod_low"]


def test_f41_memory_that_comes_back_late_is_waited_for() -> None:
    """The engine has ended, its card's memory is still held by nobody we know: no second victim, no start, no failure."""
    card = a_card("GPU-0")
    node, other = (
        a_node("one", memory=64 * GIB, cards=(card,)),
        a_node("two", memory=64 * GIB, cards=(a_card("GPU-1"),)),
    )
    low = a_model("low", klass=LOW, base=2, profiles=(a_profile("low", cards=1, card_memory=20 * GIB),))
    model = a_model("model", klass=HIGH, profiles=(a_profile("model", cards=1, card_memory=20 * GIB),))
    there = (carded(node, low, {"GPU-0": 20}, slot=1), carded(other, low, {"GPU-1": 20}, in_flight=2))
    world = World(models=(low, model), nodes=(node, other), replicas=there)
    world = applied(world, reconcile(world, NOW))
    late = replace(node, cards=(replace(card, foreign=20 * GIB),))
    world = replace(with_replica(world, there[0].id, state=ReplicaState.STOPPED), nodes=(late, other))
    plan = reconcile(world, NOW + 5)
    assert [type(op) for op in plan.ops] == [Remove, Keep]  # for half a minute from now on
    assert [wait.code for wait in plan.waits if wait.model_id == model.id] == ["no_card_memory_now"]
    world = replace(applied(world, plan), nodes=(node, other))
    plan = reconcile(world, NOW + 15)
    assert [(op.model_id, op.node_id) for op in plan.ops if isinstance(op, Start)] == [(model.id, node.id)]


def test_room_that_is_not_free_though_all_in_its_way_have_gone_is_waited_for_half_a_minute_and_then_sought_elsewhere() -> (
    None
):
    """Another program took the card while the victim ended: its claim does not keep the model away from other room."""
    node, other = (
        a_node("one", memory=64 * GIB, cards=(a_card("GPU-0"),)),
        a_node("two", memory=64 * GIB, cards=(a_card("GPU-1"),)),
    )
    low = a_model("low", klass=LOW, base=2, profiles=(a_profile("low", cards=1, card_memory=20 * GIB),))
    model = a_model("model", klass=HIGH, profiles=(a_profile("model", cards=1, card_memory=20 * GIB),))
    there = (carded(node, low, {"GPU-0": 20}, slot=1), carded(other, low, {"GPU-1": 20}, in_flight=2))
    world = World(models=(low, model), nodes=(node, other), replicas=there)
    world = applied(world, reconcile(world, NOW))
    assert [claim.until for claim in world.claims] == [NOW + CLAIM_FOR]
    world = with_replica(world, there[0].id, state=ReplicaState.DRAINING)
    world = applied(world, reconcile(world, NOW + 29))
    assert [claim.until for claim in world.claims] == [NOW + CLAIM_FOR]  # while it leaves, its time is not cut
    taken = replace(node, cards=(replace(node.cards[0], foreign=20 * GIB),))
    world = replace(with_replica(world, there[0].id, state=ReplicaState.STOPPED), nodes=(taken, other))
    world = applied(world, reconcile(world, NOW + 31))
    assert [claim.until for claim in world.claims] == [NOW + 31 + SETTLE]
    for second in range(32, 61, 2):
        assert reconcile(world, NOW + second).ops == ()  # said once
    plan = reconcile(world, NOW + 31 + SETTLE)
    assert [type(op) for op in plan.ops] == [Release, Stop, Keep]
    assert plan.ops[1].subject == there[1].id


STOP_CHECKS = [
    ({}, {}, {}, ""),
    ({"klass": HIGH}, {}, {}, "may not be taken"),
    ({}, {"base": 0}, {}, "not wanted any more"),
    ({}, {"enabled": False}, {}, "not wanted any more"),
    ({}, {"klass": LOW}, {}, "may not be taken"),
    ({}, {}, {"in_flight": 1}, "in use again"),
    ({}, {}, {"run": False}, "being stopped already"),
]


@pytest.mark.parametrize(("low", "model", "replica", "why"), STOP_CHECKS)
def test_a_stop_is_checked_against_the_world_as_it_is_then(
    low: dict[str, Any], model: dict[str, Any], replica: dict[str, Any], why: str
) -> None:
    world, plan, there = preempting()
    now = with_replica(world, there.id, **replica)
    changed = {"mod_low": low, "mod_model": model}
    now = replace(now, models=tuple(replace(item, **changed[item.id]) for item in now.models))
    found = recheck(plan.ops[0], Board(now))
    assert (found == "") if not why else (why in found), found


def test_a_guarantee_that_was_set_meanwhile_protects() -> None:
    world, plan, _ = preempting()
    models = tuple(replace(item, owner=ORG) if item.id == "mod_low" else item for item in world.models)
    assert "may not be taken" in recheck(plan.ops[0], Board(replace(world, models=models, scopes=scoped(6))))


def test_a_second_planner_takes_no_second_victim() -> None:
    one, two = a_node("one", memory=8 * GIB), a_node("two", memory=8 * GIB)
    low, model = sized("low", 6, base=2), sized("model", 6, HIGH, base=1)
    there = (on(one, low), on(two, low, slot=1))
    world = World(models=(low, model), nodes=(one, two), replicas=there)
    plan = reconcile(world, NOW)
    board = Board(applied(world, plan))
    (chosen,) = {op.replica_id for op in plan.ops if isinstance(op, Stop)}
    (other,) = {item.id for item in there} - {chosen}
    found = recheck(Stop(replica_id=other, reason="", for_model=model.id, busy=True), board)
    assert "kept already" in found


def test_room_is_not_kept_where_a_victim_was_not_stopped_after_all() -> None:
    world, plan, _ = preempting()
    assert "others hold it again" in recheck(plan.ops[1], Board(world))


@pytest.mark.parametrize(
    ("changes", "later", "why"),
    [
        ({}, 0.0, ""),
        ({}, CLAIM_FOR - 1, ""),
        ({}, CLAIM_FOR, "its time is over"),
        ({"nodes": ()}, 0.0, "was removed"),
        ({"nodes": (a_node("one", memory=8 * GIB, state=NodeState.OFFLINE),)}, 0.0, "offline"),
        ({"nodes": (a_node("one", memory=8 * GIB, maintenance="drained"),)}, 0.0, "drained"),
        ({"nodes": (a_node("one", memory=4 * GIB),)}, 0.0, "others hold it"),
        ({"models": ()}, 0.0, "wants no further replica"),
    ],
)
def test_room_is_kept_no_longer(changes: dict[str, Any], later: float, why: str) -> None:
    world, plan, _ = preempting()
    board = Board(replace(applied(world, plan), **changes))
    (claim,) = board.claims
    found = ended(board, claim, NOW + later, enough=False)
    assert (found == "") if not why else (why in found), found
    assert ended(board, claim, NOW, enough=True)


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (a_node(cards=(a_card("GPU-0"),)), ""),
        (a_node(cards=(a_card("GPU-0", foreign=24 * GIB),)), ""),  # memory that comes back late
        (a_node(cards=(a_card("GPU-0"), a_card("GPU-1", problem="Xid 79"))), ""),
        (a_node(cards=(a_card("GPU-0", problem="Xid 79"),)), "card GPU-0 of node one is out of use: Xid 79"),
        (a_node(cards=(a_card("GPU-0", maintenance="cordoned"),)), "card GPU-0 of node one is cordoned"),
        (a_node(cards=(a_card("GPU-1", memory=8 * GIB),)), "card GPU-0 of node one is not there any more"),
        (a_node(cards=(a_card("GPU-0", memory=8 * GIB),)), "others hold it again on node one"),
        (
            a_node(cards=(a_card("GPU-0"),), modules=frozenset({"router"})),
            "node one does not run the module inference any more",
        ),
    ],
)
def test_f68_room_of_a_card_that_is_out_is_kept_no_longer_and_others_are_asked(node: NodeView, why: str) -> None:
    model = a_model("model", klass=HIGH, profiles=(a_profile("model", cards=1, card_memory=20 * GIB),))
    share = Share(node_id=node.id, memory=GIB, cards=(("GPU-0", 20 * GIB),))
    claim = Claim(model_id=model.id, shares=(share,), until=NOW + CLAIM_FOR)
    low = a_model("low", klass=LOW, profiles=(a_profile("low", cards=1, card_memory=20 * GIB),))
    other = a_node("two", cards=(a_card("GPU-2"),))
    world = World(
        models=(low, model), nodes=(node, other), replicas=(carded(other, low, {"GPU-2": 20}),), claims=(claim,)
    )
    assert ended(Board(world), claim, NOW, enough=False) == why
    ops = reconcile(world, NOW).ops
    assert [op.reason for op in ops if isinstance(op, Release)] == ([why] if why else [])
    if why:
        assert [(op.replica_id, op.for_model) for op in ops if isinstance(op, Stop)] == [
            (world.replicas[0].id, model.id)
        ]


def test_a_claim_that_a_victim_took_back_is_released_and_others_are_asked() -> None:
    world, plan, there = preempting()
    world = applied(world, plan)
    other = a_node("two", memory=8 * GIB)
    low = next(item for item in world.models if item.id == "mod_low")
    world = replace(with_replica(world, there.id, run=True, in_flight=2), nodes=(*world.nodes, other))
    world = replace(world, replicas=(*world.replicas, on(other, low, slot=1)))
    ops = reconcile(world, NOW + 5).ops
    assert isinstance(ops[0], Release)
    assert [op.replica_id for op in ops if isinstance(op, Stop) and op.for_model] == [world.replicas[1].id]


def test_a_restart_borrows_the_room_of_a_lower_class_and_returns_it() -> None:
    node = a_node("one", memory=int(12.5 * GIB))
    low, model = sized("low", 6, base=1), sized("model", 6, HIGH, base=1)
    old = on(node, model)
    model = replace(model, standing=Standing(restarting=(old.name_now,)))
    world = World(models=(low, model), nodes=(node,), replicas=(on(node, low), old))
    seen, served = [], []
    for step in range(12):
        plan = reconcile(world, NOW + 5 * step)
        seen += [(type(op).__name__, op.model_id if isinstance(op, Start) else "") for op in plan.ops]
        world = nodes_work(applied(world, plan))
        served.append(any(item.run and item.state is READY for item in world.of_model(model.id)))
    assert all(served), "the old one serves until the new one does"
    done = [item for item in seen if item[0] in ("Stop", "Start")]
    assert done == [("Stop", ""), ("Start", "mod_model"), ("Stop", ""), ("Start", "mod_low")]
    assert sorted(item.model_id for item in world.replicas) == ["mod_low", "mod_model"]
    assert old.id not in {item.id for item in world.replicas}
    assert world.claims == ()
