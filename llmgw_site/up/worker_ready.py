"""Leaves a file once this process's Celery worker takes tasks, so that the supervisor need not ask it over the broker."""

from __future__ import annotations

import logging
import os
from typing import Any

from celery.signals import worker_ready
from django.conf import settings

from llmgw_site.lib import files
from llmgw_site.lib.logs import event

log = logging.getLogger("workers")


@worker_ready.connect(dispatch_uid="llmgw_site.up")
def tell(**_: Any) -> None:
    """Write our pid to the file that `service.worker_is_ready` reads."""
    event(log, "worker_ready")
    files.write_atomic(files.private_folder(settings.CONFIG.run) / "worker.ready", str(os.getpid()).encode())
