"""Reading what may hang: a sick driver, a dead network disk. It costs one stuck thread and fresh figures, never the agent."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)
T = TypeVar("T")
TIMEOUT = 5.0
"""Seconds that a reading may take."""


class Patient(Generic[T]):
    """Reads in a thread of its own, one at a time, that no end of the process waits for. `late`: the last reading has not
    come back yet; `failed`: why it brought nothing, else empty; `read_at`: when the last good one ended, by the clock that
    only rises."""

    def __init__(self, read: Callable[[], T], first: T, *, name: str) -> None:
        self._read, self._last, self._name = read, first, name
        self._thread: threading.Thread | None = None
        self._one = threading.Lock()
        self.late = False
        self.failed = ""
        self.read_at = time.monotonic()

    def now(self) -> T:
        """A fresh reading; the last good one while it hangs or fails. Blocks for at most TIMEOUT: call it in a thread."""
        with self._one:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(TIMEOUT)
        self.late = thread.is_alive()
        return self._last

    def _work(self) -> None:
        try:
            self._last = self._read()
            self.failed, self.read_at = "", time.monotonic()
        except Exception as error:
            self.failed = f"{type(error).__name__}: {error}"
            event(log, f"{self._name}_unreadable", level=logging.WARNING, reason=self.failed)
