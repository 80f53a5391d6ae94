"""Places within limits of classes of cards, where a profile may use cards of several."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.domain.board import Board
from cluster.domain.place import NoPlace, Placement, Placer
from cluster.domain.plan import Start
from cluster.domain.preempt import make_room
from cluster.domain.quotas import Ledger
from cluster.domain.reconcile import reconcile
from cluster.domain.types import Amount, Klass, NodeView, ProfileView, Share, World
from cluster.domain.within import place_within
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_node, a_profile, a_replica, applied
from tests.cluster.domain.test_quotas import cards, owned, tree


def node_of(name: str, *cards: tuple[str, int], memory: int = 64 * GIB) -> NodeView:
    """`cards`: class and bytes of each."""
    found = tuple(a_card(f"{name}-{place}", klass=klass, memory=size) for place, (klass, size) in enumerate(cards))
    return a_node(name, memory=memory, cores=32, cards=found)


BIG, SMALL = node_of("big", ("H100", 80 * GIB), memory=128 * GIB), node_of("small", ("L4", 24 * GIB))


def found(world: World) -> Placement | NoPlace:
    board = Board(world)
    return place_within(Placer(board), Ledger(board), world.models[0])


@pytest.mark.parametrize(
    ("limits", "nodes", "node"),
    [
        ({}, (BIG, SMALL), "big"),  # most room is left there
        ({"p1": {"limit": cards(0, "H100")}}, (BIG, SMALL), "small"),
        ({"o1": {"limit": cards(0, "H100")}, "p1": {"limit": cards(1)}}, (BIG, SMALL), "small"),
        ({"p1": {"limit": cards(0, "H100")}}, (node_of("both", ("H100", 80 * GIB), ("L4", 24 * GIB)),), "both"),
        ({"p1": {"limit": cards(0, "H100")}}, (BIG,), None),
        ({"p1": {"limit": Amount(cards=(("H100", 0), ("L4", 0)))}}, (BIG, SMALL), None),
        ({"p1": {"limit": Amount(cores=1)}}, (BIG, SMALL), None),  # no other card helps
        ({"p1": {"limit": Amount(cores=1, cards=(("H100", 0),))}}, (BIG, SMALL), None),
    ],
)
def test_cards_of_a_class_at_its_limit_are_left_for_others(limits, nodes, node) -> None:
    chat = owned("chat", "p1")
    place = found(World(models=(chat,), nodes=nodes, scopes=tree(**limits)))
    if node is None:
        assert isinstance(place, NoPlace)
        assert place.code == "over_limit"
        return
    assert isinstance(place, Placement)
    assert place.node.name == node
    assert place.profile == chat.profiles[0]
    if limits:
        assert {card.klass for card in place.node.cards if card.uuid in dict(place.shares[0].cards)} == {"L4"}


def test_a_profile_of_one_class_is_not_placed_on_another() -> None:
    chat = owned("chat", "p1")
    narrow = replace(chat, profiles=(replace(chat.profiles[0], card_classes=("H100",)),))
    place = found(World(models=(narrow,), nodes=(BIG, SMALL), scopes=tree(p1={"limit": cards(0, "H100")})))
    assert isinstance(place, NoPlace)
    assert place.code == "over_limit"
    assert "may have at most 0 cards of class H100" in place.message


def test_where_others_hold_the_cards_that_are_allowed_it_waits_for_them() -> None:
    chat = owned("chat", "p1")
    full = replace(SMALL, cards=(replace(SMALL.cards[0], foreign=20 * GIB),))
    place = found(World(models=(chat,), nodes=(BIG, full), scopes=tree(p1={"limit": cards(0, "H100")})))
    assert isinstance(place, NoPlace)
    assert place.busy
    assert "held by other programs" in place.message


def test_a_model_grows_over_classes_up_to_each_limit() -> None:
    chat = owned("chat", "p1", base=9)
    nodes = (node_of("a", *[("H100", 80 * GIB)] * 3, memory=128 * GIB), node_of("b", *[("L4", 24 * GIB)] * 3))
    limit = Amount(cards=(("H100", 1), ("L4", 2)))
    world = World(models=(chat,), nodes=nodes, scopes=tree(p1={"limit": limit}))
    plan = reconcile(world, 0.0)
    assert [type(op) for op in plan.ops] == [Start] * len(plan.ops)
    after = applied(world, plan)
    used = [uuid[0] for replica in after.replicas for uuid in replica.cards]
    assert sorted(used) == ["a", "a", "a", "b", "b"]  # three of 20 GiB count as one card of 80 GiB
    assert [wait.code for wait in plan.waits] == ["over_limit"]
    assert reconcile(after, 1.0).ops == ()


GPU = {"memory": GIB, "threads": 4, "cards": 1, "card_memory": 20 * GIB}
FULL = replace(BIG, cards=(replace(BIG.cards[0], foreign=79 * GIB),))


@pytest.mark.parametrize(
    ("limit", "nodes", "way"),
    [
        ({}, (BIG, SMALL), "gpu"),
        ({"limit": cards(0, "H100")}, (BIG, SMALL), "gpu"),  # on the other class
        ({"limit": cards(0, "H100")}, (BIG,), "cpu"),  # none may be had of what there is
        ({"limit": cards(0, "H100")}, (FULL,), "cpu"),  # and nobody waits for it
        ({"limit": Amount(cards=(("H100", 0), ("L4", 0)))}, (BIG, SMALL), "cpu"),
        ({"limit": Amount(cores=3)}, (BIG, SMALL), "cpu"),  # one replica on cards takes four
        ({"limit": cards(1, "H100")}, (FULL,), "no_card_memory_now"),  # it may have one, and waits
        ({"limit": Amount(cores=1)}, (BIG, SMALL), "over_limit"),  # nothing is left
    ],
)
def test_what_its_owner_may_never_have_is_unfit_and_the_next_way_is_taken(limit, nodes, way) -> None:
    gpu, cpu = a_profile("gpu", priority=1, **GPU), a_profile("cpu", memory=GIB, threads=2)
    chat = replace(owned("chat", "p1"), profiles=(gpu, cpu))
    place = found(World(models=(chat,), nodes=nodes, scopes=tree(**({"p1": limit} if limit else {}))))
    assert (place.code if isinstance(place, NoPlace) else place.profile.name) == way
    assert isinstance(place, NoPlace) or place.profile in (gpu, cpu)


def test_room_is_made_for_the_way_that_its_owner_may_have_though_the_other_is_in_use_too() -> None:
    gpu, cpu = a_profile("gpu", priority=1, **GPU), a_profile("cpu", memory=100 * GIB, threads=2)
    chat = replace(owned("chat", "p1"), klass=Klass.CRITICAL, profiles=(gpu, cpu))
    low = replace(owned("low", ""), klass=Klass.OPPORTUNISTIC, profiles=(a_profile("low", memory=60 * GIB),))
    there = a_replica(low, FULL)
    world = World(models=(chat, low), nodes=(FULL,), replicas=(there,), scopes=tree(p1={"limit": cards(0, "H100")}))
    place = found(world)
    assert isinstance(place, NoPlace)
    assert (place.code, place.busy) == ("no_memory_now", True)
    room = make_room(board := Board(world), Placer(board), Ledger(board), chat, 0.0)
    assert room is not None
    assert [victim.replica.id for victim in room.victims] == [there.id]
    assert room.placement.profile == cpu


def test_of_ways_of_equal_rank_the_next_is_taken_where_a_limit_stops_the_first() -> None:
    """One card of class L4 is all that its team may have, and a replica holds it; the other way runs on an H100."""
    chat = owned("chat", "p1")
    first, second = (
        replace(chat.profiles[0], id=f"prof_{name}", name=name, digest=name, card_classes=(klass,))
        for name, klass in (("first", "L4"), ("second", "H100"))
    )
    other = owned("other", "p1")
    held = a_replica(other, SMALL, shares=(Share(node_id=SMALL.id, memory=GIB, cards=(("small-0", GIB),)),))
    limit = tree(p1={"limit": cards(1, "L4")})

    def placed(*ways: ProfileView) -> Placement | NoPlace:
        models = (replace(chat, profiles=ways), other)
        return found(World(models=models, nodes=(BIG, SMALL), replicas=(held,), scopes=limit))

    alone, equal = placed(first), placed(first, second)
    assert isinstance(alone, NoPlace)
    assert alone.code == "over_limit"
    assert isinstance(equal, Placement)
    assert (equal.profile, equal.node.name) == (second, "big")
    lower = placed(first, replace(second, priority=-1))
    assert isinstance(lower, NoPlace)
    assert (lower.code, lower.message) == ("over_limit", alone.message)
