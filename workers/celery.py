"""The Celery app. The job rows are the truth; messages only wake somebody who looks at them.

Two queues: `ticks` (reconcile, sweep) and `jobs` (pieces of jobs), so that a page of jobs never delays the loop.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging
from kombu.entity import Exchange, Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw_site.settings")

from workers.beat import Beat
from workers.imports import Loader, fixup
from workers.schedule import beat_schedule

QUEUES = ("ticks", "jobs")

app = Celery("llmgw", loader=Loader, fixups={fixup})
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.update(
    # each with an exchange and key of its own: on a shared one every message would reach both
    task_queues=tuple(Queue(name, Exchange(name), routing_key=name) for name in QUEUES),  # type: ignore[no-untyped-call]
    task_default_exchange="jobs",
    task_default_routing_key="jobs",
    task_default_queue="jobs",
    task_routes={"workers.tasks.reconcile.*": {"queue": "ticks"}, "workers.tasks.sweep.*": {"queue": "ticks"}},
    beat_schedule=beat_schedule(),
    beat_max_loop_interval=1.0,
    imports=("workers.tasks.advance", "workers.tasks.origins", "workers.tasks.reconcile", "workers.tasks.sweep"),
)
app.steps["worker"].add(Beat)


@setup_logging.connect
def _logs(**kwargs: Any) -> None:
    """Celery's processes log as all others do, not in Celery's own way."""
    from django.conf import settings

    from llmgw_site.lib import logs

    logs.setup(process="worker", level=settings.CONFIG.log_level, style=settings.CONFIG.log_style)
