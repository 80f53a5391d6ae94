"""What a run has shown, in numbers that are sampled at each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster.domain.board import Board
from cluster.domain.plan import Op, Plan, Start, Stop
from cluster.domain.room import card_margin, holds_room, margin
from cluster.domain.simulation.demand import Demand
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import World

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 60
"""Columns of a chart."""


@dataclass
class Figures:
    """Series have one value for each step. Shares are of what well nodes and cards can give."""

    cores: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    cards: list[float] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    short: list[int] = field(default_factory=list)  # models with fewer ready replicas than they should have
    backlog: list[int] = field(default_factory=list)  # requests that wait
    preempted: list[int] = field(default_factory=list)  # replicas so far
    waits: Counter[str] = field(default_factory=Counter)  # steps that models waited, by code
    ops: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    longest: dict[str, float] = field(default_factory=dict)  # seconds that a model of a class waited at the longest
    _since: dict[str, float] = field(default_factory=dict)

    def count(self, op: Op, board: Board) -> None:
        name = type(op).__name__.lower()
        self.ops["preempted" if isinstance(op, Stop) and op.for_model else name] += 1
        if isinstance(op, Start) and op.grown:
            self.ops["grown"] += 1

    def sample(self, world: World, plan: Plan, moment: float, demand: Demand) -> None:
        held: Counter[str] = Counter()
        cards: Counter[str] = Counter()
        ready: Counter[str] = Counter()
        for replica in world.replicas:
            if holds_room(replica):
                for share in replica.shares:
                    held["cores:" + share.node_id] += share.cores
                    held["memory:" + share.node_id] += share.memory
                    cards.update(dict(share.cards))
            if replica.run and world.state(replica) is ReplicaState.READY:
                ready[replica.model_id] += 1
        total: Counter[str] = Counter()
        for node in world.nodes:
            if node.state is NodeState.OFFLINE:
                continue
            total["cores"] += node.cores
            total["memory"] += max(0, node.memory_total - margin(node))
            total["used cores"] += held["cores:" + node.id]
            total["used memory"] += held["memory:" + node.id]
            for card in node.cards:
                if card.usable:
                    total["cards"] += max(0, card.memory_total - card_margin(card) - card.foreign)
                    total["used cards"] += cards[card.uuid]
        for name in ("cores", "memory", "cards"):
            getattr(self, name).append(total["used " + name] / total[name] if total[name] else 0.0)
        self.ready.append(sum(ready.values()))
        self.wanted.append(sum(model.target for model in world.models))
        behind = [model for model in world.models if ready[model.id] < model.target]
        self.short.append(len(behind))
        self.backlog.append(int(sum(demand.backlog.values())))
        self.preempted.append(self.ops["preempted"])
        self.waits.update({wait.code for wait in plan.waits})
        self._since = {model.id: self._since.get(model.id, moment) for model in behind}
        for model in behind:
            klass = model.klass.name.lower()
            self.longest[klass] = max(self.longest.get(klass, 0.0), moment - self._since[model.id])


def chart(values: Sequence[float], *, most: float | None = None, width: int = WIDTH) -> str:
    """A row of bars, each the mean of its part of the values. `most`: what a full bar stands for."""
    if not values:
        return ""
    columns = min(width, len(values))
    parts = [values[len(values) * n // columns : len(values) * (n + 1) // columns] for n in range(columns)]
    means = [sum(part) / len(part) for part in parts]
    top = most if most is not None else max(means)
    return "".join(BARS[min(len(BARS) - 1, int(mean / top * len(BARS)))] if top else BARS[0] for mean in means)


def rates(values: Sequence[int]) -> list[float]:
    """What was added at each step, of a sum that only grows."""
    return [float(value - before) for before, value in zip((0, *values), values, strict=False)]
