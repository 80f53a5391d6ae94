"""`python -m tests.bench.usage.one SIZE`: measures on the database that DATABASE_URL names, else on a file of SQLite, and writes what it
found as JSON to standard output. A process for itself: Django knows one database."""

from __future__ import annotations

import logging
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import orjson

RUNS, BATCH = 3, 500
REPORTS = {
    "year by day": "by=day", "year by model": "by=model", "year by key": "by=key", "year by month and project": "by=month,project",
    "year by month, model, project and key, CSV": "by=month,model,project,key&as=csv",
    "30 days by day, model and project, CSV": "by=day,model,project&days=30&as=csv", "30 days by key": "by=key&days=30",
    "year of one team by day": "by=day&team={team}",
}  # fmt: skip


def main(text: str) -> dict[str, Any]:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django

    django.setup()
    logging.disable(logging.CRITICAL)  # there is no broker, and nobody to wake up
    from django.core.management import call_command
    from django.db import connection

    from tests.bench.usage.year import Size, fill

    size, now = Size(**orjson.loads(text)), datetime.now(UTC)
    call_command("migrate", verbosity=0)
    began = time.perf_counter()
    rows = fill(size, now)
    found: dict[str, Any] = {"database": connection.vendor, "rows": rows, "filled_s": time.perf_counter() - began}
    found |= {"reports_ms": _reports(size, now), "budgets_ms": _budgets(now), **_records(now)}
    return found


def _reports(size: Any, now: datetime) -> dict[str, float]:
    from django.contrib.auth.models import User
    from django.test import Client

    from catalog.models import RoleGrant, Team

    team = Team.objects.get(name="team-1")
    admin, member = (
        User.objects.create_user(name, is_staff=True, is_superuser=name == "root") for name in ("root", "ann")
    )
    RoleGrant.objects.create(user=member, role="viewer", team=team)
    clients = {name: Client() for name in ("root", "ann")}
    clients["root"].force_login(admin)
    clients["ann"].force_login(member)
    until = (now + timedelta(days=1)).date()
    paths = {}
    for name, query in REPORTS.items():
        days = 30 if "days=30" in query else size.days
        query = query.replace("&days=30", "").format(team=team.pk)
        paths[name] = ("root", f"/api/v1/usage/report?since={until - timedelta(days=days)}&until={until}&{query}")
    paths |= {
        "console, 30 days": ("root", "/admin/usage?days=30"),
        "console, a year": ("root", "/admin/usage?days=365"),
        "console, a year, for a member of one team": ("ann", "/admin/usage?days=365"),
    }
    return {name: _median(partial(_get, clients[who], path)) for name, (who, path) in paths.items()}


def _get(client: Any, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.status_code, answer.content[:300])


def _budgets(now: datetime) -> float:
    """One look at all of them, as controllers have one every few seconds."""
    from routing import services

    services.look_at_budgets(now)  # the first one has things to note
    return _median(lambda: services.look_at_budgets(now))


def _records(now: datetime) -> dict[str, Any]:
    """What 10,000 new records cost with and without their sums, and what deleting old ones takes, batch by batch."""
    from catalog.models import ApiKey
    from routing import services
    from routing.models import UsageRecord

    keys = list(ApiKey.objects.order_by("sha256").values_list("pk", "project_id"))

    def batches(name: str, at: datetime) -> list[list[dict[str, Any]]]:
        return [
            [_record(f"{name}-{b}-{n}", keys, b * BATCH + n, at) for n in range(BATCH)] for b in range(10_000 // BATCH)
        ]

    def store(name: str, at: datetime) -> tuple[float, float]:
        took = [_seconds(partial(services.store_usage, node_id="n", records=batch)) for batch in batches(name, at)]
        return sum(took), max(took)

    store("warm", now)
    with_sums, slowest = store("with", now)
    roll_up, services._roll_up = services._roll_up, lambda fresh: None
    without, _ = store("without", now)
    for n in range(4):
        store(f"old{n}", now - timedelta(days=500))
    services._roll_up = roll_up
    UsageRecord.objects.filter(record_id__startswith="old").update(stored_at=now - timedelta(days=500))
    deleted, before = [], now - timedelta(days=400)
    while True:
        began = time.perf_counter()
        gone = services.prune_usage(before=before, limit=BATCH)
        deleted.append(time.perf_counter() - began)
        if gone < BATCH:
            break
    return {
        "records_per_s": 10_000 / with_sums, "batch_ms": {"mean": 1000 * with_sums / 20, "most": 1000 * slowest},
        "sums_ms_per_10000": 1000 * (with_sums - without), "sums_share": 1 - without / with_sums,
        "deleted_per_s": BATCH * (len(deleted) - 1) / sum(deleted),
        "delete_batch_ms": {"median": 1000 * statistics.median(deleted), "most": 1000 * max(deleted)},
    }  # fmt: skip


def _record(record_id: str, keys: list[tuple[str, str]], n: int, at: datetime) -> dict[str, Any]:
    key, project = keys[n * 7 % len(keys)]
    return {
        "record_id": record_id, "request_id": f"req-{record_id}", "started_at": at.timestamp() - n % 60, "endpoint": "chat.completions",
        "stream": True, "key_id": key, "project_id": project, "model_asked": f"org/model-{n % 12}", "model_served": f"org/model-{n % 12}",
        "replica_id": f"rep_{n % 40}", "node_id": f"node_{n % 20}", "outcome": "ok", "status": 200, "queue_s": 0.01, "first_token_s": 0.2,
        "total_s": 3.0, "prompt_tokens": 2_000, "completion_tokens": 400, "cached_tokens": 800, "finish_reason": "stop", "cost": 700,
    }  # fmt: skip


def _median(work: Callable[[], Any]) -> float:
    return 1000 * statistics.median(_seconds(work) for _ in range(RUNS))


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.stdout.write(orjson.dumps(main(sys.argv[1])).decode())
