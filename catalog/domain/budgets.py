"""Budgets in money: from when to when one counts, and how it stands. Pure: `now` and the time zone come in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum


class Period(StrEnum):
    DAY = "day"
    MONTH = "month"


class Standing(StrEnum):
    OK = "ok"
    WARNED = "warned"  # its warning share is spent
    SPENT = "spent"  # all of it


@dataclass(frozen=True)
class Span:
    """From `start`, until before `end`; UTC."""

    start: datetime
    end: datetime


def span(period: str, zone: tzinfo, now: datetime) -> Span:
    """The day or the month that `now` is in, where that time zone's clocks stand.

    A midnight that a clock skips (summer time that begins at midnight) is the moment that it would have been at without.
    """
    here = now.astimezone(zone)
    first = datetime(here.year, here.month, 1 if period == Period.MONTH else here.day, tzinfo=zone)
    after = (first + timedelta(days=32)).replace(day=1) if period == Period.MONTH else first + timedelta(days=1)
    return Span(first.astimezone(UTC), after.astimezone(UTC))


def standing(spent: int, amount: int, warn_at: float | None) -> Standing:
    """1. all of it is spent; a budget of nothing always is; 2. its warning share is; 3. neither. Amounts in millionths."""
    if spent >= amount:  # 1
        return Standing.SPENT
    if warn_at is not None and spent >= warn_at * amount:  # 2
        return Standing.WARNED
    return Standing.OK  # 3


STEPS = 100
"""Of a budget: what is spent is told anew where it is a step further on."""


def moved(before: int, now: int, amount: int) -> bool:
    """Whether what is spent went on, or back, by a step since it was told."""
    return abs(now - before) * STEPS >= max(amount, 1) and now != before
