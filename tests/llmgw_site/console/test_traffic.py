"""The figures on top of the overview."""

from __future__ import annotations

from llmgw_site.console.selectors import Cluster, Minute
from llmgw_site.console.traffic import tiles
from llmgw_site.console.views import Tile

EMPTY = Cluster(nodes=(), models=(), replicas=())


def by_title(minutes: list[Minute], into_minute: float = 30.0) -> dict[str, Tile]:
    return {tile.title: tile for tile in tiles(EMPTY, minutes, into_minute=into_minute)}


def test_rates_are_over_the_last_minutes_and_totals_over_the_window() -> None:
    shown = by_title([Minute(requests=100)] + [Minute(requests=9, tokens=270, first_token_s=0.2)] * 5)
    assert (shown["Requests"].value, shown["Requests"].unit) == ("10", "per minute")  # 45 in 4.5 minutes
    assert shown["Requests"].note == "145 in 6 min"
    assert (shown["Output"].value, shown["Output"].unit) == ("5", "tokens/s")  # 1,350 in 270 s
    assert (shown["First token"].value, shown["First token"].unit) == ("200", "ms median")


def test_failures_are_counted_only_where_there_are_some() -> None:
    assert by_title([Minute(requests=3, failed=1)] * 2)["Requests"].note == "6 in 2 min, 2 failed"


def test_what_was_not_measured_has_no_value_and_no_curve() -> None:
    shown = by_title([Minute()] * 30)
    assert shown["Requests"].value == "0"  # counted, and none came
    assert [shown[title].value for title in ("In flight now", "Output", "First token")] == ["", "", ""]
    assert [tile.spark for tile in shown.values()] == [None] * 4


def test_curves_end_with_the_last_whole_minute() -> None:
    drawn = by_title([Minute(requests=2), Minute(requests=2), Minute(requests=0)])["Requests"].spark
    assert drawn is not None
    assert drawn.line == "M0.00,0.00L100.00,0.00"


def test_slow_first_tokens_are_said_in_seconds() -> None:
    shown = by_title([Minute(requests=1, first_token_s=12.34)])["First token"]
    assert (shown.value, shown.unit) == ("12.3", "s median")
