"""routing.domain.rollups: which sums a record belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from routing.domain.rollups import SUMS, Quarter, by_day, by_quarter, quarter_of

AT = datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC)


@dataclass
class Record:
    record_id: str = "r"
    started_at: datetime = AT
    key_id: str = "key_1"
    project_id: str = "proj_1"
    model_asked: str = "alias"
    model_served: str = "tiny"
    alias_target: str = "tiny"
    outcome: str = "ok"
    estimated: bool = False
    prompt_tokens: int | None = 10
    completion_tokens: int | None = None
    cached_tokens: int | None = 4
    reasoning_tokens: int | None = None
    audio_seconds: int | None = 10
    cost: int | None = 7


def test_records_of_one_day_key_and_model_are_one_sum() -> None:
    (key, sums), *others = by_day(
        [Record(), Record(outcome="failed", estimated=True, cost=None), Record(completion_tokens=5)]
    ).items()
    assert not others
    assert (key.day, key.key_id, key.model_asked, key.model_served) == (date(2026, 3, 1), "key_1", "alias", "tiny")
    assert dict(zip(SUMS, sums, strict=True)) == {
        "requests": 3, "failed": 1, "refused": 0, "estimated": 1, "prompt_tokens": 30, "completion_tokens": 5,
        "cached_tokens": 12, "reasoning_tokens": 0, "audio_seconds": 30, "cost": 14,
    }  # fmt: skip


def test_names_that_clients_made_up_make_no_sums_of_their_own() -> None:
    made_up = [
        Record(model_asked=f"no-such-{n}", model_served="", alias_target=f"{n}", outcome="refused") for n in range(50)
    ]
    ((key, sums),) = by_day(made_up).items()
    assert (key.model_asked, key.model_served, key.alias_target, sums[0], sums[2]) == ("", "", "", 50, 50)


def test_what_an_alias_stood_for_is_told_apart_where_the_same_model_answered() -> None:
    found = by_day([Record(), Record(alias_target="tiny-adapter"), Record(alias_target="down"), Record()])
    assert [(key.alias_target, sums[0]) for key, sums in found.items()] == [
        ("down", 1),
        ("tiny", 2),
        ("tiny-adapter", 1),
    ]


def test_a_day_is_one_of_utc_wherever_a_clock_stands() -> None:
    local = Record(started_at=datetime(2026, 3, 2, 1, 0, tzinfo=timezone(timedelta(hours=2))))
    ((key, _),) = by_day([local]).items()
    assert key.day == date(2026, 3, 1)


@pytest.mark.parametrize(("minute", "start"), [(0, 0), (14, 0), (15, 15), (44, 30), (59, 45)])
def test_quarters_begin_where_time_zones_have_midnight(minute: int, start: int) -> None:
    moment = datetime(2026, 3, 1, 18, minute, 59, 999_999, tzinfo=UTC)
    assert quarter_of(moment) == datetime(2026, 3, 1, 18, start, tzinfo=UTC)


def test_a_quarter_has_what_was_spent_and_nothing_else() -> None:
    found = by_quarter([Record(), Record(cost=None), Record(cost=0), Record(cost=3), Record(key_id="key_0", cost=1)])
    start = datetime(2026, 3, 1, 23, 45, tzinfo=UTC)
    assert list(found.items()) == [(Quarter(start, "key_0", "proj_1"), 1), (Quarter(start, "key_1", "proj_1"), 10)]
