"""cluster.domain.preempt and victims: who gives way for whom, by the numbers in their docstrings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import (
    Claim,
    Klass,
    Share,
    World,
)
from cluster.domain.victims import GRACE, Ground
from llmgw_site.lib.units import GIB
from tests.cluster.builders import (
    a_card,
    a_model,
    a_node,
    a_profile,
    with_replica,
)
from tests.cluster.crowd import HIGH, LOW, MID, NOW, carded, on, seek, sized, taken

# --- by class


@pytest.mark.parametrize(
    ("asks", "holds", "given_way"),
    [
        (HIGH, MID, True),
        (HIGH, LOW, True),
        (MID, LOW, True),
        (HIGH, HIGH, False),
        (MID, MID, False),
        (LOW, LOW, False),
        (MID, HIGH, False),
        (LOW, MID, False),
        (LOW, HIGH, False),
    ],
)
def test_only_a_lower_class_gives_way(asks: Klass, holds: Klass, given_way: bool) -> None:
    node = a_node(memory=8 * GIB)
    other, model = sized("other", 6, holds), sized("model", 6, asks)
    there = on(node, other)
    found = seek(World(models=(other, model), nodes=(node,), replicas=(there,)), model)
    assert (found is not None) is given_way
    if found is not None:
        (victim,) = found.victims
        assert (victim.replica.id, victim.ground, victim.grace) == (there.id, Ground.CLASS, GRACE)
        assert found.placement.shares == (Share(node_id=node.id, memory=6 * GIB),)


def test_the_reason_names_who_whose_how_busy_and_how_much() -> None:
    node = a_node("one", memory=8 * GIB)
    other, model = sized("other", 6), sized("model", 6, HIGH)
    there = on(node, other, in_flight=3)
    found = seek(World(models=(other, model), nodes=(node,), replicas=(there,)), model)
    assert found is not None
    for word in ("model (critical)", "node one", there.id, "other (opportunistic, 3 requests, 6.0 GiB)", "lower class"):
        assert word in found.reason


def test_the_lowest_class_goes_first_though_it_is_busy() -> None:
    one, two = a_node("one", memory=8 * GIB), a_node("two", memory=8 * GIB)
    low, mid, model = sized("low", 6, LOW), sized("mid", 6, MID), sized("model", 6, HIGH)
    a, b = on(one, mid), on(two, low, in_flight=4)
    assert taken(seek(World(models=(low, mid, model), nodes=(one, two), replicas=(a, b)), model)) == {b.id}


def test_idle_ones_go_before_busy_ones_and_less_busy_before_busier() -> None:
    nodes = [a_node(name, memory=8 * GIB) for name in ("one", "two", "three")]
    low, model = sized("low", 6), sized("model", 6, HIGH)
    three, none, one = (
        on(node, low, in_flight=count, slot=count) for node, count in zip(nodes, (3, 0, 1), strict=True)
    )
    world = World(models=(low, model), nodes=tuple(nodes), replicas=(three, none, one))
    assert taken(seek(world, model)) == {none.id}
    assert taken(
        seek(replace(world, replicas=(three, with_replica(world, none.id, in_flight=2).replicas[1], one)), model)
    ) == {one.id}


def test_of_equally_idle_ones_the_smallest_that_helps_goes() -> None:
    """2 GiB are free of 8 less the margin; 5 are needed: 3 more help, 1 more does not."""
    one, two = a_node("one", memory=int(8.5 * GIB)), a_node("two", memory=int(8.5 * GIB))
    small, right, large = sized("small", 1), sized("right", 5), sized("large", 6)
    model = sized("model", 5, HIGH)
    there = (on(one, small), on(one, right, slot=1), on(two, small, slot=1), on(two, large))
    found = seek(World(models=(small, right, large, model), nodes=(one, two), replicas=there), model)
    assert taken(found) == {there[1].id}


def test_a_set_that_works_is_pruned_to_the_replicas_it_needs() -> None:
    """Small ones come first in the order, and the large one alone makes room enough: none of them has to go."""
    node = a_node(memory=int(8.5 * GIB))
    small, large, model = sized("small", 1), sized("large", 6), sized("model", 6, HIGH)
    there = (*(on(node, small, slot=slot) for slot in range(2)), on(node, large))
    assert taken(seek(World(models=(small, large, model), nodes=(node,), replicas=there), model)) == {there[2].id}


def test_as_many_give_way_as_are_needed_and_no_more() -> None:
    node = a_node(memory=int(8.5 * GIB))
    low, model = sized("low", 1), sized("model", 3, HIGH)
    there = tuple(on(node, low, slot=slot) for slot in range(8))
    found = seek(World(models=(low, model), nodes=(node,), replicas=there), model)
    assert taken(found) == {item.id for item in there[-3:]}, "the newest, as many as it takes"


def test_nobody_is_stopped_where_it_would_not_help() -> None:
    node = a_node(memory=int(8.5 * GIB))
    low, equal, model = sized("low", 2), sized("equal", 5, HIGH), sized("model", 4, HIGH)
    there = (on(node, low), on(node, equal))
    assert seek(World(models=(low, equal, model), nodes=(node,), replicas=there), model) is None


def test_memory_that_other_programs_hold_is_not_made_free_by_anybody() -> None:
    node = a_node(memory=int(8.5 * GIB), memory_available=int(0.5 * GIB))  # 6 GiB of it are not our engine's
    low, model = sized("low", 2), sized("model", 4, HIGH)
    assert seek(World(models=(low, model), nodes=(node,), replicas=(on(node, low),)), model) is None


def test_room_on_one_node_is_no_room_on_another() -> None:
    one, two = a_node("one", memory=int(4.5 * GIB)), a_node("two", memory=int(4.5 * GIB))
    low, model = sized("low", 3), sized("model", 6, HIGH)
    there = (on(one, low), on(two, low, slot=1))
    assert seek(World(models=(low, model), nodes=(one, two), replicas=there), model) is None


@pytest.mark.parametrize(
    "fields",
    [{"run": False, "state": ReplicaState.STOPPED}, {"state": ReplicaState.LOST}],
)
def test_one_that_holds_nothing_is_nobodys_victim(fields: dict[str, Any]) -> None:
    node = a_node(memory=int(8.5 * GIB))
    low, equal, model = sized("low", 6), sized("equal", 6, HIGH), sized("model", 6, HIGH)
    there = (on(node, low, **fields), on(node, equal))
    found = seek(World(models=(low, equal, model), nodes=(node,), replicas=there), model)
    assert found is None


def test_a_failed_one_of_a_lower_class_gives_way_like_any_other() -> None:
    node = a_node(memory=8 * GIB)
    low, model = sized("low", 6), sized("model", 6, HIGH)
    there = on(node, low, state=ReplicaState.FAILED)
    assert taken(seek(World(models=(low, model), nodes=(node,), replicas=(there,)), model)) == {there.id}


def test_nodes_that_cannot_run_it_are_left_alone() -> None:
    node, off = a_node("one", memory=8 * GIB), a_node("off", memory=8 * GIB, state=NodeState.OFFLINE)
    cordoned = a_node("cordoned", memory=8 * GIB, maintenance="cordoned")
    low, model = sized("low", 6), sized("model", 6, HIGH)
    there = tuple(on(item, low, slot=slot, in_flight=slot == 0) for slot, item in enumerate((node, off, cordoned)))
    found = seek(World(models=(low, model), nodes=(node, off, cordoned), replicas=there), model)
    assert taken(found) == {there[0].id}


def test_what_leaves_already_is_taken_before_anybody_is_stopped() -> None:
    node = a_node("one", memory=8 * GIB)
    other = a_node("two", memory=8 * GIB)
    equal, low, model = sized("equal", 6, HIGH), sized("low", 6), sized("model", 6, HIGH)
    leaves = on(node, equal, run=False, state=ReplicaState.DRAINING)
    found = seek(World(models=(equal, low, model), nodes=(node, other), replicas=(leaves, on(other, low))), model)
    assert taken(found) == set()
    assert found is not None
    assert found.placement.node.name == "one"
    assert leaves.id in found.reason


def test_room_that_is_kept_for_another_is_not_taken() -> None:
    node = a_node("one", memory=8 * GIB)
    low, first, model = sized("low", 6), sized("first", 6, HIGH), sized("model", 6, HIGH)
    leaves = on(node, low, run=False, state=ReplicaState.DRAINING)
    kept = Claim(model_id=first.id, shares=(Share(node_id=node.id, memory=6 * GIB),), until=NOW + 100)
    world = World(models=(low, first, model), nodes=(node,), replicas=(leaves,), claims=(kept,))
    assert seek(world, model) is None


def test_busy_is_not_unfit_the_first_way_that_fits_the_hardware_decides() -> None:
    """The way over cards fits the hardware, and a critical model holds it; the CPU way would take an opportunistic one's
    room, and is not for that."""
    card = a_card("GPU-0", memory=24 * GIB)
    node, plain = a_node("one", memory=8 * GIB, cards=(card,)), a_node("two", memory=8 * GIB)
    fast = a_profile("fast", priority=1, cards=1, card_memory=20 * GIB)
    slow = a_profile("slow", memory=6 * GIB)
    model = a_model("model", klass=HIGH, profiles=(fast, slow))
    holder = a_model("holder", klass=HIGH, profiles=(a_profile("holder", cards=1, card_memory=20 * GIB),))
    low = sized("low", 6)
    there = (carded(node, holder, {"GPU-0": 20}), on(plain, low))
    world = World(models=(model, holder, low), nodes=(node, plain), replicas=there)
    assert seek(world, model) is None
    assert taken(seek(replace(world, nodes=(plain,), replicas=there[1:]), model)) == {there[1].id}


# --- cards


def test_the_cards_of_one_node_are_made_free_together() -> None:
    cards = tuple(a_card(f"GPU-{number}") for number in range(4))
    node = a_node("one", memory=64 * GIB, cards=cards)
    low = a_model("low", klass=LOW, base=9, profiles=(a_profile("low", cards=1, card_memory=20 * GIB),))
    wide = a_model("wide", klass=HIGH, profiles=(a_profile("wide", cards=2, even=True, card_memory=40 * GIB),))
    there = tuple(
        carded(node, low, {f"GPU-{number}": 20}, slot=number, in_flight=busy)
        for number, busy in enumerate((0, 5, 2, 0))
    )
    found = seek(World(models=(low, wide), nodes=(node,), replicas=there), wide)
    assert taken(found) == {there[0].id, there[3].id}
    assert found is not None
    assert dict(found.placement.shares[0].cards) == {"GPU-0": 20 * GIB, "GPU-3": 20 * GIB}


def test_a_replica_on_a_card_of_another_class_is_left_alone() -> None:
    node = a_node("one", memory=64 * GIB, cards=(a_card("GPU-0", klass="T4"), a_card("GPU-1", klass="L4")))
    low = a_model("low", klass=LOW, base=9, profiles=(a_profile("low", cards=1, card_memory=20 * GIB),))
    model = a_model(
        "model", klass=HIGH, profiles=(a_profile("model", cards=1, card_memory=20 * GIB, card_classes=("L4",)),)
    )
    there = (carded(node, low, {"GPU-0": 20}), carded(node, low, {"GPU-1": 20}, slot=1, in_flight=7))
    assert taken(seek(World(models=(low, model), nodes=(node,), replicas=there), model)) == {there[1].id}


def test_layers_over_two_cards_take_only_the_card_that_is_in_the_way() -> None:
    node = a_node("one", memory=64 * GIB, cards=(a_card("GPU-0"), a_card("GPU-1"), a_card("GPU-2")))
    low = a_model("low", klass=LOW, base=9, profiles=(a_profile("low", cards=1, card_memory=12 * GIB),))
    model = a_model("model", klass=HIGH, profiles=(a_profile("model", cards=2, layer=GIB, card_memory=40 * GIB),))
    there = tuple(carded(node, low, {f"GPU-{number}": 12}, slot=number) for number in range(2))
    found = seek(World(models=(low, model), nodes=(node,), replicas=there), model)
    assert len(taken(found)) == 1
    assert found is not None
    assert sum(size for _, size in found.placement.shares[0].cards) == 40 * GIB


def test_nodes_of_one_fabric_are_made_free_together() -> None:
    nodes = tuple(
        a_node(name, memory=8 * GIB, fabric=fabric) for name, fabric in (("a", "x"), ("b", "y"), ("c", "y"), ("d", ""))
    )
    low, equal = sized("low", 6), sized("equal", 6, HIGH)
    model = a_model("model", klass=HIGH, profiles=(a_profile("model", memory=6 * GIB, span=2),))
    there = (on(nodes[0], low), on(nodes[1], low, slot=1, in_flight=2), on(nodes[3], equal))
    found = seek(World(models=(low, equal, model), nodes=nodes, replicas=there), model)
    assert taken(found) == {there[1].id}
    assert found is not None
    assert {share.node_id for share in found.placement.shares} == {"node_b", "node_c"}


def test_f09_a_card_that_other_programs_hold_is_not_made_free_by_stopping_ours() -> None:
    card = a_card("GPU-0", memory=24 * GIB, foreign=18 * GIB)
    node = a_node("one", memory=64 * GIB, cards=(card,))
    low = a_model("low", klass=LOW, profiles=(a_profile("low", cards=1, card_memory=3 * GIB),))
    model = a_model("model", klass=HIGH, profiles=(a_profile("model", cards=1, card_memory=20 * GIB),))
    assert seek(World(models=(low, model), nodes=(node,), replicas=(carded(node, low, {"GPU-0": 3}),)), model) is None
