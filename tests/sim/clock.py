"""Virtual time: what is due is done in order, and nothing waits."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable


class Clock:
    """True time, in seconds, which nobody in the simulated cluster can read; their clocks are derived from it."""

    def __init__(self, seed: int) -> None:
        self.now = 1_000_000.0
        self.dice = random.Random(seed)
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + max(0.0, seconds), next(self._numbers), do))

    def run(self, seconds: float) -> None:
        """Let so much time go by."""
        until = self.now + seconds
        while self._due and self._due[0][0] <= until:
            self.now, _, do = heapq.heappop(self._due)
            do()
        self.now = until
