"""An asyncio event loop in virtual time: where it would wait, its clock goes on instead."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class _Selector(selectors.DefaultSelector):  # type: ignore[misc]
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("nothing is due, and somebody waits for ever")
        self.loop.at += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual; no threads, no sockets."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.at = 0.0
        super().__init__(selector)

    def time(self) -> float:
        return self.at


class LoopClock:
    """The product's Clock by a virtual loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return 1_000_000.0 + self._loop.at

    def monotonic(self) -> float:
        return self._loop.at
