"""Now and then: whether the files of models changed at their origin."""

from __future__ import annotations

import logging

from django.conf import settings

from catalog.services import origins
from llmgw_site.lib.logs import event
from workers.celery import app

log = logging.getLogger(__name__)


@app.task(name="workers.tasks.origins.check")
def check() -> None:
    """Ask for the models that were not asked for within LLMGW_UPDATE_CHECK seconds."""
    every = settings.CONFIG.update_check
    if not every:
        return
    changed = origins.check_all(older_than=every)
    if changed:
        event(log, "updates_found", models=changed)
