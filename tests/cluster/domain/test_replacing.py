"""Case 4b of cluster.domain.reconcile: what comes by itself is waited for before anything that serves has to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cluster.domain.claims import CLAIM_FOR
from cluster.domain.plan import Keep, Renew, Start, Stop
from cluster.domain.reconcile import reconcile
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import Amount, ScopeView, Standing, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import READY, a_model, a_node, a_profile, a_replica, applied

NOW = 1_000_000.0
S = ReplicaState
SIZE = int(2.6 * GIB)
"""Of a node with room for two replicas, not for three."""


def changed_twice() -> World:
    """The replica of before the first change drains, the one of the first change serves, and now there was a second."""
    model = a_model("m")
    node = a_node(memory=SIZE, memory_available=SIZE - 2 * GIB)
    leaver = a_replica(
        model, node, id="rep_leaver", digest="d0", run=False, state=S.DRAINING, state_since=NOW - 10.0, in_flight=1
    )
    serving = a_replica(model, node, id="rep_serving", digest="d1", slot=1)
    now = replace(model, profiles=(a_profile("m-cpu", digest="d2"),))
    return World(models=(now,), nodes=(node,), replicas=(leaver, serving))


def leaver_on_another_node(**fields: object) -> World:
    """There is room for one replica on each of two nodes; the other one is as these fields say."""
    world = changed_twice()
    here = replace(world.nodes[0], memory_total=int(1.6 * GIB), memory_available=int(0.6 * GIB))
    other = replace(here, id="node_two", name="two", **fields)  # type: ignore[arg-type]
    leaver, serving = world.replicas
    leaver = replace(leaver, node_id="node_two", shares=(replace(leaver.shares[0], node_id="node_two"),))
    return replace(world, nodes=(here, other), replicas=(leaver, serving))


def drains_for(world: World, seconds: float) -> World:
    leaver, serving = world.replicas
    return replace(world, replicas=(replace(leaver, state_since=NOW - seconds), serving))


def larger(world: World) -> World:
    """It needs more now than a small leaver has: in the place of the one that serves there is room for it, beside it none."""
    leaver, serving = world.replicas
    leaver = replace(leaver, shares=(replace(leaver.shares[0], memory=GIB // 4),))
    profile = replace(world.models[0].profiles[0], memory=int(1.6 * GIB))
    return replace(
        world,
        nodes=(replace(world.nodes[0], memory_available=SIZE - GIB - GIB // 4),),
        models=(replace(world.models[0], profiles=(profile,)),),
        replicas=(leaver, serving),
    )


def limited(world: World) -> World:
    """Room for all there is; the model's owner may have two of them."""
    scope = ScopeView(id="p1", kind="project", name="p", limit=Amount(memory=2 * GIB))
    node = replace(world.nodes[0], memory_total=32 * GIB, memory_available=30 * GIB)
    return replace(world, nodes=(node,), models=(replace(world.models[0], owner="p1"),), scopes=(scope,))


def to_restart(world: World) -> World:
    """It serves as it is to be, and somebody asked for a restart."""
    leaver, serving = world.replicas
    standing = Standing(restarting=(serving.name_now,))
    return replace(
        world,
        models=(replace(world.models[0], standing=standing),),
        replicas=(leaver, replace(serving, digest="d2")),
    )


def asking(world: World) -> World:
    """Nodes are asked for other weights at a path; this one has said that it has them."""
    return replace(world, models=(replace(world.models[0], asking=True),), replicas=world.replicas[1:])


@pytest.mark.parametrize(
    ("world", "words"),
    [
        pytest.param(changed_twice, "is kept on node one until those that hold it", id="it drains"),
        pytest.param(lambda: leaver_on_another_node(), "is kept on node two until", id="on another node"),
        pytest.param(lambda: limited(changed_twice()), "rep_leaver still finishes", id="a limit is in the way"),
        pytest.param(lambda: to_restart(changed_twice()), "rep_serving is to restart; another starts", id="a restart"),
        pytest.param(lambda: asking(changed_twice()), "nodes are being asked whether", id="nodes are asked"),
    ],
)
def test_what_comes_by_itself_is_waited_for_and_that_is_told(world: Callable[[], World], words: str) -> None:
    picture = world()
    plan = reconcile(picture, NOW)
    assert [op for op in plan.ops if not isinstance(op, Keep)] == []
    (wait,) = plan.waits
    assert (wait.code, wait.replica_id) == ("room_comes", "rep_serving")
    assert words in wait.message
    again = reconcile(applied(picture, plan), NOW + 5.0)
    assert [op for op in again.ops if isinstance(op, (Renew, Start, Stop))] == []
    assert [item.code for item in again.waits] == ["room_comes"]


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(lambda: drains_for(changed_twice(), CLAIM_FOR + 1.0), id="it should have ended long ago"),
        pytest.param(lambda: drains_for(limited(changed_twice()), CLAIM_FOR + 1.0), id="the same, and a limit"),
        pytest.param(lambda: leaver_on_another_node(state=NodeState.OFFLINE), id="its node is lost"),
        pytest.param(lambda: leaver_on_another_node(state=NodeState.STALE), id="its node is not heard"),
        pytest.param(lambda: leaver_on_another_node(maintenance="cordoned"), id="nothing new may go there"),
        pytest.param(lambda: larger(changed_twice()), id="what it leaves is too little"),
    ],
)
def test_what_will_not_come_is_not_waited_for(world: Callable[[], World]) -> None:
    (op,) = reconcile(world(), NOW).ops
    assert isinstance(op, Renew)
    assert op.replica_id == "rep_serving"
    assert "no room for a second replica beside it" in op.reason


@pytest.mark.parametrize("make", [changed_twice, lambda: limited(changed_twice())])
def test_when_it_has_gone_the_new_one_starts_beside_the_one_that_serves(make: Callable[[], World]) -> None:
    world = make()
    world = applied(world, reconcile(world, NOW))
    node = world.nodes[0]
    node = replace(node, memory_available=node.memory_available + GIB)
    left = tuple(item for item in world.replicas if item.id != "rep_leaver")
    (op,) = reconcile(replace(world, nodes=(node,), replicas=left), NOW + 20.0).ops
    assert isinstance(op, Start)
    assert op.digest == "d2"
    assert "runs with an older profile" in op.reason


def test_one_that_does_not_serve_waits_for_nobody() -> None:
    world = changed_twice()
    leaver, other = world.replicas
    node = replace(world.nodes[0], memory_available=SIZE - GIB)
    world = replace(world, nodes=(node,), replicas=(leaver, replace(other, state=S.BACKOFF)))
    assert [type(op) for op in reconcile(world, NOW).ops] == [Renew]


def test_under_change_after_change_something_serves_all_the_time() -> None:
    """A change each second step, an engine that takes two steps to load and three to drain, room for two."""
    world = changed_twice()
    drained: dict[str, int] = {}
    for step in range(60):
        if step % 2 == 0 and step < 40:
            model = world.models[0]
            profile = replace(model.profiles[0], digest=f"d{3 + step}")
            world = replace(world, models=(replace(model, profiles=(profile,)),))
        world = applied(world, reconcile(world, NOW + step))
        moved = []
        for item in world.replicas:
            if item.run:
                order = {S.PENDING: S.STARTING, S.STARTING: READY}
                moved.append(replace(item, state=order.get(item.state, item.state)))
            else:
                drained[item.id] = drained.get(item.id, 0) + 1
                state = S.STOPPED if drained[item.id] > 3 else S.DRAINING
                moved.append(replace(item, state=state, state_since=NOW + step))
        used = sum(GIB for item in moved if item.state in (READY, S.DRAINING))
        node = replace(world.nodes[0], memory_available=SIZE - used)
        world = replace(world, nodes=(node,), replicas=tuple(moved))
        assert [item for item in moved if item.run and item.state is READY], f"nothing serves at step {step}"
    assert [(item.digest, item.state) for item in world.replicas] == [("d41", READY)]
