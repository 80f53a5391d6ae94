"""cluster.domain.headroom: how many more fit, and who would really make room."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.board import Board
from cluster.domain.headroom import headroom
from cluster.domain.place import NoPlace, Placer
from cluster.domain.quotas import Ledger
from cluster.domain.types import Amount, Claim, ModelView, ScopeView, Share, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_model, a_node, a_profile
from tests.cluster.crowd import HIGH, MID, NOW, ORG, carded, on, sized
from tests.cluster.domain.test_preempt_prop import full_worlds


def test_room_is_counted_node_by_node() -> None:
    one, two = a_node("one", memory=int(8.5 * GIB)), a_node("two", memory=int(4.5 * GIB))
    model = sized("model", 3, base=1, most=4)
    found = headroom(World(models=(model,), nodes=(one, two), replicas=(on(one, model),)), model, NOW)
    assert (found.fits, found.counted, found.allowed) == (2, True, 3)
    assert {(item.node, item.count) for item in found.places} == {("one", 1), ("two", 1)}
    assert found.code == "no_memory_now"
    assert "3.0 GiB of memory and 2.0 GiB are free" in found.message
    assert found.victims == ()


def test_the_cards_of_a_node_are_counted() -> None:
    node = a_node("one", memory=64 * GIB, cards=(a_card("GPU-0"), a_card("GPU-1"), a_card("GPU-2", problem="Xid 79")))
    model = a_model("model", profiles=(a_profile("model", cards=1, card_memory=11 * GIB),))
    found = headroom(World(models=(model,), nodes=(node,)), model, NOW)
    assert (found.fits, found.code) == (4, "no_card_memory_now")


@pytest.mark.parametrize(("fit", "most", "fits", "counted"), [(8, 3, 3, False), (3, 3, 3, False), (2, 3, 2, True)])
def test_counting_ends_somewhere(fit: int, most: int, fits: int, counted: bool) -> None:
    model = sized("model", 1)
    found = headroom(World(models=(model,), nodes=(a_node(memory=int((fit + 0.5) * GIB)),)), model, NOW, most=most)
    assert (found.fits, found.counted) == (fits, counted)


def test_only_those_are_named_who_would_really_make_room() -> None:
    """Five more replicas could be stopped; one of them is enough, and the others would make none."""
    one, two = a_node("one", memory=int(8.5 * GIB)), a_node("two", memory=int(2.5 * GIB))
    large, small, model = sized("large", 5), sized("small", 1), sized("model", 5, HIGH)
    useless = tuple(on(two, small, slot=slot) for slot in range(2))
    there = (on(one, large, in_flight=2), *(on(one, small, slot=slot) for slot in (2, 3)), *useless)
    found = headroom(World(models=(large, small, model), nodes=(one, two), replicas=there), model, NOW)
    assert found.fits == 0
    assert [item.replica.id for item in found.victims] == [there[0].id]
    assert "large (opportunistic, 2 requests, 5.0 GiB)" in found.reason


def test_equals_make_no_room_for_each_other() -> None:
    node = a_node(memory=8 * GIB)
    other, model = sized("other", 6, MID), sized("model", 6, MID)
    found = headroom(World(models=(other, model), nodes=(node,), replicas=(on(node, other),)), model, NOW)
    assert (found.fits, found.code, found.victims, found.reason) == (0, "no_memory_now", (), "")


def test_a_limit_ends_it_with_its_sums_and_asks_nobody() -> None:
    node = a_node(memory=64 * GIB)
    low, model = sized("low", 6), sized("model", 6, HIGH, owner=ORG)
    scope = ScopeView(id=ORG, kind="organisation", name="research", limit=Amount(memory=20 * GIB))
    world = World(models=(low, model), nodes=(node,), replicas=(on(node, low), on(node, model)), scopes=(scope,))
    found = headroom(world, model, NOW)
    assert (found.fits, found.code, found.victims) == (2, "over_limit", ())
    assert "research may have at most 20.0 GiB" in found.message


def test_room_that_is_kept_for_it_is_its_own_and_what_is_kept_for_others_is_not() -> None:
    node = a_node(memory=int(8.5 * GIB))
    model, other = sized("model", 6), sized("other", 6)
    shares = (Share(node_id=node.id, memory=6 * GIB),)
    for owner, fits in ((model, 1), (other, 0)):
        kept = Claim(model_id=owner.id, shares=shares, until=NOW + 9)
        assert headroom(World(models=(model, other), nodes=(node,), claims=(kept,)), model, NOW).fits == fits


def test_a_model_of_a_provider_has_none() -> None:
    model = a_model(external=True, profiles=())
    assert headroom(World(models=(model,), nodes=(a_node(),)), model, NOW).code == "external_model"


@pytest.mark.parametrize(("nodes", "code"), [((), "no_node"), ((a_node(engines={}),), "engine_missing")])
def test_what_never_fits_says_why(nodes: tuple, code: str) -> None:  # type: ignore[type-arg]
    model = sized("model", 1)
    found = headroom(World(models=(model,), nodes=nodes), model, NOW)
    assert (found.fits, found.code) == (0, code)


def filled(world: World, asks: ModelView, count: int) -> Board:
    """The world with so many more replicas of a model, placed one after the other."""
    board = Board(world)
    for place in range(count):
        spot = Placer(board).place(asks)
        assert not isinstance(spot, NoPlace)
        board.put(replace(carded(spot.node, asks, {}, slot=place, id=f"new_{place}"), shares=spot.shares))
    return board


@given(full_worlds())
def test_as_many_fit_as_can_be_placed_one_after_the_other(case: tuple) -> None:  # type: ignore[type-arg]
    world, asks = case
    board = filled(world, asks, headroom(world, asks, NOW).fits)
    assert isinstance(Placer(board).place(asks), NoPlace)
    assert Ledger(board).over_limit(asks, ()) == ""


@given(full_worlds())
def test_those_who_are_named_make_room_together_and_each_of_them_is_needed(case: tuple) -> None:  # type: ignore[type-arg]
    world, asks = case
    found = headroom(world, asks, NOW)
    board = filled(world, asks, found.fits)
    for item in board.leaving:
        board.lift(item.id)
    named = [item.replica.id for item in found.victims]
    fits = []
    for gone in (named, *([other for other in named if other != one] for one in named)):
        mark = board.mark()
        for replica_id in gone:
            board.lift(replica_id)
        fits.append(not isinstance(Placer(board).place(asks), NoPlace))
        board.back(mark)
    assert not named or fits == [True, *(False for _ in named)]
    assert bool(found.reason) >= bool(named)


@given(full_worlds(), st.integers(0, 12))
def test_it_ends_at_a_limit_exactly_where_one_more_would_be_over_it(case: tuple, limit: int) -> None:  # type: ignore[type-arg]
    world, asks = case
    asks = replace(asks, owner=ORG)
    models = tuple(replace(item, owner=ORG) for item in world.models if item.id != asks.id)
    scope = ScopeView(id=ORG, kind="organisation", name="one", limit=Amount(memory=limit * GIB))
    world = replace(world, models=(*models, asks), scopes=(scope,))
    found = headroom(world, asks, NOW)
    held = Ledger(Board(world)).held(ORG).get("memory", 0)
    more = asks.profiles[0].memory * asks.profiles[0].span
    assert found.fits == 0 or held + found.fits * more <= limit * GIB
    if found.code == "over_limit":
        assert held + (found.fits + 1) * more > limit * GIB
        assert found.victims == ()
        assert "the organisation one may have at most" in found.message
    elif found.fits < headroom(replace(world, scopes=()), asks, NOW).fits:
        raise AssertionError(f"fewer fit than without the limit, and {found.code} is said")
