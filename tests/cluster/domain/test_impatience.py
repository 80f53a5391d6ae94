"""Models on demand whose callers are less patient than a load is long: each of them is ready in its turn all the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from cluster.domain.reconcile import reconcile
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, ReplicaView, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_model, a_node, a_profile, applied

NOW, TICK, LOAD = 1_000_000.0, 5.0, 60.0


def hour(names: str, patience: float, every: float) -> Counter[str]:
    """How often each model became ready. Somebody asks for each `every` seconds, one after the other, and waits `patience`
    seconds; one node has room for one of them, and a load takes a minute."""
    models = tuple(
        a_model(name, base=0, most=1, profiles=(a_profile(name, memory=5 * GIB),), rest_after=300.0) for name in names
    )
    world, ready = World(models=models, nodes=(a_node(memory=8 * GIB),)), Counter[str]()
    for step in range(int(3600 / TICK)):
        moment = step * TICK
        now = NOW + moment
        asked = [
            _asked(model, now) if (moment - place * every / len(names)) % every < patience else model
            for place, model in enumerate(world.models)
        ]
        world = replace(world, models=tuple(asked))
        world = applied(world, reconcile(world, now))
        moved = [_moved(item, now + TICK) for item in world.replicas]
        ready.update(item.model_id for item in moved if item.state is ReplicaState.READY and item.state_since > now)
        world = replace(world, replicas=tuple(moved))
    return ready


def _asked(model: ModelView, now: float) -> ModelView:
    since = model.standing.asked_at
    return replace(model, standing=replace(model.standing, asked_at=now if since is None else since, used_at=now))


def _moved(replica: ReplicaView, now: float) -> ReplicaView:
    if not replica.run:
        return replace(replica, state=ReplicaState.STOPPED)
    if replica.state is ReplicaState.PENDING:
        return replace(replica, state=ReplicaState.STARTING, state_since=now)
    if replica.state is ReplicaState.STARTING and now - replica.state_since >= LOAD:
        return replace(replica, state=ReplicaState.READY, state_since=now)
    return replica


@pytest.mark.parametrize(("patience", "every"), [(10, 40), (10, 60), (5, 30), (20, 90)])
@pytest.mark.parametrize("names", ["ab", "abc"])
def test_f39_loads_that_nobody_waits_for_are_not_given_up_for_ever(names: str, patience: float, every: float) -> None:
    ready = hour(names, patience, every)
    assert set(ready) == {f"mod_{name}" for name in names}
    assert min(ready.values()) >= 5, ready
    assert max(ready.values()) <= min(ready.values()) + 3, "each has its turn"
