"""Case 3 of cluster.domain.reconcile: who goes of too many while they are replaced, and why, as it is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.domain.plan import Stop
from cluster.domain.reconcile import reconcile
from cluster.domain.states import ReplicaState
from cluster.domain.surplus import SOON
from cluster.domain.types import ReplicaView, Standing, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_model, a_node, a_profile, a_replica

NOW = 1_000_000.0
S = ReplicaState
MODEL = replace(a_model("m"), profiles=(a_profile("m-cpu", digest="now"),))


def stops(*replicas: dict[str, Any], standing: Standing | None = None, **node: Any) -> list[tuple[str, str]]:
    """Who is told to stop, by number, and why. `node`: of where the first of them is; the others are on another."""
    nodes = a_node("one", memory=32 * GIB, **node), a_node("two", memory=32 * GIB)
    found: list[ReplicaView] = [
        a_replica(MODEL, nodes[number > 0], id=f"rep_{number}", slot=number, **fields)
        for number, fields in enumerate(replicas)
    ]
    world = World(models=(replace(MODEL, standing=standing or Standing()),), nodes=nodes, replicas=tuple(found))
    return [(op.replica_id, op.reason) for op in reconcile(world, NOW).ops if isinstance(op, Stop)]


OLD, LATER, FRESH = {"digest": "d0"}, {"digest": "d1"}, {"digest": "now"}
CHANGED = "the profile or the weights changed before it was ready"
OLDEST = "2 replicas run and 1 is wanted, and of those from before the last change the oldest goes first"


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ({**FRESH}, [("rep_0", "one with the changed profile has taken its place")]),
        ({**FRESH, "state": S.STARTING}, []),
        ({**LATER}, [("rep_0", OLDEST)]),
        ({**LATER, "state": S.PENDING}, [("rep_1", CHANGED)]),
        ({**LATER, "state": S.FETCHING}, [("rep_1", CHANGED)]),
        ({**LATER, "state": S.STARTING, "attempt": 1, "state_since": NOW - SOON + 1}, []),
        ({**LATER, "state": S.STARTING, "attempt": 1, "state_since": NOW - SOON}, [("rep_1", CHANGED)]),
        ({**LATER, "state": S.STARTING, "attempt": 2, "code": "engine_start_failed"}, [("rep_1", CHANGED)]),
        ({**LATER, "state": S.BACKOFF, "attempt": 1, "code": "engine_start_failed"}, [("rep_1", CHANGED)]),
    ],
)
def test_of_an_old_one_that_serves_and_a_second_one(second: dict[str, Any], found: list[tuple[str, str]]) -> None:
    """One that has begun to load may serve by now, and what it has that the first has not would be gone; what loads for longer
    holds up no change."""
    assert stops(OLD, second) == found


def test_where_nothing_serves_yet_what_nobody_wants_any_more_is_not_waited_for() -> None:
    assert stops({**OLD, "state": S.STARTING}, {**LATER, "state": S.STARTING}) == [("rep_0", CHANGED)]


def test_one_that_was_to_leave_its_node_or_to_restart_says_so() -> None:
    ((gone, why),) = stops(FRESH, FRESH, maintenance="drained", maintenance_why="fans")
    assert gone == "rep_0"
    assert why.startswith("node one is drained")
    assert why.endswith(", and another replica is ready")
    asked = Standing(restarting=("rep_0:1",))
    assert stops(FRESH, FRESH, standing=asked) == [("rep_0", "it was to restart, and another replica is ready")]


def test_swapped_back_the_later_one_goes_at_once_though_it_may_serve() -> None:
    assert stops(FRESH, {**LATER, "state": S.STARTING, "attempt": 1, "state_since": NOW}) == [("rep_1", CHANGED)]
