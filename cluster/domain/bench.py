"""How much one replica serves well: which load to try next, and what the tries say. Pure.

A load is a number of requests at once. It holds while the first token of nearly every request comes in time and none fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.domain.columns import known_fields

MOST = 256
"""Requests at once that are tried at most, of one replica."""
SHARE = 0.95
"""Of the requests, so many have to have their first token in time."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """One try. `at_once`: requests at once of each replica; `tps`: tokens a second of each; `first_s`: seconds until the first token
    of SHARE of the requests; `failed`: requests without an answer."""

    at_once: int
    tps: float
    first_s: float
    requests: int
    failed: int = 0

    def holds(self, objective: float) -> bool:
        """Whether the objective held: `objective` in seconds until the first token."""
        return self.requests > 0 and not self.failed and self.first_s <= objective

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self)}


def level(data: Mapping[str, Any]) -> Level:
    """What `as_dict` made."""
    return Level(**known_fields(Level, data))


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was measured of one replica. `at_once` 0: not even one request at a time met the objective; `tps` of one then."""

    at_once: int
    tps: float
    first_s: float


def next_load(levels: Sequence[Level], *, objective: float, most: int = MOST) -> int | None:
    """Requests at once to try next; None: enough is known.

    1. nothing was tried: one
    2. one did not hold: no more
    3. all held: twice as many, at most `most`
    4. some did not: between the most that held and the fewest that did not, until they are within an eighth
    """
    if not levels:  # 1
        return 1
    held = max((item.at_once for item in levels if item.holds(objective)), default=0)
    above = [item.at_once for item in levels if not item.holds(objective) and item.at_once > held]
    if not held:  # 2
        return None
    if not above:  # 3
        return None if held >= most else min(held * 2, most)
    low, high = held, min(above)
    return (low + high) // 2 if high - low > max(1, low // 8) else None  # 4


def found(levels: Iterable[Level], *, objective: float) -> Found:
    """The most requests at once at which the objective held, and the tokens a second that one replica gave at best below that."""
    levels = list(levels)
    good = [item for item in levels if item.holds(objective)]
    if not good:
        one = min(levels, key=lambda item: item.at_once)
        return Found(at_once=0, tps=one.tps, first_s=one.first_s)
    top = max(good, key=lambda item: item.at_once)
    return Found(at_once=top.at_once, tps=max(item.tps for item in good), first_s=top.first_s)


def nearly_all(seconds: Sequence[float]) -> float:
    """The time within which SHARE of these came; infinite for none."""
    return sorted(seconds)[max(0, math.ceil(len(seconds) * SHARE) - 1)] if seconds else math.inf
