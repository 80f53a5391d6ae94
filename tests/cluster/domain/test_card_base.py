"""What each card holds beside its layers: no card is over its memory, however few layers it gets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.feasible import holds
from cluster.domain.shares import by_layers
from llmgw_site.lib.units import GIB, MIB
from tests.cluster.builders import a_profile


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
