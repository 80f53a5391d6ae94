"""The tick: world, decide, apply. Any worker may run it; apply's lock keeps two of them apart."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from django.db import IntegrityError, OperationalError

from cluster import selectors
from cluster.domain.plan import Plan
from cluster.domain.telling import Told, worth_telling
from cluster.domain.types import World
from cluster.services import apply, demands
from llmgw_site.lib.logs import event
from routing.selectors import published_mark
from routing.services import Look, look_at_budgets
from workers import dispatch, hearing
from workers.celery import app

log = logging.getLogger(__name__)
BUDGET = 10.0
"""Seconds for a plan that has to be done operation by operation; the rest is for the next look."""
BUDGETS_EVERY = 5.0
"""Seconds between two looks at what was spent of budgets in money."""
_budgets_at = 0.0
_told: Told = {}
"""What this worker has logged of the reasons why models wait."""


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
    mark, now = published_mark(), selectors.database_now()
    world = selectors.world(now)
    plan, statuses = selectors.statuses(world, now)
    applied = _committed(plan)
    demands.looked(world=world, plan=plan, now=now)
    _tell(plan, world, now)
    _look_at_budgets(now)
    for op in applied.done:
        event(log, "plan_op_applied", op=type(op).__name__.lower(), subject=op.subject, why=op.reason)
    if not applied.done:
        dispatch.publish_snapshot(Look(mark, now, world, statuses))
    elif published_mark() == mark:  # else it was told with the plan, after the commit
        dispatch.publish_snapshot()
    dispatch.publish_map()
    return applied


def _committed(plan: Plan) -> apply.Applied:
    """What is done of a plan: all of it.

    Where the whole would break a truth, which is a defect of ours, operation by operation, without those that break one:
    what is wrong about one model must not stand still all the others.
    """
    try:
        return apply.commit(plan)
    except apply.BrokenPromise as broken:
        event(log, "plan_broken", level=logging.ERROR, reason=str(broken))
    until, parts = time.monotonic() + BUDGET, []
    for op in plan.ops:
        if time.monotonic() >= until:
            break
        try:
            parts.append(apply.commit(replace(plan, ops=(op,))))
        except apply.BrokenPromise as broken:
            parts.append(apply.Applied(refused=((op, str(broken)),)))
            event(log, "plan_op_broken", level=logging.ERROR, subject=op.subject, reason=str(broken))
    return apply.Applied(
        done=tuple(op for part in parts for op in part.done), refused=tuple(op for part in parts for op in part.refused)
    )


def _look_at_budgets(now: float) -> None:
    """Now and then: what is spent is a sum of usage, which comes every few seconds."""
    global _budgets_at
    if not 0 <= now - _budgets_at < BUDGETS_EVERY:
        _budgets_at = now
        if noted := look_at_budgets(selectors.from_unix(now)):
            event(log, "budgets_noted", budgets=noted)


def _tell(plan: Plan, world: World, now: float) -> None:
    """Why models wait: when the reason is new, and now and then."""
    global _told
    news, _told = worth_telling(_told, plan.waits, now)
    for wait in news:
        model = world.model(wait.model_id)
        name = model.name if model else wait.model_id
        event(log, "model_waits", level=logging.WARNING, model=name, code=wait.code, why=wait.message)
