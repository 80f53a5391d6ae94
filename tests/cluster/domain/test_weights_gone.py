"""A replica whose weights have gone from its node moves to one that has them; else it stays, and says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.domain.explain import model_status
from cluster.domain.reconcile import reconcile
from cluster.domain.states import ReplicaState
from cluster.domain.types import NodeView, World
from tests.cluster.builders import READY, a_model, a_node, a_replica, applied, nodes_work, with_replica

NOW = 1_000_000.0
MODEL = a_model(weights="/m of 5 bytes", weights_size=5)
LACKS: dict[str, Any] = {"lacks": frozenset({MODEL.weights})}
HAS: dict[str, Any] = {"weights": frozenset({MODEL.weights})}


def begins_not(*nodes: NodeView, code: str = "weights_missing", state: ReplicaState = ReplicaState.BACKOFF) -> World:
    """The model's replica is on the first node, and does not begin."""
    return World(models=(MODEL,), nodes=nodes, replicas=(a_replica(MODEL, nodes[0], state=state, code=code),))


@pytest.mark.parametrize("code", ["weights_missing", "weights_changed"])
def test_it_moves_to_a_node_that_has_them(code: str) -> None:
    world = begins_not(a_node("a", **LACKS), a_node("b", **HAS), code=code)
    for _ in range(8):
        world = nodes_work(applied(world, reconcile(world, NOW)))
    assert [(item.node_id, item.state, item.run) for item in world.replicas] == [("node_b", READY, True)]
    assert reconcile(world, NOW).ops == ()


@pytest.mark.parametrize("code", ["weights_missing", "weights_changed"])
@pytest.mark.parametrize("state", [ReplicaState.BACKOFF, ReplicaState.STARTING])
def test_where_no_other_node_has_them_it_stays_and_says_why_it_does_not_start(code: str, state: ReplicaState) -> None:
    """Also in the moment in which its node looks again."""
    world = begins_not(a_node("a", **LACKS), a_node("b", **LACKS), code=code, state=state)
    world = with_replica(world, world.replicas[0].id, message="The file /m has 4 bytes.")
    plan = reconcile(world, NOW)
    assert plan.ops == ()
    status = model_status(world, plan, MODEL)
    assert status.code == code
    assert plan.waits[0].code == "waiting_to_move"
    assert "does not start: The file /m has 4 bytes; node a does not say that it has /m of 5 bytes" in status.reason


@pytest.mark.parametrize(
    ("fields", "state", "code"),
    [
        ({}, ReplicaState.BACKOFF, "weights_missing"),  # of an older version: it says nothing of its disk
        (HAS, ReplicaState.BACKOFF, "weights_missing"),  # they are back: its node is about to see it
        (LACKS, ReplicaState.BACKOFF, "engine_start_failed"),
        (LACKS, READY, ""),  # it has them in memory
        (LACKS, ReplicaState.STARTING, ""),
    ],
)
def test_else_it_is_left_where_it_is(fields: dict[str, Any], state: ReplicaState, code: str) -> None:
    world = begins_not(a_node("a", **fields), a_node("b", **HAS), code=code, state=state)
    assert reconcile(world, NOW).ops == ()


def test_it_is_back_where_it_was_when_they_are() -> None:
    world = begins_not(a_node("a", **LACKS), a_node("b", **LACKS))
    world = applied(world, reconcile(world, NOW))
    world = replace(world, nodes=(a_node("a", **HAS), world.nodes[1]))
    world = with_replica(world, world.replicas[0].id, state=READY, code="")
    assert reconcile(world, NOW).ops == ()
