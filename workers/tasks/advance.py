"""One look at one job; ends within seconds, and wakes itself up again while the job is open."""

from __future__ import annotations

from celery.exceptions import SoftTimeLimitExceeded

from workers import dispatch, jobs
from workers.celery import app
from workers.tasks import serve

KINDS = {"serve": serve.KIND}


@app.task(name="workers.tasks.advance.advance")
def advance(job_id: str) -> None:
    try:
        again_in = jobs.run(job_id, KINDS)
    except SoftTimeLimitExceeded:
        again_in = None  # the lease runs out by itself, and the sweep takes the job up again
    if again_in is not None:
        dispatch.advance_later(job_id, delay=again_in)
