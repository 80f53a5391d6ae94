"""What fell between: jobs whose worker died or whose wake-up was lost. Housekeeping: what is old is forgotten."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
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
"""Seconds of pruning in one go; what is left is the next one's."""
LONGEST_PAUSE = 0.2
"""Seconds between two batches at most."""
Age = tuple[float, Callable[..., int]]
"""Days that something is kept, and what forgets it."""


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
    measuring.prune(now)
    if dropped := weights.give_up(before=now - GIVEN_UP):
        event(log, "weights_given_up", versions=dropped)
    ages: dict[str, Age] = {
        "events": (config.event_days, events.prune),
        "jobs": (config.job_days, jobs.prune),
        "keys": (config.key_days, keys.prune),
        "tokens": (config.key_days, tokens.prune),
        "join_tokens": (config.key_days, joining.prune),
        "certificates": (config.key_days, authority.prune),
    }
    _forget(ages, now, until)
    while time.monotonic() < until and (gone := events.prune_decisions(limit=BATCH)):
        event(log, "pruned", what="decisions", rows=gone)
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()


@app.task(name="workers.tasks.sweep.prune_usage")
def prune_usage() -> None:
    """Forget usage records, and their sums, that are older than their settings say (0: for ever)."""
    config, until = settings.CONFIG, time.monotonic() + BUDGET
    now = selectors.from_unix(selectors.database_now())
    ages: dict[str, Age] = {
        "usage": (config.usage_days, services.prune_usage),
        "rollups": (config.rollup_days, services.prune_rollups),
        "quarters": (SPENT_DAYS, services.prune_quarters),
    }
    _forget(ages, now, until)


def _forget(ages: Mapping[str, Age], now: datetime, until: float) -> None:
    """A batch of each in turn, so that much of one keeps none of the others; and after each a pause as long as it took, so that
    whoever writes meanwhile waits for one batch at most. `until`: on the monotonic clock."""
    left = {what: age for what, age in ages.items() if age[0]}
    gone: Counter[str] = Counter()
    while left and time.monotonic() < until:
        for what, (days, forget) in list(left.items()):
            began = time.monotonic()
            rows = forget(before=now - timedelta(days=days), limit=BATCH)
            gone[what] += rows
            if rows < BATCH:
                del left[what]
            else:
                time.sleep(min(LONGEST_PAUSE, time.monotonic() - began))
    for what, rows in gone.items():
        if rows:
            event(log, "pruned", what=what, rows=rows, older_than_days=ages[what][0], more=what in left)
