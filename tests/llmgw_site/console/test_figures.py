"""Sparklines, medians and shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_site.console.figures import HEIGHT, WIDTH, middle, percent, spark


def test_a_line_goes_from_zero_at_the_bottom_to_the_largest_value_at_the_top() -> None:
    assert spark([0, 5, 10]).line == "M0.00,32.00L50.00,16.00L100.00,0.00"


def test_what_was_not_measured_is_a_gap_and_a_lone_value_a_dot() -> None:
    drawn = spark([1, None, 1, 1])
    assert drawn.dots == "M0.00,0.00h0.01"
    assert drawn.line == "M66.67,0.00L100.00,0.00"
    assert drawn.fill.startswith("M66.67,32L")
    assert drawn.fill.endswith("L100.00,32Z")


def test_nothing_measured_draws_nothing_and_only_zeros_draw_the_base() -> None:
    assert spark([None, None]).line == ""
    assert spark([]).line == ""
    assert spark([0, 0]).line == "M0.00,32.00L100.00,32.00"


@given(st.lists(st.none() | st.floats(min_value=0, max_value=1e9), max_size=60))
def test_every_point_lies_inside_the_box(values: list[float | None]) -> None:
    drawn = spark(values)
    for pair in (drawn.line + drawn.dots).replace("M", " ").replace("L", " ").replace("h0.01", " ").split():
        x, y = (float(part) for part in pair.split(","))
        assert 0 <= x <= WIDTH + 0.01
        assert -0.01 <= y <= HEIGHT + 0.01


@pytest.mark.parametrize(
    ("values", "expected"), [([], None), ([None], None), ([3.0], 3.0), ([3.0, None, 1.0], 2.0), ([1, 9, 2], 2)]
)
def test_the_median_leaves_out_what_is_not_known(values: list[float | None], expected: float | None) -> None:
    assert middle(values) == expected


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [(1, 4, 25.0), (9, 4, 100.0), (-1, 4, 0.0), (None, 4, None), (1, None, None), (1, 0, None)],
)
def test_a_share_is_known_only_where_both_sides_are(
    part: float | None, whole: float | None, expected: float | None
) -> None:
    assert percent(part, whole) == expected
