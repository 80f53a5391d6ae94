"""Sums of usage records: by day, key, project, model and target of an alias for reports; by quarter of an hour for budgets. Pure.

Days are UTC's. Quarters of an hour, because there is no time zone whose midnight is not on one: what was spent since a
midnight is a sum of whole quarters, wherever that midnight is.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple, Protocol

from routing.domain.records import Outcome

QUARTER = timedelta(minutes=15)
SUMS = (
    "requests", "failed", "refused", "estimated", "prompt_tokens", "completion_tokens", "cached_tokens",
    "reasoning_tokens", "audio_seconds", "cost",
)  # fmt: skip
"""What a roll-up adds up, in the order of its sums. `estimated`: requests whose tokens were counted from what passed."""


class Counted(Protocol):
    """A stored record."""

    record_id: str
    started_at: datetime
    key_id: str
    project_id: str
    model_asked: str
    model_served: str
    alias_target: str
    outcome: str
    estimated: bool
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    audio_seconds: int | None
    cost: int | None


class Day(NamedTuple):
    """What a roll-up is of. A request that reached no model has none: clients make up any number of names."""

    day: date
    key_id: str
    project_id: str
    model_asked: str
    model_served: str
    alias_target: str


class Quarter(NamedTuple):
    start: datetime
    key_id: str
    project_id: str


def day_of(record: Counted) -> Day:
    day, served = record.started_at.astimezone(UTC).date(), record.model_served
    asked, target = (record.model_asked, record.alias_target) if served else ("", "")
    return Day(day, record.key_id, record.project_id, asked, served, target)


def quarter_of(moment: datetime) -> datetime:
    """The quarter of an hour that this moment is in, by its start."""
    moment = moment.astimezone(UTC)
    return moment.replace(minute=moment.minute // 15 * 15, second=0, microsecond=0)


def sums(record: Counted) -> tuple[int, ...]:
    """What one record adds to SUMS; what is not known adds nothing."""
    return (
        1,
        int(record.outcome == Outcome.FAILED),
        int(record.outcome == Outcome.REFUSED),
        int(record.estimated),
        record.prompt_tokens or 0,
        record.completion_tokens or 0,
        record.cached_tokens or 0,
        record.reasoning_tokens or 0,
        record.audio_seconds or 0,
        record.cost or 0,
    )


def by_day(records: Iterable[Counted]) -> dict[Day, tuple[int, ...]]:
    """In the order of what they are of, so that batches that are stored at once wait for each other in one order."""
    found: dict[Day, tuple[int, ...]] = {}
    for record in records:
        key, more = day_of(record), sums(record)
        before = found.get(key)
        found[key] = more if before is None else tuple(a + b for a, b in zip(before, more, strict=True))
    return {key: found[key] for key in sorted(found)}


def by_quarter(records: Iterable[Counted]) -> dict[Quarter, int]:
    """What was spent, where something was; in order, too."""
    found: dict[Quarter, int] = {}
    for record in records:
        if record.cost:
            key = Quarter(quarter_of(record.started_at), record.key_id, record.project_id)
            found[key] = found.get(key, 0) + record.cost
    return {key: found[key] for key in sorted(found)}
