"""One look at one job; ends within seconds, and wakes itself up again while the job is open."""

from __future__ import annotations

import logging
import threading

from celery.exceptions import SoftTimeLimitExceeded
from django.db import InterfaceError, OperationalError

from llmgw_site.lib.logs import event
from workers import dispatch, jobs
from workers.celery import app
from workers.tasks import bench, serve, update, update_adapter

log = logging.getLogger(__name__)

KINDS = {
    "serve": serve.KIND, "update": update.UPDATE, "rollback": update.ROLLBACK, "bench": bench.KIND,
    "adapter_update": update_adapter.UPDATE, "adapter_rollback": update_adapter.ROLLBACK,
}  # fmt: skip
AT_ONCE = 3
"""Jobs that one worker works at: one fewer than its threads (`llmgw worker`), so that a tick never waits for a job."""
PAUSE = 1.0
"""Seconds after which a job that found no room is looked at again."""
_room = threading.BoundedSemaphore(AT_ONCE)


@app.task(name="workers.tasks.advance.advance")
def advance(job_id: str) -> None:
    if not _room.acquire(blocking=False):
        dispatch.advance_later(job_id, delay=PAUSE)
        return
    try:
        again_in = jobs.run(job_id, KINDS)
    except SoftTimeLimitExceeded:
        again_in = None  # the lease runs out by itself, and the sweep takes the job up again
    except (OperationalError, InterfaceError) as error:
        event(log, "job_put_off", level=logging.WARNING, job_id=job_id, reason=str(error))
        again_in = None  # as above
    finally:
        _room.release()
    if again_in is not None:
        dispatch.advance_later(job_id, delay=again_in)
