"""The clock of ticks, as a thread of the worker.

Celery's own `--beat` makes a child process: it costs as much memory as the worker, and it outlives a worker that was
killed, so that ticks come doubled from then on. Nothing is remembered between starts: every tick is level-triggered.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery import bootsteps
from celery.beat import Scheduler, Service

from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)

REST = 2.0
"""Seconds to wait after a defect of the clock before it is started again."""


class Beat(bootsteps.StartStopStep):  # type: ignore[misc]
    """A step of the worker's start: runs the schedule until the worker stops."""

    label = "beat thread"
    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        self._stopped = threading.Event()
        self._service: Any = None

    def start(self, worker: Any) -> None:
        threading.Thread(target=self._run, args=(worker.app,), name="beat", daemon=True).start()

    def stop(self, worker: Any) -> None:
        self._stopped.set()
        if self._service is not None:
            self._service.stop()

    terminate = stop

    def _run(self, app: Any) -> None:
        app.set_current()
        while not self._stopped.is_set():
            self._service = Service(app, max_interval=1, scheduler_cls=Scheduler, remote_control=False)
            try:
                self._service.start()
            except Exception as error:
                event(log, "beat_broke", level=logging.ERROR, reason=str(error))
                self._stopped.wait(REST)
