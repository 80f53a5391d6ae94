"""cluster.domain.nowhere: why a model finds no place, in as few sentences as say all of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.board import Board
from cluster.domain.feasible import NOT_NOW
from cluster.domain.nowhere import FEW, GROUPS, NAMED, UNFIT, NoPlace
from cluster.domain.place import Placer
from cluster.domain.states import NodeState
from cluster.domain.types import ModelView, NodeView, ProfileView, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_model, a_node, a_profile, a_replica
from tests.cluster.domain.test_place_prop import worlds
from tests.cluster.domain.test_room import profiles


def refused(nodes: tuple[NodeView, ...], profile: ProfileView, **fields: Any) -> NoPlace:
    found = Placer(Board(World(nodes=nodes))).place(a_model(profiles=(profile,), **fields))
    assert isinstance(found, NoPlace), found
    return found


def why(nodes: tuple[NodeView, ...], profile: ProfileView, **fields: Any) -> str:
    return refused(nodes, profile, **fields).message.removeprefix("no suitable node for small, because ")


# --- what is said


def test_of_a_few_nodes_each_has_its_words_and_equal_ones_are_said_once() -> None:
    nodes = (a_node("a", engines={}), a_node("b", memory=2 * GIB), a_node("c", engines={}))
    assert why(nodes, a_profile(memory=4 * GIB)) == (
        "a, c: it has no llama.cpp; b: it needs 4.0 GiB of memory and the whole node can give 1.8 GiB"
    )


def test_of_many_nodes_those_with_one_reason_are_told_by_the_one_that_comes_nearest() -> None:
    nodes = tuple(a_node(f"n{n:02}", memory_available=GIB + n * GIB // 10) for n in range(20))
    assert why(nodes, a_profile(memory=4 * GIB)) == (
        "n00, n01, n02 and 17 more: at best, on n19, it needs 4.0 GiB of memory and 2.4 GiB are free for it now"
    )


def test_each_class_of_cards_has_its_own_sentence() -> None:
    def held(name: str, klass: str, size: int, foreign: int) -> NodeView:
        return a_node(name, cards=(a_card(name, klass=klass, memory=size * GIB, foreign=foreign * GIB),))

    nodes = (
        *(held(f"h{n}", "H100", 80, 70 + n) for n in range(7)),
        *(held(f"l{n}", "L4", 24, 0) for n in range(8)),
        *(held(f"t{n}", "T4", 16, 0) for n in range(2)),
    )
    assert why(nodes, a_profile(cards=1, card_memory=30 * GIB)) == (
        "h0, h1, h2 and 4 more with cards of class H100: at best, on h0, it needs 30.0 GiB of one card and its cards "
        "have now 6.8 GiB (70.0 GiB held by other programs); "
        "l0, l1, l2 and 5 more with cards of class L4: it needs 30.0 GiB of one card and its cards can give 23.0 GiB; "
        "t0, t1 with cards of class T4: it needs 30.0 GiB of one card and its cards can give 15.4 GiB"
    )


def test_what_others_use_comes_first_then_what_may_pass_then_what_never_does() -> None:
    nodes = (
        *(a_node(f"never{n}", engines={}) for n in range(9)),
        *(a_node(f"later{n}", state=NodeState.STALE) for n in range(5)),
        a_node("busy", memory_available=GIB),
    )
    assert why(nodes, a_profile(memory=4 * GIB)) == (
        "busy: it needs 4.0 GiB of memory and 512.0 MiB are free for it now; later0, later1, later2 and 2 more: it is "
        "stale; never0, never1, never2 and 6 more: it has no llama.cpp"
    )


def test_reasons_that_people_wrote_are_told_apart() -> None:
    nodes = tuple(
        a_node(f"n{n:02}", maintenance="drained", maintenance_why="disks" if n % 2 else "fans") for n in range(14)
    )
    assert why(nodes, a_profile()) == (
        "n00, n02, n04 and 4 more: it is drained for maintenance (fans); "
        "n01, n03, n05 and 4 more: it is drained for maintenance (disks)"
    )


def test_labels_are_told_apart_by_what_is_missing() -> None:
    nodes = tuple(a_node(f"n{n:02}", labels={"zone": "a"} if n % 2 else {"rack": str(n)}) for n in range(14))
    assert why(nodes, a_profile(labels=(("disk", "fast"), ("zone", "a")))) == (
        "n00, n02, n04 and 4 more: it lacks the label disk=fast, zone=a; "
        "n01, n03, n05 and 4 more: it lacks the label disk=fast"
    )


def test_ever_so_many_reasons_end_in_a_count() -> None:
    nodes = tuple(a_node(f"n{n:03}", maintenance="drained", maintenance_why=f"case {n}") for n in range(40))
    found = why(nodes, a_profile())
    assert found.count("it is drained") == GROUPS
    assert found.endswith("; and 28 more nodes (28 node_drained)")


def test_ten_thousand_nodes_make_a_short_message() -> None:
    nodes = []
    for number in range(10_000):
        card = a_card(f"c{number}", klass=f"class-{number // 3 % 6}", memory=24 * GIB, foreign=number * GIB // 10_000)
        nodes.append(a_node(f"node-{number:05}", cards=(card,) * (number % 3), memory_available=number * GIB // 2000))
    found = refused(tuple(nodes), a_profile(cards=2, card_memory=50 * GIB, layer=GIB, memory=GIB))
    assert len(found.message) < 3000
    assert all(f"class class-{klass}:" in found.message for klass in range(6))


@pytest.mark.parametrize(
    ("profile", "node", "text"),
    [
        (
            a_profile(memory=int(7.5 * GIB) + 1),
            {},
            "needs 8,053,063,681 B of memory and the whole node can give 8,053,063,680 B",
        ),
        (
            a_profile(memory=4 * GIB + 1),
            {"memory_available": int(4.5 * GIB)},
            "needs 4,294,967,297 B of memory and 4,294,967,296 B are free",
        ),
        (
            a_profile(cards=1, card_memory=3 * GIB),
            {"cards": (a_card("a", memory=4 * GIB, foreign=GIB // 2 + 1),)},
            "needs 3.0 GiB of one card and its cards have now 3,221,225,471 B (512.0 MiB held",
        ),
        (
            a_profile(cards=2, card_memory=40 * GIB, layer=3 * GIB, card_base=GIB),
            {"cards": (a_card("a"), a_card("b", foreign=9 * GIB))},
            "needs 41.0 GiB over 2 cards, in layers of 3.0 GiB beside 1.0 GiB on each and its cards have now 23.0 GiB, 14.0 GiB",
        ),
    ],
)
def test_figures_that_differ_read_so(profile: ProfileView, node: dict[str, Any], text: str) -> None:
    assert text in why((a_node(**node),), profile)


# --- over several nodes

SPAN = a_profile("span", engine="vllm", span=2, cards=1, card_memory=20 * GIB, even=True)


def member(name: str, fabric: str, **fields: Any) -> NodeView:
    cards = (a_card(f"{name}0", foreign=fields.pop("foreign", 0)),)
    return a_node(name, **{"fabric": fabric, "engines": {"vllm": ""}, "cards": cards, **fields})


BUSY, OFF = {"foreign": 9 * GIB}, {"state": NodeState.OFFLINE}


@pytest.mark.parametrize(
    ("nodes", "code", "waits", "busy"),
    [
        ((("x", {}), ("y", {})), "fabric_too_small", False, False),
        ((("x", {}), ("y", BUSY)), "fabric_too_small", False, False),  # what is busy helps nobody there
        ((("x", {}), ("x", {"engines": {}})), "fabric_too_small", False, False),
        ((("x", {}), ("x", BUSY)), "no_fabric_now", True, True),
        ((("x", {}), ("x", OFF)), "no_fabric_now", True, False),
        ((("x", BUSY), ("x", OFF)), "no_room_now", True, False),
        ((("x", BUSY), ("x", BUSY), ("y", {})), "no_fabric_now", True, True),
        ((("x", BUSY), ("x", BUSY)), "no_card_memory_now", True, True),
        ((("", {}), ("", {})), "no_fabric", False, False),
        ((("", {}), ("x", {"engines": {}})), "no_suitable_node", False, False),
        ((("x", {"cards": ()}), ("x", {"cards": ()})), "too_few_cards", False, False),
    ],
)
def test_a_fabric_that_is_too_small_is_unfit_and_nobody_waits_for_it(
    nodes: tuple[tuple[str, dict[str, Any]], ...], code: str, waits: bool, busy: bool
) -> None:
    found = refused(tuple(member(f"n{n}", fabric, **fields) for n, (fabric, fields) in enumerate(nodes)), SPAN)
    assert (found.code, found.waits, found.busy) == (code, waits, busy)


def test_a_fabric_is_told_with_its_figures() -> None:
    nodes = (member("a", "x"), member("b", "x", **BUSY), member("c", "y"))
    found = refused(nodes, replace(SPAN, span=3))
    assert found.message == (
        "no suitable node for small, because it spans 3 nodes of one fabric, and of nodes that could hold a part fabric "
        "x has 2 (1 with room now), y has 1 (1 with room now); b: it needs 20.0 GiB of one card and its cards have now "
        "14.0 GiB (9.0 GiB held by other programs)"
    )


def test_the_next_way_is_taken_where_no_fabric_is_large_enough_though_its_nodes_are_busy() -> None:
    cpu = a_profile("cpu", priority=-1)
    model = a_model(profiles=(SPAN, cpu))
    nodes = (member("a", "x", **BUSY), member("b", "y", **BUSY), a_node("c"))
    found = Placer(Board(World(nodes=nodes))).place(model)
    assert not isinstance(found, NoPlace)
    assert found.profile == cpu


# --- busy is what the end of a replica mends


@pytest.mark.parametrize(
    ("node", "code"),
    [
        ({"disk_free": 0, "cores": 4}, "no_disk_now"),
        ({"cards": (a_card("a", problem="Xid 79"),)}, "cards_unhealthy"),
        ({"cards": (a_card("a", maintenance="cordoned"),)}, "cards_in_maintenance"),
        # the one that is well could never hold it
        ({"cards": (a_card("a", problem="Xid 79"), a_card("b", memory=8 * GIB))}, "cards_unhealthy"),
        ({"cards": (a_card("a", maintenance="drained"), a_card("b", memory=8 * GIB))}, "cards_in_maintenance"),
        ({"cards": (a_card("a", maintenance="drained"), a_card("b", problem="Xid 79"))}, "cards_unhealthy"),
    ],
)
def test_what_no_end_of_a_replica_mends_is_said_before_what_others_use(node: dict[str, Any], code: str) -> None:
    host = a_node(**{"cards": (a_card("a"),), **node})
    profile = a_profile(threads=3, cards=1, card_memory=20 * GIB)
    model = a_model(profiles=(profile,), weights="w", weights_size=GIB)
    working = a_replica(model, host, shares=(replace(a_replica(model, host).shares[0], cores=4),))
    found = Placer(Board(World(models=(model,), nodes=(host,), replicas=(working,)))).place(model)
    assert isinstance(found, NoPlace)
    assert (found.code, found.waits, found.busy) == (code, True, False)


def test_cards_of_other_classes_are_no_reason() -> None:
    cards = (a_card("a", klass="L4", problem="Xid 79"), a_card("b", klass="T4", problem="row remap failed"))
    found = why((a_node(cards=cards),), a_profile(cards=1, card_memory=GIB, card_classes=("L4",)))
    assert found == "one: the profile wants 1 card of class L4, and of its cards card a: Xid 79"


# --- any fleet


@given(worlds, profiles, st.integers(1, 5))
def test_every_node_is_in_the_message_by_name_or_by_number(world: World, profile: ProfileView, times: int) -> None:
    nodes = tuple(
        replace(node, id=f"{node.id}-{n}", name=f"{node.name}-{n}") for node in world.nodes for n in range(times)
    )
    model: ModelView = a_model(profiles=(profile,))
    found = Placer(Board(replace(world, nodes=nodes))).place(model)
    if not isinstance(found, NoPlace) or not nodes or profile.span > 1:
        return
    if len(nodes) <= NAMED:
        assert all(node.name in found.message for node in nodes)
    named = sum(node.name in found.message for node in nodes)
    assert named >= min(len(nodes), FEW)
    assert ("more" in found.message) == (named < len(nodes))


def test_what_waiting_helps_is_not_among_what_it_does_not() -> None:
    assert UNFIT.isdisjoint(NOT_NOW)
    assert {"label_missing", "too_few_cards", "no_card_of_class", "fabric_too_small", "no_suitable_node"} <= UNFIT
    assert UNFIT.isdisjoint({"no_room_now", "no_fabric_now", "over_limit", "model_parked", "replica_starting", ""})
