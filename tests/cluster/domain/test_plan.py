"""cluster.domain.plan: when an operation may be done, and what it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.domain.plan import Remove, Renew, Start, Stop, after, recheck, running
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_model, a_node, a_profile, a_replica

MODEL, NODE = a_model(), a_node()
REPLICA = a_replica(MODEL, NODE)
OUTDATED = replace(REPLICA, digest="before")
LOADING = a_replica(MODEL, NODE, slot=1, state=ReplicaState.STARTING)
FAILED = a_replica(MODEL, NODE, slot=2, state=ReplicaState.FAILED)
WORLD = World(models=(MODEL,), nodes=(NODE,), replicas=(REPLICA,))
EMPTY = replace(WORLD, replicas=())
PROFILE = MODEL.profiles[0]


def start(**fields: object) -> Start:
    values = {"model_id": MODEL.id, "profile_id": PROFILE.id, "node_id": NODE.id, "slot": 0, "digest": PROFILE.digest}
    return Start(**{**values, "reason": "", **fields})  # type: ignore[arg-type]


def renew(**fields: object) -> Renew:
    values = {"replica_id": REPLICA.id, "profile_id": PROFILE.id, "digest": PROFILE.digest, "generation": 2}
    return Renew(**{**values, "reason": "", **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "world", "why"),
    [
        (start(), EMPTY, ""),
        (start(), replace(WORLD, models=(replace(MODEL, base=2),)), "slot 0 is taken"),
        (start(slot=1), WORLD, "enough replicas"),
        (start(slot=1), replace(WORLD, replicas=(OUTDATED,)), ""),
        (
            start(slot=1),
            replace(WORLD, nodes=(replace(NODE, cards=("a", "b"), cards_maintenance={"a": "drained"}),)),
            "",
        ),
        (start(slot=2), replace(WORLD, replicas=(OUTDATED, a_replica(MODEL, NODE, slot=1))), "enough replicas"),
        (start(), replace(EMPTY, models=()), "not wanted any more"),
        (start(), replace(EMPTY, models=(replace(MODEL, enabled=False),)), "not wanted any more"),
        (start(digest="other"), EMPTY, "profile changed"),
        (start(), replace(EMPTY, nodes=()), "node was removed"),
        (start(), replace(EMPTY, nodes=(a_node(state=NodeState.STALE),)), "it is stale"),
        (renew(), WORLD, ""),
        (renew(generation=3), WORLD, "replica changed"),
        (renew(), replace(WORLD, replicas=(replace(REPLICA, run=False),)), "replica changed"),
        (renew(digest="other"), WORLD, "profile changed"),
        (renew(), EMPTY, "replica is gone"),
        (Stop(replica_id=REPLICA.id, reason=""), WORLD, "no replica too many"),
        (Stop(replica_id=REPLICA.id, reason=""), replace(WORLD, models=()), ""),
        (Stop(replica_id=REPLICA.id, reason=""), replace(WORLD, replicas=(REPLICA, LOADING)), "no replica too many"),
        (Stop(replica_id=LOADING.id, reason=""), replace(WORLD, replicas=(REPLICA, LOADING)), ""),
        (Stop(replica_id=FAILED.id, reason=""), replace(WORLD, replicas=(REPLICA, FAILED)), ""),
        (Stop(replica_id=FAILED.id, reason=""), replace(WORLD, replicas=(LOADING, FAILED)), "no replica too many"),
        (Stop(replica_id=REPLICA.id, reason=""), replace(WORLD, replicas=(replace(REPLICA, run=False),)), "already"),
        (Remove(replica_id=REPLICA.id, reason=""), WORLD, "may still run"),
        (Remove(replica_id=REPLICA.id, reason=""), replace(WORLD, nodes=()), ""),
    ],
)
def test_an_operation_is_checked_again_before_it_is_done(op: object, world: World, why: str) -> None:
    found = recheck(op, world)  # type: ignore[arg-type]
    assert (found == "") if why == "" else (why in found)


def test_a_renewal_needs_room_for_what_it_will_be_less_what_it_was() -> None:
    small = a_node(memory=3 * GIB)
    bigger = replace(MODEL, profiles=(a_profile("small-cpu", memory=2 * GIB),))
    world = World(models=(bigger,), nodes=(small,), replicas=(a_replica(MODEL, small, id=REPLICA.id),))
    assert recheck(renew(digest=bigger.profiles[0].digest), world) == ""
    tight = replace(world, nodes=(a_node(memory=2 * GIB),))
    assert "2.0 GiB" in recheck(renew(digest=bigger.profiles[0].digest), tight)


def test_what_operations_do() -> None:
    (new,) = after(start(), EMPTY, new_id="rep_x").replicas
    assert (new.id, new.run, new.state, new.reserved) == ("rep_x", True, ReplicaState.PENDING, PROFILE.memory)
    (renewed,) = after(renew(), WORLD).replicas
    assert (renewed.generation, renewed.state) == (2, ReplicaState.PENDING)
    (stopped,) = after(Stop(replica_id=REPLICA.id, reason=""), WORLD).replicas
    assert (stopped.run, stopped.state) == (False, ReplicaState.READY)
    assert after(Remove(replica_id=REPLICA.id, reason=""), WORLD).replicas == ()


def test_a_replica_on_a_lost_node_does_not_count_as_running() -> None:
    lost = replace(WORLD, nodes=(a_node(state=NodeState.OFFLINE),))
    assert running(lost, MODEL.id) == []
    assert lost.state(REPLICA) is ReplicaState.LOST
