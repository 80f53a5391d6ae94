"""What fell between: jobs whose worker died or whose wake-up was lost. Housekeeping: what is old is forgotten."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module

from django.conf import settings

from catalog.services import events, keys, tokens
from cluster import selectors
from cluster.services import authority, jobs, joining, measuring, weights
from llmgw_site.lib.logs import event
from routing import services
from workers import dispatch
from workers.celery import app

log = logging.getLogger(__name__)

BATCH = 500
"""Rows that one statement deletes: short enough for those who wait for SQLite's one writer."""
GIVEN_UP = timedelta(days=1)
"""How long after a job failed what it began to fetch is kept: tried again meanwhile, it goes on from there."""
SPENT_DAYS = 40.0
"""That what was spent by quarter of an hour is kept: longer than any month, in any time zone."""
BUDGET = 20.0
"""Seconds of pruning in one go; what is left is the next hour's."""


@app.task(name="workers.tasks.sweep.sweep")
def sweep() -> None:
    for job_id in jobs.orphans():
        dispatch.advance_later(job_id)


@app.task(name="workers.tasks.sweep.measure")
def measure() -> None:
    """Keep what replicas were seen to take."""
    found = measuring.record(selectors.from_unix(selectors.database_now()))
    if found:
        event(log, "memory_measured", digests=found)


@app.task(name="workers.tasks.sweep.prune")
def prune() -> None:
    """Forget what is older than its setting says (0: for ever), decisions about one model beyond the newest, measurements
    of what runs no more, and sessions of the console that have expired."""
    config, until = settings.CONFIG, time.monotonic() + BUDGET
    now = selectors.from_unix(selectors.database_now())
    ages: dict[str, tuple[float, Callable[..., int]]] = {
        "usage": (config.usage_days, services.prune_usage),
        "rollups": (config.rollup_days, services.prune_rollups),
        "quarters": (SPENT_DAYS, services.prune_quarters),
        "events": (config.event_days, events.prune),
        "jobs": (config.job_days, jobs.prune),
        "keys": (config.key_days, keys.prune),
        "tokens": (config.key_days, tokens.prune),
        "join_tokens": (config.key_days, joining.prune),
        "certificates": (config.key_days, authority.prune),
    }
    measuring.prune(now)
    if dropped := weights.give_up(before=now - GIVEN_UP):
        event(log, "weights_given_up", versions=dropped)
    while time.monotonic() < until and (gone := events.prune_decisions(limit=BATCH)):
        event(log, "pruned", what="decisions", rows=gone)
    for what, (days, forget) in ages.items():
        gone = last = 0
        while days and time.monotonic() < until:
            last = forget(before=now - timedelta(days=days), limit=BATCH)
            gone += last
            if last < BATCH:
                break
        if gone:
            event(log, "pruned", what=what, rows=gone, older_than_days=days, more=last == BATCH)
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()
