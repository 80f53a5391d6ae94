"""cluster.domain.victims.Rights: whose room may be taken, where the plain answer would be wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.domain.board import Board
from cluster.domain.claims import CLAIM_FOR
from cluster.domain.place import Placer
from cluster.domain.plan import Keep, Release, Start, Stop
from cluster.domain.preempt import make_room
from cluster.domain.quotas import Ledger
from cluster.domain.reconcile import reconcile
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import Amount, Claim, ScopeView, Share, Standing, World
from cluster.domain.victims import Ground
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_model, a_node, a_profile, a_replica, applied, nodes_work
from tests.cluster.crowd import HIGH, LOW, MID, NOW, ORG, OTHER, carded, on, scoped, seek, sized, taken


@pytest.mark.parametrize(("others", "gives_way"), [(0, False), (1, True)])
def test_what_was_added_under_load_is_not_taken_once_it_is_all_that_its_model_has(others: int, gives_way: bool) -> None:
    """The base replica was lost: the other one serves in its stead, and its model would be the one that is short."""
    nodes = [a_node(name, memory=8 * GIB) for name in ("one", "two")]
    other = sized("other", 6, MID, base=1, most=2, standing=Standing(grown=1))
    model = sized("model", 6, MID, base=1)
    there = [on(nodes[0], other, slot=1, grown=True), *(on(nodes[1], other) for _ in range(others))]
    world = World(models=(other, model), nodes=tuple(nodes[: 1 + others]), replicas=tuple(there))
    found = seek(world, model)
    assert (found is not None) is gives_way
    if found is not None:
        assert [(item.replica.id, item.ground) for item in found.victims] == [(there[0].id, Ground.GROWN)]


def test_of_several_that_were_added_no_more_are_taken_than_are_beyond_the_base() -> None:
    node = a_node("one", memory=int(12.5 * GIB))
    other = sized("other", 4, MID, base=2, most=3, standing=Standing(grown=1))
    there = tuple(on(node, other, slot=slot, grown=True) for slot in range(3))
    small, large = sized("small", 4, MID, base=1), sized("large", 8, MID, base=1)
    world = World(models=(other, small, large), nodes=(node,), replicas=there)
    assert len(taken(seek(world, small))) == 1
    assert seek(world, large) is None


def test_a_lost_replica_is_nobodys_victim_though_a_node_of_it_is_there() -> None:
    """Its first node is offline: what it holds of the second would not come free."""
    off, node = (
        a_node("off", memory=8 * GIB, state=NodeState.OFFLINE, fabric="f"),
        a_node("on", memory=8 * GIB, fabric="f"),
    )
    wide, model = sized("wide", 6), sized("model", 6, HIGH)
    shares = tuple(replace(a_replica(wide, item).shares[0]) for item in (off, node))
    lost = a_replica(wide, off, shares=shares)
    assert seek(World(models=(wide, model), nodes=(off, node), replicas=(lost,)), model) is None


@pytest.mark.parametrize("age", [10.0, CLAIM_FOR])
def test_room_of_one_that_should_have_ended_long_ago_is_not_waited_for(age: float) -> None:
    one, two = a_node("one", memory=8 * GIB), a_node("two", memory=8 * GIB)
    equal, low, model = sized("equal", 6, HIGH), sized("low", 6), sized("model", 6, HIGH)
    leaves = on(one, equal, run=False, state=ReplicaState.DRAINING, state_since=NOW - age)
    there = on(two, low, in_flight=3)
    found = seek(World(models=(equal, low, model), nodes=(one, two), replicas=(leaves, there)), model)
    assert taken(found) == (set() if age < CLAIM_FOR else {there.id})


def test_of_a_scope_that_can_spare_one_the_one_that_helps_goes_though_another_is_smaller() -> None:
    """The scope holds 7 GiB and is guaranteed 2: the small one first would leave too little to take the large one, too."""
    node = a_node("one", memory=int(8.5 * GIB))
    small, large, model = (
        sized("small", 1, owner=ORG),
        sized("large", 5, owner=ORG),
        sized("model", 5, HIGH, owner=OTHER),
    )
    rest = sized("rest", 1, owner=ORG)
    there = (on(node, small), on(node, large), on(node, rest))
    world = World(models=(small, large, rest, model), nodes=(node,), replicas=there, scopes=scoped(2))
    assert taken(seek(world, model)) == {there[1].id}


def test_a_place_behind_many_that_quotas_forbid_is_found() -> None:
    """Each of 80 nodes has two replicas of a scope that can spare one, and two are needed; of the last node's nobody cares."""
    nodes = [a_node(f"n{number:03d}", memory=int(4.5 * GIB)) for number in range(81)]
    kept, free, model = sized("kept", 2, owner=ORG), sized("free", 2), sized("model", 4, HIGH, owner=OTHER)
    there = [on(node, kept, slot=number) for number, node in enumerate([*nodes[:80], *nodes[:80]])]
    there += [on(nodes[80], free, slot=slot) for slot in range(2)]
    world = World(models=(kept, free, model), nodes=tuple(nodes), replicas=tuple(there), scopes=scoped(2 * 160 - 2))
    assert taken(seek(world, model)) == {item.id for item in there[-2:]}
    assert seek(replace(world, models=(replace(kept, klass=LOW), model), replicas=tuple(there[:-2])), model) is None


def test_room_is_taken_back_only_where_what_it_leaves_is_of_the_kind_that_is_guaranteed() -> None:
    """A card of each class: the newer replica goes first, and would leave the card that nobody is guaranteed."""
    node = a_node("one", memory=64 * GIB, cards=(a_card("GPU-0"), a_card("GPU-1", klass="T4")))
    profile = a_profile("any", cards=1, card_memory=20 * GIB)
    lent = a_model("lent", klass=HIGH, owner=OTHER, base=2, profiles=(profile,))
    model = a_model("model", klass=MID, owner=ORG, profiles=(replace(profile, id="prof_model"),))
    there = (carded(node, lent, {"GPU-0": 20}), carded(node, lent, {"GPU-1": 20}, slot=1))
    scopes = (
        ScopeView(id=ORG, kind="organisation", name="one", guarantee=Amount(cards=(("L4", 1), ("T4", 0)))),
        ScopeView(id=OTHER, kind="organisation", name="two"),
    )
    found = seek(World(models=(lent, model), nodes=(node,), replicas=there, scopes=scopes), model)
    assert [(item.replica.id, item.ground) for item in (found.victims if found else ())] == [
        (there[0].id, Ground.BORROWED)
    ]


def test_within_its_limits_a_model_takes_no_room_where_it_has_failed_for_good() -> None:
    """A limit leaves it one class of cards: its failures on nodes of that class count all the same."""
    nodes = tuple(a_node(f"n{number}", memory=64 * GIB, cards=(a_card(f"L-{number}"),)) for number in range(2))
    other = a_node("t", memory=64 * GIB, cards=(a_card("T-0", klass="T4"),))
    low = a_model("low", klass=LOW, base=9, profiles=(a_profile("low", cards=1, card_memory=10 * GIB),))
    model = a_model(
        "model", klass=HIGH, base=2, owner=ORG, profiles=(a_profile("model", cards=1, card_memory=12 * GIB),)
    )
    failed = carded(nodes[0], model, {"L-0": 12}, state=ReplicaState.FAILED)
    there = (failed, carded(nodes[0], low, {"L-0": 10}), carded(nodes[1], low, {"L-1": 12}, slot=1, in_flight=2))
    scope = ScopeView(id=ORG, kind="organisation", name="one", limit=Amount(cards=(("T4", 0),)))
    world = World(models=(low, model), nodes=(*nodes, other), replicas=there, scopes=(scope,))
    board = Board(world)
    found = make_room(board, Placer(board), Ledger(board), model, NOW)
    assert found is not None
    assert [item.replica.id for item in found.victims] == [there[2].id]


def test_whoever_has_to_give_back_what_was_borrowed_comes_before_a_lower_class_with_its_next_place() -> None:
    """The critical one was looked at before its room was taken back; the standard one's turn comes after that."""
    one, two = a_node("one", memory=8 * GIB), a_node("two", memory=8 * GIB)
    lent = sized("lent", 6, HIGH, base=1, owner=OTHER, profiles=(a_profile("lent", memory=6 * GIB),))
    lower, asks = (
        sized("lower", 6, LOW, base=1),
        sized("asks", 6, MID, base=1, owner=ORG, profiles=(a_profile("asks", memory=6 * GIB, nodes=("one",)),)),
    )
    world = World(models=(lent, lower, asks), nodes=(one, two), replicas=(on(one, lent),), scopes=scoped(6))
    plan = reconcile(world, NOW)
    assert [op.for_model for op in plan.ops if isinstance(op, Stop)] == [asks.id]
    assert [op.model_id for op in plan.ops if isinstance(op, Start)] == [lent.id]
    assert reconcile(applied(world, plan), NOW + 5).ops == ()


def test_room_that_is_kept_for_a_lower_class_is_no_more_its_own_than_what_it_runs_on() -> None:
    """An opportunistic model waits for its room; a critical one is wanted now, and nobody else could give way."""
    node = a_node("one", memory=8 * GIB)
    equal, lower, model = sized("equal", 6, HIGH), sized("lower", 6, LOW, base=1), sized("model", 6, HIGH, base=1)
    leaves = on(node, equal, run=False, state=ReplicaState.DRAINING, state_since=NOW - 5)
    kept = Claim(model_id=lower.id, shares=(Share(node_id=node.id, memory=6 * GIB),), until=NOW + 300)
    world = World(models=(lower, model, replace(equal, base=0)), nodes=(node,), replicas=(leaves,), claims=(kept,))
    ops = reconcile(world, NOW).ops
    assert [(type(op), op.subject) for op in ops] == [(Release, lower.id), (Keep, model.id)]
    assert "which was kept for lower" in ops[0].reason
    assert reconcile(applied(world, reconcile(world, NOW)), NOW + 5).ops == ()
    even = replace(world, models=(replace(lower, klass=HIGH), model, replace(equal, base=0)))
    assert reconcile(even, NOW).ops == (), "of the same class it is its own"
    grown = replace(lower, klass=HIGH, base=1, most=2, standing=Standing(grown=1, quiet_since=NOW - 1))
    other = a_node("two", memory=8 * GIB)
    busier = replace(
        world, nodes=(node, other), models=(grown, model, replace(equal, base=0)), replicas=(leaves, on(other, grown))
    )
    assert [(type(op), op.subject) for op in reconcile(busier, NOW).ops] == [(Release, lower.id), (Keep, model.id)]


def test_room_that_was_taken_back_is_not_taken_again_by_who_had_borrowed_it() -> None:
    """The opportunistic one is within its guarantee, the critical one borrows: it does not get back what is kept."""
    node = a_node("one", memory=8 * GIB)
    lent, asks = sized("lent", 6, HIGH, base=1, owner=OTHER), sized("asks", 6, LOW, base=1, owner=ORG)
    world = World(models=(lent, asks), nodes=(node,), replicas=(on(node, lent),), scopes=scoped(6))
    for step in range(6):
        plan = reconcile(world, NOW + 5 * step)
        assert not [op for op in plan.ops if isinstance(op, Release)]
        world = nodes_work(applied(world, plan))
    assert [item.model_id for item in world.replicas] == [asks.id]
