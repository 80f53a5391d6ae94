"""cluster.domain.invariants: each truth has a world that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.domain.invariants import broken, check
from cluster.domain.states import ReplicaState
from cluster.domain.types import ReplicaView, Share, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_model, a_node, a_profile, a_replica

MODEL, NODE = a_model(), a_node()


def with_cores(cores: int, **fields: Any) -> ReplicaView:
    return a_replica(MODEL, NODE, shares=(Share(node_id=NODE.id, memory=GIB, cores=cores),), **fields)


def test_a_sound_world_breaks_nothing() -> None:
    replicas = (a_replica(MODEL, NODE), a_replica(MODEL, NODE, slot=1))
    assert check(World(models=(MODEL,), nodes=(NODE,), replicas=replicas)) == ()


def test_a_stopped_replica_shares_its_slot_with_the_next() -> None:
    replicas = (a_replica(MODEL, NODE, state=ReplicaState.STOPPED), a_replica(MODEL, NODE))
    assert check(World(models=(MODEL,), nodes=(NODE,), replicas=replicas)) == ()


@pytest.mark.parametrize(
    ("world", "words"),
    [
        (World(models=(MODEL, MODEL)), "stands 2 times"),
        (World(nodes=(NODE,), replicas=(a_replica(MODEL, NODE),)), "does not exist"),
        (World(models=(MODEL,), replicas=(a_replica(MODEL, NODE),)), "not in the cluster"),
        (World(models=(MODEL,), nodes=(NODE,), replicas=(a_replica(MODEL, NODE, generation=0),)), "generation 0"),
        (World(models=(MODEL,), nodes=(NODE,), replicas=(a_replica(MODEL, NODE), a_replica(MODEL, NODE))), "in slot 0"),
        (
            World(models=(MODEL,), nodes=(NODE,), replicas=(a_replica(MODEL, NODE, reserved=9 * GIB),)),
            "9.0 GiB are promised",
        ),
        (
            World(models=(MODEL,), nodes=(NODE,), replicas=(with_cores(3), with_cores(2, slot=1))),
            "node one: 5 cores are promised and it has 4",
        ),
    ],
)
def test_a_broken_truth_is_said(world: World, words: str) -> None:
    found = check(world)
    assert len(found) == 1
    assert words in found[0]


def test_a_failed_replica_that_shall_not_run_promises_no_memory() -> None:
    big = a_model(profiles=(a_profile(memory=9 * GIB),))
    failed = a_replica(big, NODE, state=ReplicaState.FAILED, run=False)
    assert check(World(models=(big,), nodes=(NODE,), replicas=(failed,))) == ()


def promised(*gigabytes: int, **fields: Any) -> World:
    replicas = tuple(
        a_replica(MODEL, NODE, slot=slot, reserved=size * GIB, **fields) for slot, size in enumerate(gigabytes)
    )
    return World(models=(MODEL,), nodes=(NODE,), replicas=replicas)


def with_all(*cores: int) -> World:
    replicas = tuple(with_cores(count, slot=slot) for slot, count in enumerate(cores))
    return World(models=(MODEL,), nodes=(NODE,), replicas=replicas)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (promised(1), promised(9), True),
        (promised(9), promised(9), False),
        (promised(5, 5), promised(9), False),  # less than before, though still too much
        (promised(9), promised(5, 5), True),
        (promised(9), promised(9, generation=0), True),
        (World(), promised(9), True),
        (with_all(3, 3), with_all(3, 3), False),
        (with_all(3, 3), with_all(3, 2), False),
        (with_all(3, 1), with_all(3, 3), True),
    ],
)
def test_a_change_may_lessen_what_is_broken_already_and_not_add_to_it(before: World, after: World, says: bool) -> None:
    assert bool(broken(before, after)) is says
