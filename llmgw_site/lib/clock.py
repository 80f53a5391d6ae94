"""The real clock and the real dice. Only shells may import this; decisions get `now` as an argument."""

from __future__ import annotations

import os
import time
from typing import Protocol

from llmgw_site.lib.ids import dated, spelled


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


_rests: list[str] = []
"""The random parts of the next ids: one system call serves 256 of them. A child of a fork draws its own."""
os.register_at_fork(after_in_child=_rests.clear)


def new_id(kind: str) -> str:
    """A fresh id of this kind, from the machine's clock and dice (see `ids.make_id`)."""
    try:
        drawn = _rests.pop()
    except IndexError:
        text = spelled(os.urandom(16 * 256))
        _rests.extend(text[at : at + 16] for at in range(16, len(text), 16))
        drawn = text[:16]
    return dated(kind, now_ms=time.time_ns() // 1_000_000, rest=drawn)
