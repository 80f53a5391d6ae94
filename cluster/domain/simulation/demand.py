"""Requests: how many wait and are worked at, for each model, as its load and its ready replicas make it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from cluster.domain.simulation.case import Habits
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, ReplicaView

PATIENCE = 300.0
"""Seconds after which somebody who waits goes away."""


@dataclass
class Demand:
    """`backlog`: by model id, requests that came and are not answered yet."""

    habits: Callable[[str], Habits]
    backlog: dict[str, float] = field(default_factory=dict)
    arrived: float = 0.0
    answered: float = 0.0
    given_up: float = 0.0

    def step(
        self, model: ModelView, replicas: Sequence[ReplicaView], moment: float, seconds: float, now: float
    ) -> tuple[ModelView, list[ReplicaView]]:
        """The model as requests leave its standing, and its ready replicas with what they work at. `moment`: since the
        start of the run; `now`: by the cluster's clock."""
        habits = self.habits(model.id)
        ready = [item for item in replicas if item.run and item.state is ReplicaState.READY]
        came = habits.load.at(moment) * seconds if model.enabled else 0.0
        waiting = self.backlog.get(model.id, 0.0) + came
        done = min(waiting, len(ready) * habits.slots / habits.work * seconds)
        gone = max(0.0, waiting - done - habits.load.rate * PATIENCE)
        self.backlog[model.id] = waiting - done - gone
        self.arrived, self.answered, self.given_up = self.arrived + came, self.answered + done, self.given_up + gone
        busy = min(len(ready) * habits.slots, round(habits.work * done / seconds)) if ready else 0
        flying = busy + int(self.backlog[model.id])
        standing = model.standing
        if waiting >= 1.0 or (came > 0 and model.id in self.backlog):
            if ready:
                standing = replace(standing, used_at=now)
            elif model.on_demand and waiting >= 1.0:  # gateways say again and again that somebody waits
                asked = now if standing.asked_at is None else standing.asked_at
                standing = replace(standing, asked_at=asked, used_at=now)
        if standing != model.standing:
            model = replace(model, standing=standing)
        share, rest = divmod(flying, len(ready)) if ready else (0, 0)
        return model, [replace(item, in_flight=share + (place < rest)) for place, item in enumerate(ready)]
