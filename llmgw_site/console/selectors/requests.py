"""What was asked in the minutes behind us, from the usage records."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Q, Sum
from django.db.models.functions import TruncMinute

from llmgw_site.console.admission import Waited
from llmgw_site.console.figures import middle
from routing.domain.records import Outcome
from routing.models import UsageRecord

FAILED = Q(outcome=Outcome.FAILED.value)
MEDIANS_OF = 5000
"""Newest records that medians are taken of: under heavy load the older minutes have none."""


@dataclass(frozen=True, kw_only=True)
class Minute:
    """Requests that began in one minute. `first_token_s`: their median; None where none was measured."""

    requests: int = 0
    failed: int = 0
    tokens: int = 0
    first_token_s: float | None = None


def minutes(count: int, now: datetime) -> tuple[Minute, ...]:
    """The last `count` minutes, oldest first, the running one last: two queries. Medians are of the newest records."""
    newest = now.replace(second=0, microsecond=0)
    starts = [newest - timedelta(minutes=n) for n in reversed(range(count))]
    records = UsageRecord.objects.filter(started_at__gte=starts[0])
    totals = {
        row["minute"]: row
        for row in records.annotate(minute=TruncMinute("started_at"))
        .values("minute")
        .annotate(
            requests=Count("record_id"), failed=Count("record_id", filter=FAILED), tokens=Sum("completion_tokens")
        )
        .order_by("minute")
    }
    waits: dict[datetime, list[float]] = {}
    timed = (
        records.filter(first_token_s__isnull=False).order_by("-started_at").values_list("started_at", "first_token_s")
    )
    for started, wait in timed[:MEDIANS_OF]:
        assert wait is not None
        waits.setdefault(started.replace(second=0, microsecond=0), []).append(wait)
    return tuple(
        Minute(
            requests=row["requests"] if row else 0,
            failed=row["failed"] if row else 0,
            tokens=(row["tokens"] or 0) if row else 0,
            first_token_s=middle(waits.get(start, ())),
        )
        for start, row in ((start, totals.get(start)) for start in starts)
    )


AWAY = {"queue_full": "full", "queue_timeout": "late"}
"""Codes of requests that were turned away for want of room."""


def waits(names: Collection[str], aliases: Collection[str], count: int, now: datetime) -> tuple[Waited, ...]:
    """Of the last `count` minutes, oldest first, what requests waited that asked for these names, or were given to them by one of
    these aliases: three queries."""
    newest = now.replace(second=0, microsecond=0)
    starts = [newest - timedelta(minutes=n) for n in reversed(range(count))]
    asked = UsageRecord.objects.filter(model_asked__in=[*names, *aliases], started_at__gte=starts[0])
    records = asked.filter(alias_target__in=["", *names])
    found: dict[datetime, list[float]] = {}
    timed = records.filter(queue_s__isnull=False).order_by("-started_at").values_list("started_at", "queue_s")
    for started, wait in timed[:MEDIANS_OF]:
        assert wait is not None
        found.setdefault(started.replace(second=0, microsecond=0), []).append(wait)
    away = (
        records.filter(code__in=AWAY)
        .annotate(minute=TruncMinute("started_at"))
        .values_list("minute", "code")
        .annotate(Count("record_id"))
        .order_by()
    )
    refused = {(minute, AWAY[code]): number for minute, code, number in away}
    return tuple(
        Waited(
            middle_s=middle(found.get(start, ())),
            worst_s=max(found.get(start, ()), default=None),
            full=refused.get((start, "full"), 0),
            late=refused.get((start, "late"), 0),
        )
        for start in starts
    )
