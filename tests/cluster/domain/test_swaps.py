"""A thousand swaps of three models on demand that have room for one: nobody hangs, and nothing is left of it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from cluster.domain import invariants
from cluster.domain.reconcile import reconcile
from cluster.domain.states import ReplicaState
from cluster.domain.types import ReplicaView, Standing, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_model, a_node, a_profile, applied

NAMES = ("a", "b", "c")
TICK = 5.0
REST_AFTER = 60.0
PATIENCE = 40
"""Ticks within which each request is answered: a turn of 30 s of each of the two others, and their drains and loads."""
_NEXT = {ReplicaState.PENDING: ReplicaState.STARTING, ReplicaState.STARTING: ReplicaState.READY}


class Town:
    """One node, three models, and requests by hand; good nodes, a tick every five seconds."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        models = tuple(
            a_model(name, base=0, most=1, rest_after=REST_AFTER, profiles=(a_profile(f"{name}-cpu", memory=5 * GIB),))
            for name in NAMES
        )
        self.world = World(models=models, nodes=(a_node(memory=8 * GIB),))
        self.waiting: set[str] = set()
        self.swaps = 0

    def ask(self, name: str) -> None:
        """A request waits, as a gateway says each second: it begins an attempt where the model is at rest."""
        self.waiting.add(name)
        model = next(item for item in self.world.models if item.name == name)
        since = model.standing.asked_at
        self._remember(model.id, asked_at=self.now if since is None else since, used_at=self.now)

    def tick(self) -> None:
        for name in sorted(self.waiting):
            self.ask(name)
        plan = reconcile(self.world, self.now)
        self.world = applied(self.world, plan)
        assert invariants.check(self.world) == ()
        self.now += TICK
        moved = tuple(self._moved(item) for item in self.world.replicas)
        self.world = replace(self.world, replicas=moved)

    def _moved(self, replica: ReplicaView) -> ReplicaView:
        """What its node makes of a replica until the next tick; a request that waits for it is worked at and answered."""
        model = self.world.model(replica.model_id)
        assert model is not None
        if not replica.run:
            state = ReplicaState.STOPPED if not replica.in_flight else ReplicaState.DRAINING
            return replace(replica, state=state, in_flight=0)
        state = _NEXT.get(replica.state, replica.state)
        if state is not replica.state:
            self.swaps += state is ReplicaState.READY
            return replace(replica, state=state, state_since=self.now)
        answers = model.name in self.waiting
        self.waiting.discard(model.name)
        return replace(replica, in_flight=int(answers), used_at=self.now if answers else replica.used_at)

    def _remember(self, model_id: str, **fields: Any) -> None:
        models = tuple(
            replace(item, standing=replace(item.standing, **fields)) if item.id == model_id else item
            for item in self.world.models
        )
        self.world = replace(self.world, models=models)

    def until_rest(self) -> None:
        for _ in range(int(REST_AFTER / TICK) + 20):
            self.tick()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_f43_a_thousand_random_swaps_leave_no_hang_no_leak_and_counters_at_zero(seed: int) -> None:
    dice, town = Random(seed), Town()
    while town.swaps < 333:  # of each seed
        for name in dice.sample(NAMES, dice.randint(1, 3)):
            town.ask(name)
        for tick in range(PATIENCE * len(town.waiting)):
            if not town.waiting:
                break
            assert tick < PATIENCE * len(NAMES)
            town.tick()
        assert not town.waiting, f"{town.waiting} were never answered"
        for _ in range(dice.randint(0, 3)):
            town.tick()
    town.until_rest()
    assert town.world.replicas == ()
    assert town.world.claims == ()
    for model in town.world.models:
        left = replace(model.standing, used_at=None)
        assert left == Standing(), f"{model.name} remembers {left}"
        assert model.target == 0
