"""llmgw_site.console.selectors.quotas: the bar of what a scope holds."""

from __future__ import annotations

import pytest

from llmgw_site.console.selectors.quotas import QuotaBar, quota_bar


@pytest.mark.parametrize(
    ("held", "borrowed", "guarantee", "limit", "bar"),
    [
        (4, 0, 4, None, QuotaBar(within=100, borrowed=0, over=0, guarantee=100, limit=None)),
        (1, 0, 2, 4, QuotaBar(within=25, borrowed=0, over=0, guarantee=50, limit=100)),
        (3, 1, 2, 4, QuotaBar(within=50, borrowed=25, over=0, guarantee=50, limit=100)),
        (8, 6, 2, 4, QuotaBar(within=25, borrowed=25, over=50, guarantee=25, limit=50)),  # the limit was lowered
        (4, 4, None, None, QuotaBar(within=0, borrowed=100, over=0, guarantee=None, limit=None)),
        (0, 0, 0, 0, QuotaBar(within=0, borrowed=0, over=0, guarantee=0, limit=0)),
        (2, 0, None, 0, QuotaBar(within=0, borrowed=0, over=100, guarantee=None, limit=0)),
    ],
)
def test_the_parts_of_a_bar_are_what_is_held_and_the_marks_where_guarantee_and_limit_end(
    held: int, borrowed: int, guarantee: int | None, limit: int | None, bar: QuotaBar
) -> None:
    assert quota_bar(held, borrowed, guarantee, limit) == bar
