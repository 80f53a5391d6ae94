"""Dice that fall alike for a seed, everywhere and for ever."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import TypeVar

T = TypeVar("T")
_MASK = (1 << 64) - 1


class Dice:
    """SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def bits(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        value = self._state
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        return value ^ (value >> 31)

    def fraction(self) -> float:
        """From 0 to below 1."""
        return (self.bits() >> 11) / (1 << 53)

    def below(self, count: int) -> int:
        return self.bits() % count

    def whole(self, low: int, high: int) -> int:
        """From `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.fraction()

    def chance(self, share: float) -> bool:
        return self.fraction() < share

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different ones."""
        left, found = list(items), []
        for _ in range(min(count, len(left))):
            found.append(left.pop(self.below(len(left))))
        return found

    def wait(self, mean: float) -> float:
        """Seconds until the next of events that come by chance, `mean` seconds apart."""
        return -mean * log(1.0 - self.fraction())
