"""Now and then: whether the files of models changed at their origin, and where that comes from whose origin nobody knows."""

from __future__ import annotations

import logging

from django.conf import settings

from catalog.services import adapter_updates, origins, tracing
from cluster import selectors
from cluster.selectors.kept import weights_sizes
from llmgw_site.lib.logs import event
from workers.celery import app

log = logging.getLogger(__name__)


@app.task(name="workers.tasks.origins.check")
def check() -> None:
    """Ask for the models and adapters that were not asked for within LLMGW_UPDATE_CHECK seconds."""
    every = settings.CONFIG.update_check
    if not every:
        return
    changed = (*origins.check_all(older_than=every), *adapter_updates.check_all(older_than=every))
    if changed:
        event(log, "updates_found", models=changed)


@app.task(name="workers.tasks.origins.trace")
def trace() -> None:
    """Look for the origin of one model, adapter or version; of none where updates are not asked for."""
    if not settings.CONFIG.update_check:
        return
    looked = tracing.trace_next(weights_sizes, now=selectors.database_now())
    if looked is not None:
        of, found = looked
        event(log, "origin_traced", of=of.name, repository=found.repository if found else None)
