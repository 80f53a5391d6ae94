"""cluster.domain.memory: a word where a replica takes more than it holds."""

from __future__ import annotations

import pytest

from cluster.domain.memory import card_warning, warning
from llmgw_site.lib.units import GIB


@pytest.mark.parametrize(
    ("held", "measured", "told"),
    [
        (20 * GIB, None, False),  # not told
        (20 * GIB, 0, False),
        (20 * GIB, 20 * GIB, False),
        (20 * GIB, 21 * GIB, False),  # a twentieth more
        (20 * GIB, 21 * GIB + 1, True),
        (0, 0, False),
        (0, 1, True),
    ],
)
def test_a_twentieth_more_than_held_is_no_word_worth(held: int, measured: int | None, told: bool) -> None:
    assert bool(warning(held, measured)) is told
    assert bool(card_warning(held, measured, learned=True)) is told


def test_the_words_have_both_figures_and_what_comes_of_it() -> None:
    assert warning(GIB, 2 * GIB) == (
        "it takes 2.0 GiB and holds 1.0 GiB: its node may run short; replicas that start from now on hold what was measured"
    )
    words = "it takes 9.0 GiB of its cards and holds 6.0 GiB: others on them may fail to start or run out of memory"
    assert card_warning(6 * GIB, 9 * GIB, learned=True) == (
        f"{words}; replicas that start from now on hold what was measured"
    )
    assert card_warning(6 * GIB, 9 * GIB, learned=False) == f"{words}; declare more (card_memory)"
