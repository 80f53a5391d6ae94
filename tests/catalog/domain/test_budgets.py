"""catalog.domain.budgets: periods by time zones' midnights, and how a budget stands."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.domain.budgets import Standing, moved, span, standing


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("period", "zone", "now", "start", "end"),
    [
        ("day", "UTC", "2026-03-01T00:00", "2026-03-01T00:00", "2026-03-02T00:00"),
        ("day", "Asia/Kathmandu", "2026-03-01T18:14", "2026-02-28T18:15", "2026-03-01T18:15"),
        ("day", "Asia/Kathmandu", "2026-03-01T18:15", "2026-03-01T18:15", "2026-03-02T18:15"),
        ("day", "Europe/Berlin", "2026-03-29T10:00", "2026-03-28T23:00", "2026-03-29T22:00"),  # 23 hours
        ("day", "Europe/Berlin", "2026-10-25T10:00", "2026-10-24T22:00", "2026-10-25T23:00"),  # 25 hours
        ("day", "America/Santiago", "2026-09-06T12:00", "2026-09-06T04:00", "2026-09-07T03:00"),  # no midnight
        ("month", "UTC", "2026-12-31T23:59", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("month", "America/New_York", "2026-03-01T04:59", "2026-02-01T05:00", "2026-03-01T05:00"),
        ("month", "America/New_York", "2026-03-31T12:00", "2026-03-01T05:00", "2026-04-01T04:00"),
        ("month", "UTC", "2028-02-29T12:00", "2028-02-01T00:00", "2028-03-01T00:00"),
    ],
)
def test_a_period_begins_where_the_clocks_of_its_zone_say(
    period: str, zone: str, now: str, start: str, end: str
) -> None:
    found = span(period, ZoneInfo(zone), at(now))
    assert (found.start, found.end) == (at(start), at(end))


@given(
    st.sampled_from(["day", "month"]),
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/Santiago", "Pacific/Apia", "Australia/Lord_Howe"]),
    st.integers(1_577_836_800, 2_208_988_800).map(lambda s: datetime.fromtimestamp(s, tz=UTC)),
)  # fmt: skip
def test_periods_follow_each_other_on_quarters_of_an_hour(period: str, zone: str, now: datetime) -> None:
    found = span(period, ZoneInfo(zone), now)
    assert found.start <= now < found.end
    assert found.start.minute % 15 == 0
    assert span(period, ZoneInfo(zone), found.end).start == found.end
    assert span(period, ZoneInfo(zone), found.start - timedelta(seconds=1)).end == found.start


@pytest.mark.parametrize(
    ("spent", "amount", "warn_at", "says"),
    [
        (0, 100, 0.8, Standing.OK),
        (79, 100, 0.8, Standing.OK),
        (80, 100, 0.8, Standing.WARNED),
        (99, 100, None, Standing.OK),
        (100, 100, None, Standing.SPENT),
        (900, 100, 0.8, Standing.SPENT),
        (0, 0, 0.8, Standing.SPENT),
        (0, 100, 0.0, Standing.WARNED),
    ],
)
def test_how_a_budget_stands(spent: int, amount: int, warn_at: float | None, says: Standing) -> None:
    assert standing(spent, amount, warn_at) is says


def test_what_is_spent_is_told_by_steps() -> None:
    assert not moved(500, 509, 1000)
    assert moved(500, 510, 1000)
    assert moved(500, 0, 1000)
    assert not moved(0, 0, 0)


def test_time_zones_are_known_on_a_machine_that_brings_none() -> None:
    try:
        zoneinfo.reset_tzpath(to=())
        assert {"UTC", "Europe/Berlin", "Asia/Kathmandu"} <= zoneinfo.available_timezones()
        assert ZoneInfo.no_cache("Europe/Berlin").utcoffset(at("2026-07-01 12:00")) == timedelta(hours=2)
    finally:
        zoneinfo.reset_tzpath()
