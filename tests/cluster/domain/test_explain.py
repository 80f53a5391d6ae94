"""cluster.domain.explain: how a model stands, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.domain.explain import model_status
from cluster.domain.reconcile import reconcile
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import ModelView, Standing, World
from tests.cluster.builders import a_model, a_node, a_replica

T = 1_000_000.0
NODE = a_node()


@pytest.mark.parametrize(
    ("model", "state", "node_state", "code", "counts"),
    [
        (a_model(), ReplicaState.READY, NodeState.ONLINE, "", "1/1"),
        (a_model(), ReplicaState.PENDING, NodeState.ONLINE, "replica_starting", "0/1"),
        (a_model(), ReplicaState.STARTING, NodeState.ONLINE, "replica_starting", "0/1"),
        (a_model(), ReplicaState.FAILED, NodeState.ONLINE, "engine_failed", "0/1"),
        (a_model(), ReplicaState.READY, NodeState.STALE, "", "1/1"),
        (a_model(), ReplicaState.READY, NodeState.OFFLINE, "node_offline", "0/1"),
        (a_model(enabled=False), ReplicaState.READY, NodeState.ONLINE, "model_disabled", "0/0"),
        (a_model(base=0), ReplicaState.READY, NodeState.ONLINE, "model_not_wanted", "0/0"),
        (a_model(base=0, most=1), None, NodeState.ONLINE, "model_at_rest", "0/0"),
        (a_model(base=0, most=1, standing=Standing(asked_at=T)), ReplicaState.READY, NodeState.ONLINE, "", "1/1"),
        (
            a_model(base=0, most=1, standing=Standing(asked_at=T)),
            ReplicaState.LOST,
            NodeState.OFFLINE,
            "node_offline",
            "0/1",
        ),
        (a_model(), None, NodeState.ONLINE, "replica_planned", "0/1"),
        (a_model(profiles=()), None, NodeState.ONLINE, "no_profile", "0/1"),
    ],
)
def test_a_model_is_counted_against_what_it_should_have_now(
    model: ModelView, state: ReplicaState | None, node_state: NodeState, code: str, counts: str
) -> None:
    node = replace(NODE, state=node_state)
    replicas = (a_replica(model, node, state=state),) if state else ()
    world = World(models=(model,), nodes=(node,), replicas=replicas)
    status = model_status(world, reconcile(world, T), model)
    assert status.code == code
    assert f"{status.ready}/{status.wanted}" == counts
    assert status.short == (status.ready < status.wanted)
    assert bool(status.reason) == bool(code)


def test_a_model_on_demand_that_was_asked_for_and_fits_nowhere_is_short() -> None:
    model = a_model(base=0, most=1, standing=Standing(asked_at=T))
    world = World(models=(model,), nodes=(replace(NODE, memory_total=1, memory_available=1),))
    status = model_status(world, reconcile(world, T), model)
    assert (status.code, status.short, status.wanted) == ("too_little_memory", True, 1)
