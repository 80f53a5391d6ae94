"""The real clock and the real dice. Only shells may import this; decisions get `now` as an argument."""

from __future__ import annotations

import os
import time
from typing import Protocol

from llmgw_site.lib.ids import make_id


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> float:
        """Unix time in seconds."""

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def new_id(kind: str) -> str:
    """A fresh id of this kind, from the machine's clock and dice (see `ids.make_id`)."""
    return make_id(kind, now_ms=time.time_ns() // 1_000_000, entropy=os.urandom(10))
