"""cluster.domain.victims: within a class, on demand, over quotas, by the numbers in their docstrings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.domain.board import Board
from cluster.domain.claims import CLAIM_FOR
from cluster.domain.plan import Keep, Remember, Remove, Start, Stop
from cluster.domain.reconcile import reconcile
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import (
    Amount,
    ScopeView,
    Standing,
    World,
)
from cluster.domain.victims import GRACE, TURN, Ground, stuck
from llmgw_site.lib.units import GIB
from tests.cluster.builders import (
    READY,
    a_card,
    a_model,
    a_node,
    a_profile,
    a_replica,
    applied,
    nodes_work,
)
from tests.cluster.crowd import HIGH, LOW, MID, NOW, ORG, OTHER, carded, demand, on, scoped, seek, sized, taken

# --- what leaves


@pytest.mark.parametrize(
    ("state", "since", "node", "shares", "expected"),
    [
        (ReplicaState.DRAINING, NOW - CLAIM_FOR, NodeState.ONLINE, 1, True),
        (ReplicaState.DRAINING, NOW - CLAIM_FOR + 1, NodeState.ONLINE, 1, False),
        (ReplicaState.DRAINING, 0.0, NodeState.ONLINE, 1, False),  # since when is not known
        (ReplicaState.STARTING, 1.0, NodeState.ONLINE, 1, False),  # since then it loads; told to stop it was just now
        (ReplicaState.PENDING, 1.0, NodeState.ONLINE, 1, False),
        (READY, 1.0, NodeState.ONLINE, 1, False),
        (ReplicaState.DRAINING, NOW, NodeState.OFFLINE, 1, True),
        (ReplicaState.DRAINING, NOW, NodeState.OFFLINE, 2, False),  # the other node's room comes
    ],
)
def test_room_that_may_never_come_is_not_waited_for(
    state: ReplicaState, since: float, node: NodeState, shares: int, expected: bool
) -> None:
    model = a_model("m")
    there = [a_node("one", state=node), a_node("two")]
    leaving = a_replica(model, there[0], run=False, state=state, state_since=since)
    leaving = replace(leaving, shares=tuple(replace(leaving.shares[0], node_id=item.id) for item in there[:shares]))
    board = Board(World(models=(model,), nodes=tuple(there), replicas=(leaving,)))
    assert stuck(board, leaving, NOW) is expected


# --- within a class


def test_within_a_class_what_another_grew_into_goes_to_one_below_its_base() -> None:
    one, two = a_node("one", memory=8 * GIB), a_node("two", memory=8 * GIB)
    other = sized("other", 6, MID, base=1, most=2, standing=Standing(grown=1))
    model = sized("model", 6, MID, base=1, most=3)
    there = (on(one, other), on(two, other, slot=1, grown=True, in_flight=3))
    found = seek(World(models=(other, model), nodes=(one, two), replicas=there), model)
    assert found is not None
    assert [(item.replica.id, item.ground, item.grace) for item in found.victims] == [
        (there[1].id, Ground.GROWN, GRACE)
    ]


def test_within_a_class_load_takes_nothing() -> None:
    """It has its base, and only wants more because of load."""
    one, two, three = (a_node(name, memory=8 * GIB) for name in ("one", "two", "three"))
    other = sized("other", 6, MID, base=1, most=2, standing=Standing(grown=1))
    model = sized("model", 6, MID, base=1, most=3, standing=Standing(grown=1))
    there = (on(one, other), on(two, other, slot=1, grown=True), on(three, model))
    assert seek(World(models=(other, model), nodes=(one, two, three), replicas=there), model) is None


@pytest.mark.parametrize(
    ("state", "since", "used", "gives_way"),
    [
        (READY, TURN, 0.0, True),
        (READY, TURN - 1, 0.0, False),
        (ReplicaState.STARTING, 300.0, 1.0, False),
        (ReplicaState.STARTING, 300.0, 20.0, True),
        (ReplicaState.PENDING, 5.0, 20.0, True),
        (ReplicaState.BACKOFF, 5.0, 20.0, True),
        (ReplicaState.FAILED, 0.0, 0.0, True),
    ],
)
def test_f38_f39_one_on_demand_gives_way_after_its_turn_or_when_nobody_waits(
    state: ReplicaState, since: float, used: float, gives_way: bool
) -> None:
    node = a_node(memory=8 * GIB)
    other = demand("other", asked_at=NOW - 400, used_at=NOW - used)
    model = demand("model", asked_at=NOW, used_at=NOW)
    there = on(node, other, state=state, state_since=NOW - since)
    found = seek(World(models=(other, model), nodes=(node,), replicas=(there,)), model)
    assert (found is not None) is gives_way
    if found is not None:
        assert [(item.ground, item.grace) for item in found.victims] == [(Ground.TURN, None)], (
            "it finishes its requests"
        )


def test_one_on_demand_takes_nothing_of_a_model_that_always_runs() -> None:
    node = a_node(memory=8 * GIB)
    other, model = sized("other", 6, LOW), demand("model", asked_at=NOW, used_at=NOW)
    world = World(models=(other, model), nodes=(node,), replicas=(on(node, other),))
    assert seek(world, model) is None


def test_f38_two_on_demand_take_turns_and_neither_starves() -> None:
    """A has requests without end, B is asked for once; one node, room for one. Requests for a model at rest ask for it."""
    node = a_node(memory=8 * GIB)
    a, b = demand("a", asked_at=NOW - 50, used_at=NOW), demand("b")
    world = World(models=(a, b), nodes=(node,), replicas=(on(node, a, state_since=NOW - 50, in_flight=4),))
    now, served = NOW, {"mod_a": 0.0, "mod_b": 0.0}
    for step in range(120):
        now += 5
        models = []
        for model in world.models:
            wanted = model.id == "mod_a" or step < 30
            standing = model.standing
            if wanted:
                standing = replace(standing, asked_at=standing.asked_at or now, used_at=now)
            models.append(replace(model, standing=standing))
        busy = {"mod_a": 4, "mod_b": 1 if step < 30 else 0}
        replicas = []
        for item in world.replicas:
            ready = item.state is READY and item.run
            served[item.model_id] += 5 if ready else 0
            replicas.append(replace(item, in_flight=busy[item.model_id] if ready else 0))
        world = replace(world, models=tuple(models), replicas=tuple(replicas))
        after = applied(world, reconcile(world, now))
        before = {item.id: item.state for item in after.replicas}
        world = nodes_work(after)
        world = replace(
            world,
            replicas=tuple(
                replace(item, state_since=now) if before[item.id] is not item.state else item for item in world.replicas
            ),
        )
    assert served["mod_b"] >= TURN, "B had its turn though A was never idle"
    assert served["mod_a"] >= 10 * TURN, "A came back, and stays when nobody asks for B"
    assert [item.model_id for item in world.replicas if item.run] == ["mod_a"]


def test_f39_a_load_that_nobody_waits_for_is_given_up_and_not_begun_again() -> None:
    node = a_node(memory=8 * GIB)
    a = demand("a", asked_at=NOW - 100, used_at=NOW - 60)
    b = demand("b", asked_at=NOW, used_at=NOW)
    loading = on(node, a, state=ReplicaState.STARTING, state_since=NOW - 90)
    world = World(models=(a, b), nodes=(node,), replicas=(loading,))
    plan = reconcile(world, NOW)
    assert [type(op) for op in plan.ops] == [Stop, Keep, Remember]
    world = applied(world, plan)
    first = world.model("mod_a")
    assert first is not None
    assert first.standing.asked_at is None
    world = nodes_work(world)
    plan = reconcile(world, NOW + 5)
    assert [type(op) for op in plan.ops] == [Remove, Start]
    assert [op.model_id for op in plan.ops if isinstance(op, Start)] == ["mod_b"]


def test_of_three_on_demand_whoever_was_asked_for_first_comes_first() -> None:
    node = a_node(memory=8 * GIB)
    a, b, c = (demand(name, asked_at=NOW - age, used_at=NOW) for name, age in (("a", 10), ("b", 500), ("c", 40)))
    world = World(models=(a, b, c), nodes=(node,), replicas=(on(node, b, state_since=NOW - 60),))
    assert [op.for_model for op in reconcile(world, NOW).ops if isinstance(op, Stop)] == ["mod_c"]


# --- quotas


@pytest.mark.parametrize(("guarantee", "gives_way"), [(6, False), (12, False), (5, False), (0, True)])
def test_what_is_within_its_owners_guarantee_is_not_taken_for_another(guarantee: int, gives_way: bool) -> None:
    node = a_node(memory=8 * GIB)
    low, model = sized("low", 6, owner=ORG), sized("model", 6, HIGH, owner=OTHER)
    world = World(models=(low, model), nodes=(node,), replicas=(on(node, low),), scopes=scoped(guarantee))
    # of a guarantee of 5 GiB, the scope would be left with less than that if the one that holds 6 gave way
    assert (seek(world, model) is not None) is gives_way


def test_of_two_the_one_beyond_the_guarantee_goes_and_the_other_stays() -> None:
    node = a_node(memory=int(12.5 * GIB))
    low, model = sized("low", 6, owner=ORG), sized("model", 6, HIGH, owner=OTHER)
    there = (on(node, low), on(node, low, slot=1))
    world = World(models=(low, model), nodes=(node,), replicas=there, scopes=scoped(6))
    assert len(taken(seek(world, model))) == 1
    big = sized("big", 12, HIGH, owner=OTHER)
    assert seek(replace(world, models=(low, big)), big) is None, "both would have to go"


def test_what_is_borrowed_is_taken_back_for_a_scope_within_its_guarantee() -> None:
    node = a_node(memory=8 * GIB)
    lent, model = sized("lent", 6, HIGH, owner=OTHER), sized("model", 6, MID, owner=ORG)
    world = World(models=(lent, model), nodes=(node,), replicas=(on(node, lent),), scopes=scoped(6))
    found = seek(world, model)
    assert found is not None
    assert [item.ground for item in found.victims] == [Ground.BORROWED]
    assert seek(replace(world, scopes=scoped(5)), model) is None, "6 GiB are more than it is guaranteed"


def test_a_model_over_its_limit_takes_nothing() -> None:
    node = a_node(memory=8 * GIB)
    low, model = sized("low", 6), sized("model", 6, HIGH, owner=ORG)
    scope = ScopeView(id=ORG, kind="organisation", name="one", limit=Amount(memory=5 * GIB))
    world = World(models=(low, model), nodes=(node,), replicas=(on(node, low),), scopes=(scope,))
    assert seek(world, model) is None


def test_the_limit_of_one_class_of_cards_leaves_it_to_take_others() -> None:
    """Many nodes of the class at its limit would come first, and one of the other makes room."""
    nodes = [a_node(f"l{number:03d}", memory=64 * GIB, cards=(a_card(f"L-{number}"),)) for number in range(80)]
    nodes.append(a_node("t", memory=64 * GIB, cards=(a_card("T-0", klass="T4"),)))
    low = a_model("low", klass=LOW, base=99, profiles=(a_profile("low", cards=1, card_memory=18 * GIB),))
    model = a_model("model", klass=HIGH, owner=ORG, profiles=(a_profile("model", cards=1, card_memory=20 * GIB),))
    there = tuple(
        carded(node, low, {node.cards[0].uuid: 18}, slot=slot, in_flight=int(node.name == "t"))
        for slot, node in enumerate(nodes)
    )
    scope = ScopeView(id=ORG, kind="organisation", name="one", limit=Amount(cards=(("L4", 0),)))
    world = World(models=(low, model), nodes=tuple(nodes), replicas=there, scopes=(scope,))
    assert taken(seek(world, model)) == {there[-1].id}
    none = replace(scope, limit=Amount(cards=(("L4", 0), ("T4", 0))))
    assert seek(replace(world, scopes=(none,)), model) is None
