"""The tick: world, decide, apply. Any worker may run it; apply's lock keeps two of them apart."""

from __future__ import annotations

import logging
from functools import lru_cache

import httpx
from django.conf import settings
from django.db import IntegrityError, OperationalError

from cluster import selectors
from cluster.services import apply, identity
from llmgw_site.lib.logs import event
from routing import services
from workers.celery import app

log = logging.getLogger(__name__)

HEARD = 2.0
"""Seconds in which `web` must answer to count as processing heartbeats."""


@app.task(name="workers.tasks.reconcile.reconcile")
def reconcile() -> None:
    """One look. A database that is busy, or a row that went while the plan was written, is no fault: the next tick
    comes in seconds."""
    try:
        look()
    except (OperationalError, IntegrityError) as error:
        event(log, "reconcile_put_off", level=logging.WARNING, reason=str(error))


def look() -> apply.Applied:
    """Decide on the present world and write what follows; then publish what nodes need to know."""
    if listening():
        identity.listened(now=selectors.database_now())
    now = selectors.database_now()
    plan, _ = selectors.statuses(selectors.world(now), now)
    applied = apply.commit(plan)
    for op in applied.done:
        event(log, "plan_op_applied", op=type(op).__name__.lower(), subject=op.subject, why=op.reason)
    services.publish()
    return applied


def listening() -> bool:
    """Whether `web`, which takes heartbeats in, answers at this moment (cluster/domain/health.py needs to know)."""
    try:
        return _web().get("http://web/internal/healthz").status_code < 500
    except httpx.HTTPError:
        return False


@lru_cache(maxsize=1)
def _web() -> httpx.Client:
    """One client for the life of the process. Over the unix socket there is no TLS, so no certificates are loaded."""
    transport = httpx.HTTPTransport(uds=str(settings.CONFIG.web_socket), verify=False)
    return httpx.Client(transport=transport, timeout=HEARD)
