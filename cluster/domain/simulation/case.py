"""What is simulated: a fleet, its models and how they behave, and what happens to both. Times are seconds from the start."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import pi, sin
from typing import Any

from cluster.domain.types import ModelView, NodeView, ScopeView


@dataclass(frozen=True, kw_only=True)
class Load:
    """Requests for a model: `rate` per second at the most, `low` at the least.

    `kind`: `none`; `steady` (always `rate`); `wave` (between the two, once each `period`); `bursts` (`rate` for the first
    `share` of each period, `low` for the rest). `shift`: seconds that the curve is late.
    """

    kind: str = "none"
    rate: float = 0.0
    low: float = 0.0
    period: float = 3600.0
    share: float = 0.25
    shift: float = 0.0

    def at(self, moment: float) -> float:
        """Requests per second at this moment."""
        if self.kind == "none":
            return 0.0
        if self.kind == "steady":
            return self.rate
        turn = ((moment - self.shift) % self.period) / self.period
        if self.kind == "wave":
            return self.low + (self.rate - self.low) * (1 - sin(2 * pi * turn + pi / 2)) / 2
        return self.rate if turn < self.share else self.low


@dataclass(frozen=True, kw_only=True)
class Habits:
    """How a model's replicas behave. `fetch`, `start`: seconds; `work`: seconds that a request takes; `slots`: requests at
    once in one replica; `breaks`: share of its starts that fail."""

    load: Load = Load()
    fetch: float = 0.0
    start: float = 60.0
    work: float = 8.0
    slots: int = 4
    breaks: float = 0.0


KINDS = (
    "node_off", "node_on", "node_cordon", "node_drain", "node_free", "card_bad", "card_good", "foreign", "model_add",
    "model_drop", "model_change", "model_retry", "model_restart", "profile_change",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Happening:
    """Something from outside. `subject`: name of a node or a model; `card`: a card of the node by its number; `values`: the
    bytes of `foreign`, the new fields of `model_change`."""

    at: float
    kind: str
    subject: str
    card: int = 0
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Case:
    """`models`: all, those that arrive later too (`model_add`); `absent`: names of these. `twice`: share of moments at which
    a second planner works from the picture before (a lease that was lost and not missed yet)."""

    name: str
    seed: int = 0
    hours: float = 1.0
    tick: float = 20.0
    nodes: tuple[NodeView, ...] = ()
    models: tuple[ModelView, ...] = ()
    absent: frozenset[str] = frozenset()
    habits: dict[str, Habits] = field(default_factory=dict)  # by name of the model
    scopes: tuple[ScopeView, ...] = ()
    happenings: tuple[Happening, ...] = ()
    pack: bool = False
    twice: float = 0.0
