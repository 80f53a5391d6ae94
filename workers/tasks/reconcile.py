"""The tick: world, decide, apply. Any worker may run it; apply's lock keeps two of them apart."""

from __future__ import annotations

import logging

from django.db import IntegrityError, OperationalError

from cluster import selectors
from cluster.services import apply, demands
from llmgw_site.lib.logs import event
from workers import dispatch, hearing
from workers.celery import app

log = logging.getLogger(__name__)


@app.task(name="workers.tasks.reconcile.reconcile")
def reconcile() -> None:
    """One look. A database that is busy, or a row that went while the plan was written, is no fault: the next tick
    comes in seconds."""
    try:
        look()
    except (OperationalError, IntegrityError) as error:
        event(log, "reconcile_put_off", level=logging.WARNING, reason=str(error))


def look() -> apply.Applied:
    """Decide on the present world and write what follows; then publish what nodes need to know.

    Before that, have it noted that heartbeats are processed now, if they are: else no silence of a node counts.
    """
    hearing.ask()
    now = selectors.database_now()
    world = selectors.world(now)
    plan, _ = selectors.statuses(world, now)
    applied = apply.commit(plan)
    demands.looked(world=world, plan=plan, now=now)
    for op in applied.done:
        event(log, "plan_op_applied", op=type(op).__name__.lower(), subject=op.subject, why=op.reason)
    dispatch.publish_snapshot()
    dispatch.publish_map()
    return applied
