"""cluster.domain.shares: which cards, and how much of each; with `feasible`, that says when there are any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.board import Board
from cluster.domain.feasible import Answer, cards_left, holds, why_not
from cluster.domain.refusals import Verdict, feasible
from cluster.domain.room import Room
from cluster.domain.shares import by_layers, choose_cards, share_of
from cluster.domain.types import CardView, NodeView, ProfileView, Share, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_model, a_node, a_profile, a_replica

GB = 1000**3
L4 = 24 * GIB - int(24 * GIB * 0.04)
"""What a card of 24 GiB gives: a twenty-fifth is kept."""


def node(*cards: CardView, **fields: Any) -> NodeView:
    return a_node(cards=cards, **fields)


def gpu(gigabytes: float, **fields: Any) -> ProfileView:
    return a_profile(card_memory=int(gigabytes * GIB), **{"cards": 1, **fields})


def look(host: NodeView, profile: ProfileView) -> Verdict:
    return feasible(Board(World(nodes=(host,))), host, profile)


def chosen(host: NodeView, profile: ProfileView, *, pack: bool = False) -> dict[str, int]:
    return dict(choose_cards(Room(host, 0), profile, pack=pack))


@pytest.mark.parametrize(
    ("cards", "profile", "code", "words"),
    [
        ((), gpu(1), "too_few_cards", "wants 1 card and it has none"),
        ((a_card("a"),), gpu(1, cards=2), "too_few_cards", "wants 2 cards and it has 1 (L4)"),
        ((a_card("a"),), gpu(1, card_classes=("H200", "B200")), "no_card_of_class", "of class H200 or B200"),
        (
            (a_card("a"), a_card("b", klass="T4")),
            gpu(1, cards=2, card_classes=("L4",)),
            "no_card_of_class",
            "2 (L4, T4)",
        ),
        (
            (a_card("a"),),
            gpu(24),
            "too_little_card_memory",
            "needs 24.0 GiB of one card and its cards can give 23.0 GiB",
        ),
        ((a_card("a"), a_card("b")), gpu(24), "too_little_card_memory", "can give 2 x 23.0 GiB"),
        ((a_card("a"), a_card("b")), gpu(47, cards=2), "too_little_card_memory", "needs 47.0 GiB over 2 cards"),
        ((a_card("a"), a_card("b")), gpu(46, cards=2), "", ""),
        (
            (a_card("a"), a_card("b")),
            gpu(46, cards=2, layer=5 * GIB),
            "too_little_card_memory",
            "50.0 GiB over 2 cards, in layers of 5.0 GiB",
        ),
        ((a_card("a"), a_card("b")), gpu(40, cards=2, layer=5 * GIB), "", ""),
        ((a_card("a"), a_card("b", memory=80 * GIB)), gpu(60, cards=2), "", ""),
        (
            (a_card("a"), a_card("b", memory=80 * GIB)),
            gpu(60, cards=2, even=True),
            "too_little_card_memory",
            "needs 30.0 GiB of each of 2 cards and its cards can give 23.0 GiB, 76.8 GiB",
        ),
        (
            (a_card("a", foreign=20 * GIB),),
            gpu(10),
            "no_card_memory_now",
            "needs 10.0 GiB of one card and its cards have now 3.0 GiB (20.0 GiB held by other programs)",
        ),
        ((a_card("a", foreign=20 * GIB), a_card("b")), gpu(10), "", ""),
        ((a_card("a", problem="Xid 79"),), gpu(1), "cards_unhealthy", "card a: Xid 79"),
        ((a_card("a", problem="Xid 79"), a_card("b")), gpu(1), "", ""),
        ((a_card("a", maintenance="cordoned"),), gpu(1), "cards_in_maintenance", "card a is cordoned"),
    ],
)
def test_cards_are_refused_with_figures(
    cards: tuple[CardView, ...], profile: ProfileView, code: str, words: str
) -> None:
    found = look(node(*cards), profile)
    assert found.code == code
    assert words in found.message
    assert (found.answer is Answer.OK) == (code == "")


@pytest.mark.parametrize("code", ["no_card_memory_now", "cards_unhealthy", "cards_in_maintenance"])
def test_what_may_pass_is_told_from_what_does_not(code: str) -> None:
    fields = {
        "no_card_memory_now": {"foreign": 23 * GIB},
        "cards_unhealthy": {"problem": "Xid 79"},
        "cards_in_maintenance": {"maintenance": "drained"},
    }[code]
    assert look(node(a_card(**fields)), gpu(1)) == replace(look(node(a_card(**fields)), gpu(1)), answer=Answer.NOT_NOW)
    assert look(node(a_card(**fields)), gpu(24)).answer is Answer.NEVER  # the hardware comes first


# --- F08: 4 GB lie on card 0, and 43 GB shall go over two cards of 24 GB

F08 = node(a_card("zero", foreign=4 * GIB), a_card("one"))


def test_f08_layers_go_where_each_card_has_room_for_them() -> None:
    profile = gpu(0, cards=2, layer=GIB // 2)
    profile = replace(profile, card_memory=43 * GB)  # 40.05 GiB, in 81 layers of half a GiB
    assert look(F08, profile).answer is Answer.OK
    found = chosen(F08, profile)
    assert found == {"one": 45 * GIB // 2, "zero": 18 * GIB}
    assert found["zero"] <= L4 - 4 * GIB
    assert found["one"] <= L4


def test_f08_what_two_cards_cannot_hold_between_them_is_refused_with_what_each_has() -> None:
    found = look(F08, gpu(43, cards=2))  # 43 GiB; 19.04 and 23.04 are there
    assert (found.answer, found.code) == (Answer.NOT_NOW, "no_card_memory_now")
    assert found.message == (
        "it needs 43.0 GiB over 2 cards and its cards have now 19.0 GiB (4.0 GiB held by other programs), 23.0 GiB"
    )


def test_f08_even_shares_are_judged_by_the_fullest_card() -> None:
    found = look(F08, gpu(43, cards=2, even=True))
    assert found.code == "no_card_memory_now"
    assert "21.5 GiB of each of 2 cards" in found.message
    assert look(F08, gpu(38, cards=2, even=True)).answer is Answer.OK
    assert chosen(F08, gpu(38, cards=2, even=True)) == {"one": 19 * GIB, "zero": 19 * GIB}


def test_f09_a_card_that_another_program_took_is_out_named_with_its_reason_and_back_when_freed() -> None:
    taken, free = (node(a_card("big", memory=80 * GIB, klass="H100", foreign=size * GIB)) for size in (79, 0))
    found = look(taken, gpu(60))
    assert (found.answer, found.code) == (Answer.NOT_NOW, "no_card_memory_now")
    assert "its cards have now 0 B (79.0 GiB held by other programs)" in found.message
    assert look(free, gpu(60)).answer is Answer.OK


def test_f10_what_a_replica_gave_back_of_a_card_is_there_at_once() -> None:
    profile = gpu(20)
    model, host = a_model(profiles=(profile,)), node(a_card("a"))
    share = Share(node_id=host.id, memory=GIB, cards=(("a", 20 * GIB),))
    board = Board(World(models=(model,), nodes=(host,), replicas=(a_replica(model, host, id="r", shares=(share,)),)))
    assert feasible(board, host, profile).code == "no_card_memory_now"
    assert feasible(board, host, profile, without=["r"]).answer is Answer.OK
    board.drop("r")
    assert feasible(board, host, profile).answer is Answer.OK


def test_several_small_replicas_share_a_card_by_its_memory() -> None:
    room, profile = Room(node(a_card("a")), 0), gpu(5)
    model, taken = a_model(profiles=(profile,)), 0
    while not why_not(room, profile):
        share = share_of(room, profile)
        room.take(a_replica(model, room.node, shares=(share,)), share, 1, lifted=False)
        taken += 1
    assert taken == 4  # of 23.04 GiB
    assert room.cards == [L4 - 20 * GIB]


# --- which of them


def test_spread_takes_the_emptiest_cards_and_pack_the_fullest_that_hold_it() -> None:
    host = node(a_card("a", foreign=4 * GIB), a_card("b"), a_card("c", foreign=12 * GIB), a_card("d", foreign=22 * GIB))
    one, two = gpu(10), gpu(20, cards=2, even=True)
    assert chosen(host, one) == {"b": 10 * GIB}
    assert chosen(host, one, pack=True) == {"c": 10 * GIB}
    assert chosen(host, two) == {"b": 10 * GIB, "a": 10 * GIB}
    assert chosen(host, two, pack=True) == {"a": 10 * GIB, "c": 10 * GIB}


def test_equal_cards_are_taken_in_the_order_of_their_names() -> None:
    assert list(chosen(node(a_card("b"), a_card("a")), gpu(10))) == ["a"]


def test_only_cards_of_a_class_that_the_profile_may_use_are_taken() -> None:
    host = node(a_card("a", memory=80 * GIB, klass="A100"), a_card("b"))
    assert chosen(host, gpu(10, card_classes=("L4",))) == {"b": 10 * GIB}


def test_the_processor_s_way_takes_no_card() -> None:
    share = share_of(Room(node(a_card("a")), 0), a_profile(threads=2))
    assert share == Share(node_id="node_one", memory=GIB, cores=2)


@pytest.mark.parametrize(
    ("gigabytes", "layer", "left", "layers"),
    [
        (10, 1, (20, 20), [5, 5]),
        (10, 1, (30, 10), [8, 2]),  # in proportion: 7.5 and 2.5; the odd one goes where more is left
        (11, 2, (20, 20), [3, 3]),  # six layers of two
        (12, 5, (14, 9), [2, 1]),
        (40, 1, (23, 19), [22, 18]),
        (42, 1, (23, 19), [23, 19]),
        (0, 1, (23, 19), [1, 1]),  # none without a layer
        (3, 4, (23, 4), [1, 1]),
        (24, 1, (90, 1), [23, 1]),
        (4, 1, (90, 1, 1, 1), [1, 1, 1, 1]),
    ],
)
def test_layers_are_divided_by_what_is_left_of_each_card(
    gigabytes: int, layer: int, left: tuple[int, ...], layers: list[int]
) -> None:
    profile = gpu(gigabytes, cards=len(left), layer=layer * GIB)
    assert by_layers(profile, [size * GIB for size in left]) == [count * layer * GIB for count in layers]


# --- any cards

sizes = st.integers(0, 96).map(lambda quarter: quarter * GIB // 4)
some_cards = st.lists(st.tuples(sizes, st.sampled_from(["", "", "", "Xid 79"])), min_size=1, max_size=8).map(
    lambda found: tuple(a_card(f"c{n}", foreign=size, problem=problem) for n, (size, problem) in enumerate(found))
)
ways = st.builds(
    a_profile,
    cards=st.integers(1, 8),
    card_memory=st.integers(0, 400).map(lambda quarter: quarter * GIB // 4),
    layer=st.sampled_from([0, 1, GIB, 3 * GIB, 7 * GIB]),
    even=st.booleans(),
)


def left_of(room: Room) -> Mapping[str, int]:
    return {card.uuid: free for card, free in zip(room.node.cards, room.cards, strict=True)}


@given(some_cards, ways, st.booleans())
def test_shares_hold_what_is_needed_and_are_never_over_a_card(
    cards: tuple[CardView, ...], profile: ProfileView, pack: bool
) -> None:
    room = Room(node(*cards), 0)
    if why_not(room, profile):
        return
    found = choose_cards(room, profile, pack=pack)
    assert len(dict(found)) == len(found) == profile.cards
    assert sum(size for _, size in found) >= profile.card_memory
    left = left_of(room)
    assert all(0 <= size <= left[uuid] for uuid, size in found)
    if profile.even:
        assert {size for _, size in found} == {-(-profile.card_memory // profile.cards)}
    elif profile.cards > 1:
        assert all(size % max(profile.layer, 1) == 0 for _, size in found)


@given(some_cards, ways)
def test_what_is_refused_fits_on_no_choice_of_cards(cards: tuple[CardView, ...], profile: ProfileView) -> None:
    """The cards with most left are the best choice, so they alone need to be looked at; and for even shares the least."""
    room = Room(node(*cards), 0)
    if why_not(room, profile) == "no_card_memory_now":
        best = sorted((free for _, free in cards_left(room, profile)), reverse=True)[: profile.cards]
        if profile.even or profile.cards == 1:
            assert len(best) < profile.cards or best[-1] * profile.cards < profile.card_memory
        else:
            piece = max(profile.layer, 1)
            each = [free // piece for free in best]
            need = max(-(-profile.card_memory // piece), profile.cards)
            assert len(best) < profile.cards or min(each) < 1 or sum(each) < need


@given(st.lists(st.integers(0, 100), min_size=1, max_size=8), st.integers(0, 200), st.integers(0, 9))
def test_layers_sum_to_what_is_needed_and_no_more_than_a_layer_beyond(left: list[int], need: int, layer: int) -> None:
    left.sort(reverse=True)
    profile = a_profile(cards=len(left), card_memory=need, layer=layer)
    if not holds(profile, left) or len(left) == 1:
        return
    shares, piece = by_layers(profile, left), max(layer, 1)
    assert need <= sum(shares) < max(need, piece * (len(left) - 1) + 1) + piece
    assert all(share % piece == 0 and piece <= share <= free for share, free in zip(shares, left, strict=True))
