"""What fell between: jobs whose worker died or whose wake-up was lost. Housekeeping."""

from __future__ import annotations

from cluster.services import jobs
from workers import dispatch
from workers.celery import app

KEEP_JOBS = 30 * 86_400.0
"""Seconds that an ended job is kept."""


@app.task(name="workers.tasks.sweep.sweep")
def sweep() -> None:
    for job_id in jobs.orphans():
        dispatch.advance_later(job_id)


@app.task(name="workers.tasks.sweep.prune")
def prune() -> None:
    jobs.prune(older_than=KEEP_JOBS)
