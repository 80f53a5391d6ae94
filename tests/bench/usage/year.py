"""The rows of such a year, made inside the database. Everything follows from its numbers: two runs make the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection

from catalog.models import ApiKey, Budget, Organisation, Project, Team
from routing.domain.rollups import QUARTER, SUMS
from routing.models import UsageDay, UsageQuarter

QUARTERS = timedelta(days=40)
"""How long those are kept (workers.tasks.sweep)."""
TOKENS_IN, TOKENS_OUT, CACHED, MICRO = 2_000, 400, 800, 700
"""Of each request; MICRO is what it costs, in millionths."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """`each`: models that a key asks in a day; `busy`: one in so many keys is used in a quarter of an hour."""

    days: int = 365
    requests: int = 10_000_000
    teams: int = 30
    projects: int = 150
    keys: int = 1_200
    models: int = 12
    each: int = 3
    busy: int = 3


def fill(size: Size, now: datetime) -> dict[str, int]:
    """Scopes, keys, budgets, and the sums until `now`; how many rows there are of the latter."""
    scopes(size)
    with connection.cursor() as cursor:
        _numbers(cursor, size, now)
        per_row = size.requests // (size.keys * size.each)
        # name: a sum of one row; every 50th request failed, every 100th was refused or is estimated
        values = {
            "requests": per_row, "failed": per_row // 50, "refused": per_row // 100, "estimated": per_row // 100,
            "prompt_tokens": per_row * TOKENS_IN, "completion_tokens": per_row * TOKENS_OUT, "cached_tokens": per_row * CACHED,
            "reasoning_tokens": 0, "audio_seconds": 0, "cost": per_row * MICRO,
        }  # fmt: skip
        sums = ", ".join(f"{values[name]} + d.n + k.n" for name in SUMS)
        model = f"(k.n * 7 + d.n / 30 + i.n * 5) % {size.models}"
        cursor.execute(
            f"INSERT INTO {UsageDay._meta.db_table} (day, key_id, project_id, model_asked, model_served, {', '.join(SUMS)}) "
            f"SELECT d.day, k.key_id, k.project_id, m.name, m.name, {sums} FROM bench_day d CROSS JOIN bench_key k "
            f"JOIN bench_model i ON i.n < {size.each} JOIN bench_model m ON m.n = {model} ORDER BY d.day, k.key_id"
        )
        cursor.execute(
            f"INSERT INTO {UsageQuarter._meta.db_table} (start, key_id, project_id, cost) "
            f"SELECT q.start, k.key_id, k.project_id, {size.requests // 96 // (size.keys // size.busy) * MICRO} "
            f"FROM bench_quarter q JOIN bench_key k ON (k.n + q.n) % {size.busy} = 0 ORDER BY q.start, k.key_id"
        )
        if (
            connection.vendor == "postgresql" and not connection.in_atomic_block
        ):  # its own housekeeping would have come by
            cursor.execute("VACUUM ANALYZE")
    return {table._meta.db_table: table._default_manager.count() for table in (UsageDay, UsageQuarter)}


def scopes(size: Size) -> None:
    """Projects and keys in teams of one organisation, with a month's budget each team and a day's for every 20th key."""
    organisation = Organisation.objects.create(name="acme")
    teams = [Team(name=f"team-{n}", organisation=organisation) for n in range(size.teams)]
    Team.objects.bulk_create(teams)
    projects = [Project(name=f"project-{n}", team=teams[n % size.teams]) for n in range(size.projects)]
    Project.objects.bulk_create(projects)
    keys = [
        ApiKey(name=f"key-{n}", project=projects[n % size.projects], sha256=f"{n:064x}", prefix=f"sk-llmgw-{n:06d}", created_by="bench")
        for n in range(size.keys)
    ]  # fmt: skip
    ApiKey.objects.bulk_create(keys)
    zones = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")
    budgets = [
        Budget(team=row, period="month", amount=Decimal(100_000), zone=zones[n % 4]) for n, row in enumerate(teams)
    ]
    budgets += [
        Budget(key=row, period="day", amount=Decimal(10), zone=zones[n % 4]) for n, row in enumerate(keys[::20])
    ]
    Budget.objects.bulk_create(budgets)


def _numbers(cursor: Any, size: Size, now: datetime) -> None:
    """Tables of what rows are made of, numbered; those of quarters end at `now`, as the last day does."""
    today, kinds = now.astimezone(UTC).date(), {"date": "date", "time": "timestamp with time zone"}
    if connection.vendor == "sqlite":
        kinds = {"date": "date", "time": "datetime"}
    begin = datetime(today.year, today.month, today.day, tzinfo=UTC) - QUARTERS
    tables: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
        "bench_day": (f"n integer, day {kinds['date']}", [(n, _day(today - timedelta(days=size.days - 1 - n))) for n in range(size.days)]),
        "bench_key": ("n integer, key_id varchar(40), project_id varchar(40)", [
            (n, pk, project) for n, (pk, project) in enumerate(ApiKey.objects.order_by("sha256").values_list("pk", "project_id"))
        ]),
        "bench_model": ("n integer, name varchar(200)", [(n, f"org/model-{n}") for n in range(size.models)]),
        "bench_quarter": (f"n integer, start {kinds['time']}", [
            (n, connection.ops.adapt_datetimefield_value(begin + n * QUARTER)) for n in range((now - begin) // QUARTER + 1)
        ]),
    }  # fmt: skip
    for name, (columns, rows) in tables.items():
        cursor.execute(f"CREATE TEMPORARY TABLE {name} ({columns})")
        cursor.executemany(f"INSERT INTO {name} VALUES ({', '.join(['%s'] * len(rows[0]))})", rows)


def _day(day: date) -> Any:
    return connection.ops.adapt_datefield_value(day)
