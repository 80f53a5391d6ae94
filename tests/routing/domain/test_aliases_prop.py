"""Splits over many seeds: shares are those of the weights, and a change moves no more than it must."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from routing.domain.aliases import pick
from routing.domain.snapshot import TargetEntry

SEEDS = [f"conversation {number}" for number in range(2000)]
WEIGHTS = st.lists(st.integers(1, 1000), min_size=1, max_size=6)


def targets(weights: list[int]) -> list[TargetEntry]:
    return [TargetEntry(model=f"model {number}", weight=weight) for number, weight in enumerate(weights)]


@settings(max_examples=40)
@given(weights=WEIGHTS)
def test_shares_are_those_of_the_weights(weights: list[int]) -> None:
    """Within six standard deviations of so many draws."""
    found = Counter(pick("chat", targets(weights), seed) for seed in SEEDS)
    for target in targets(weights):
        share = target.weight / sum(weights)
        bound = 6 * math.sqrt(len(SEEDS) * share * (1 - share)) + 1
        assert abs(found[target.model] - share * len(SEEDS)) <= bound


@settings(max_examples=40)
@given(
    weights=st.lists(st.integers(1, 100), min_size=2, max_size=6), place=st.integers(0, 5), weight=st.integers(1, 100)
)
def test_another_weight_moves_conversations_only_to_that_target_or_only_from_it(
    weights: list[int], place: int, weight: int
) -> None:
    place %= len(weights)
    before = targets(weights)
    after = targets([*weights[:place], weight, *weights[place + 1 :]])
    changed = before[place].model
    for seed in SEEDS[:300]:
        old, new = pick("chat", before, seed), pick("chat", after, seed)
        if old != new:
            assert (new if weight > weights[place] else old) == changed


@settings(max_examples=40)
@given(weights=st.lists(st.integers(1, 100), min_size=2, max_size=6), place=st.integers(0, 5))
def test_a_target_that_goes_moves_only_what_it_had(weights: list[int], place: int) -> None:
    every = targets(weights)
    gone = every[place % len(every)]
    left = [item for item in every if item is not gone]
    for seed in SEEDS[:300]:
        old = pick("chat", every, seed)
        assert old == gone.model or pick("chat", left, seed) == old
