"""What each card holds beside its layers: no card is over its memory, however few layers it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.feasible import holds, why_not
from cluster.domain.room import Room
from cluster.domain.shares import by_layers, layers_on, share_of
from cluster.domain.types import Share
from llmgw_site.lib.units import GIB, MIB
from tests.cluster.builders import a_card, a_node, a_profile


def test_a_card_with_few_layers_pays_for_its_process_too() -> None:
    profile = a_profile(cards=2, card_memory=7200 * MIB, layer=160 * MIB, card_base=900 * MIB)
    left = (22 * GIB, 3 * GIB)
    shares = by_layers(profile, left)
    layers = [(share - 900 * MIB) // (160 * MIB) for share in shares]
    assert sum(layers) == -(-(7200 - 1800) // 160)
    assert layers == [32, 2]
    assert shares[1] == 2 * 160 * MIB + 900 * MIB


def test_a_card_without_room_for_a_process_and_a_layer_does_not_count() -> None:
    profile = a_profile(cards=2, card_memory=4 * GIB, layer=GIB, card_base=GIB)
    assert not holds(profile, (80 * GIB, 2 * GIB - 1))
    assert holds(profile, (80 * GIB, 2 * GIB))
    assert by_layers(profile, (80 * GIB, 2 * GIB)) == [2 * GIB, 2 * GIB]


def test_each_card_gets_a_layer_though_another_could_hold_them_all() -> None:
    """llama.cpp uses no card that has none, and its room would be held for nothing."""
    profile = a_profile(cards=3, card_memory=2 * GIB, layer=GIB)  # two layers, as far as is known, for three cards
    assert by_layers(profile, (80 * GIB, 80 * GIB, GIB)) == [GIB, GIB, GIB]
    assert not holds(profile, (80 * GIB, 80 * GIB, GIB - 1))


@given(
    left=st.lists(st.integers(0, 96).map(lambda n: n * GIB // 4), min_size=2, max_size=8).map(sorted),
    base=st.integers(0, 8).map(lambda n: n * GIB // 4),
    layers=st.integers(0, 200),
    layer=st.sampled_from([1, 100 * MIB, GIB, 3 * GIB]),
)
def test_what_fits_is_given_whole_and_over_no_card(left: list[int], base: int, layers: int, layer: int) -> None:
    most_first, cards = left[::-1], len(left)
    profile = a_profile(cards=cards, card_memory=layers * layer + cards * base, layer=layer, card_base=base)
    wanted = max(layers, cards)
    each = [(free - base) // layer for free in most_first]
    room = min(each) >= 1 and sum(each) >= wanted
    assert holds(profile, most_first) == room
    if room:
        shares = by_layers(profile, most_first)
        assert all(base + layer <= share <= free for share, free in zip(shares, most_first, strict=True))
        assert sum(shares) == wanted * layer + cards * base


# --- layers as llama.cpp divides them

A_PIECE = st.integers(1, 64).map(lambda n: n * 50 * MIB)


def given_to(counts: Sequence[int], layers: int) -> list[int]:
    """How many of so many layers (the output layer counts) llama.cpp gives to each card for this `--tensor-split`: layer i
    to the first whose part, with those before it, is more than i / n, in single precision."""
    splits = np.cumsum(np.array(counts, dtype=np.float32), dtype=np.float32)
    splits /= splits[-1]
    places = [int(np.searchsorted(splits, np.float32(i) / np.float32(layers), side="right")) for i in range(layers)]
    return [places.count(card) for card in range(len(counts))]


@given(st.lists(st.integers(1, 60), min_size=2, max_size=8))
def test_numbers_of_layers_come_out_as_they_are(counts: list[int]) -> None:
    assert given_to(counts, sum(counts)) == counts


def test_bytes_do_not_where_the_output_layer_is_large() -> None:
    """Why nodes are told numbers: of 26 layers of 1 GiB and an output layer of 6, a card that gives 4 GiB would get 8."""
    assert given_to([28, 4], 27) == [24, 3]
    assert (3 - 1) * 1 + 6 == 8


@given(
    sizes=st.lists(st.integers(1, 96), min_size=2, max_size=6).map(lambda found: [size * GIB for size in found]),
    layers=st.integers(1, 100),
    layer=A_PIECE,
    tail=A_PIECE,
    base=st.integers(0, 20).map(lambda n: n * 50 * MIB),
)
def test_no_card_holds_more_than_it_was_given(sizes: list[int], layers: int, layer: int, tail: int, base: int) -> None:
    cards = tuple(a_card(f"c{place}", memory=size) for place, size in enumerate(sizes))
    total = layers * layer + tail + base * len(cards)
    profile = a_profile(cards=len(cards), card_memory=total, layers=layers, tail=tail, card_base=base)
    room = Room(a_node(cards=cards), 0)
    if why_not(room, profile):
        return
    share = share_of(room, profile)
    counts = layers_on(profile, share)
    if layers + 1 < len(cards):
        return  # more cards than layers: some of them idle
    given = given_to(counts, layers + 1)
    assert min(given) >= 1
    last = len(given) - 1
    free = {card.uuid: left for card, left in zip(room.node.cards, room.cards, strict=True)}
    for place, ((uuid, size), count) in enumerate(zip(share.cards, given, strict=True)):
        used = base + (count * layer if place < last else (count - 1) * layer + tail)
        assert used <= size <= free[uuid]
    assert total <= sum(size for _, size in share.cards) <= total + layer


def test_the_output_layer_lies_on_the_emptiest_card_which_comes_last() -> None:
    profile = a_profile(cards=2, card_memory=38 * GIB, layers=32, tail=6 * GIB)
    room = Room(a_node(cards=(a_card("a"), a_card("b", foreign=4 * GIB))), 0)
    share = share_of(room, profile)
    assert share.cards == (("b", 17 * GIB), ("a", 21 * GIB))
    assert layers_on(profile, share) == (17, 16)


@pytest.mark.parametrize(
    ("fields", "cards"),
    [
        ({"layers": 0, "layer": GIB}, (("a", 4 * GIB), ("b", 4 * GIB))),  # not known
        ({"even": True}, (("a", 4 * GIB), ("b", 4 * GIB))),
        ({}, (("a", 8 * GIB),)),
        ({}, (("a", 5 * GIB), ("b", 5 * GIB))),  # planned when other figures were known
    ],
)
def test_where_layers_do_not_add_up_bytes_are_told(fields: dict[str, Any], cards: tuple[tuple[str, int], ...]) -> None:
    profile = a_profile(**{"cards": len(cards), "card_memory": 8 * GIB, "layers": 7, "tail": GIB, **fields})
    assert layers_on(profile, Share(node_id="n", cards=cards)) == ()


def test_what_was_measured_for_the_whole_is_all_its_layers() -> None:
    profile = a_profile(cards=2, card_memory=20 * GIB, layers=16, tail=2 * GIB, card_base=GIB, layer=3 * GIB)
    assert profile.pieces == (17, GIB, GIB)
    assert replace(profile, card_memory=GIB).pieces == (17, 1, 0)
    assert replace(profile, layers=0).pieces == (6, 3 * GIB, 0)


@given(
    left=st.lists(st.integers(0, 30), min_size=2, max_size=4).map(lambda found: sorted(found, reverse=True)),
    layers=st.integers(1, 12),
    size=st.integers(1, 6),
    extra=st.integers(0, 9),
    base=st.integers(0, 3),
)
def test_whatever_fits_with_the_output_layer_on_some_card_is_held(
    left: list[int], layers: int, size: int, extra: int, base: int
) -> None:
    """Every division is tried, with the output layer on each of the cards."""
    cards, tail = len(left), size + extra
    profile = a_profile(
        cards=cards, card_memory=layers * size + tail + base * cards, layers=layers, tail=tail, card_base=base
    )
    wanted = max(layers + 1, cards)
    fits = any(
        sum(counts) == wanted
        for host in range(cards)
        for counts in product(
            *(
                range(1, max(0, free - base - (extra if place == host else 0)) // size + 1)
                for place, free in enumerate(left)
            )
        )
    )
    assert holds(profile, left) == fits
    if fits:
        assert sum(by_layers(profile, left)) == wanted * size + extra + base * cards
        assert all(share <= free for share, free in zip(by_layers(profile, left), left, strict=True))


def test_f08_layers_that_are_known_lie_where_each_card_has_room_for_them() -> None:
    """4 GiB of one of two cards of 24 GiB are taken; 43 GB in 80 layers, and an output layer of 1 GiB."""
    profile = a_profile(cards=2, card_memory=43 * 1000**3, layers=80, tail=GIB, card_base=GIB // 2)
    room = Room(a_node(cards=(a_card("zero", foreign=4 * GIB), a_card("one"))), 0)
    share = share_of(room, profile)
    counts, sizes = dict(zip(dict(share.cards), layers_on(profile, share), strict=True)), dict(share.cards)
    assert counts == {"zero": 36, "one": 45}  # of 38 and 46 that they can hold
    assert sizes["zero"] <= 24 * GIB - int(24 * GIB * 0.04) - 4 * GIB
    assert sizes["one"] <= 24 * GIB - int(24 * GIB * 0.04)
    assert not holds(replace(profile, card_memory=44 * GIB), sorted(room.cards, reverse=True))
