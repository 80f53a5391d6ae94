"""cluster.domain.parking: a model whose starts fail again and again is left alone until somebody has mended it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.board import Board
from cluster.domain.explain import model_status
from cluster.domain.parking import PARK_AFTER, parked, unparked
from cluster.domain.plan import Start, Stop
from cluster.domain.reconcile import reconcile
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import NOTHING_STARTED, ModelView, ReplicaView, Standing, World
from tests.cluster.builders import a_model, a_node, a_profile, a_replica, applied, nodes_work

T = 1_000_000.0
ONE, TWO = a_node("one"), a_node("two")
MODEL = a_model()
WORDS = "The engine ended with exit code 1 before it was ready: the reason stands in its log."


def failing(attempt: int, *, model: ModelView = MODEL, node: Any = ONE, **fields: Any) -> ReplicaView:
    values = {"state": ReplicaState.BACKOFF, "code": "engine_start_failed", "message": WORDS, **fields}
    return a_replica(model, node, attempt=attempt, **values)


def world_of(*replicas: ReplicaView, model: ModelView = MODEL, **fields: Any) -> World:
    return World(models=(model,), nodes=(ONE, TWO), replicas=replicas, **fields)


def at(world: World) -> Standing:
    return parked(Board(world), world.models[0], T)[0]


@pytest.mark.parametrize(
    ("fields", "failures"),
    [
        ({"attempt": 1}, 1),
        ({"attempt": 5}, 5),
        ({"attempt": 5, "state": ReplicaState.STARTING}, 4),  # the fifth is under way
        ({"attempt": 1, "state": ReplicaState.STARTING, "code": ""}, 0),
        ({"attempt": 5, "proven": 3}, 2),
        ({"attempt": 3, "proven": 3, "code": "engine_died"}, 0),  # it was ready, and died
        ({"attempt": 9, "code": "engine_died"}, 0),  # that it was ready in between was never reported
        ({"attempt": 9, "code": "engine_wedged", "state": ReplicaState.STARTING}, 0),  # of before it was counted
        ({"attempt": 9, "code": "engine_wedged", "wedged": 1, "state": ReplicaState.STARTING}, 1),
        ({"attempt": 9, "proven": 9, "code": "engine_wedged", "wedged": 5, "state": ReplicaState.BACKOFF}, 5),
        ({"attempt": 1, "proven": 3}, 0),
        ({"attempt": 7, "code": "weights_missing"}, 0),  # nothing was started
        ({"attempt": 7, "code": "card_missing"}, 0),
        ({"attempt": 7, "code": "card_memory_taken"}, 0),
        ({"attempt": 2, "code": "spawn_failed"}, 2),  # nor was it here, but no look of its node tells when it may be
        ({"attempt": 7, "state": ReplicaState.PENDING}, 0),
        ({"attempt": 7, "state": ReplicaState.READY}, 0),
        ({"attempt": 2, "state": ReplicaState.FAILED}, 2),
    ],
)
def test_starts_in_a_row_that_failed(fields: dict[str, Any], failures: int) -> None:
    assert failing(**fields).failures == failures


@pytest.mark.parametrize(("attempts", "is_parked"), [([4], False), ([5], True), ([2, 2], False), ([2, 3], True)])
def test_it_is_parked_after_five_failed_starts_of_all_its_replicas(attempts: list[int], is_parked: bool) -> None:
    replicas = [failing(count, slot=slot, node=(ONE, TWO)[slot]) for slot, count in enumerate(attempts)]
    standing = at(world_of(*replicas))
    assert (standing.parked_at is not None) is is_parked
    assert standing.failures == sum(attempts)
    if is_parked:
        assert standing.parked_code == "engine_start_failed"
        assert standing.parked_message.endswith(WORDS.rstrip("."))


def test_it_is_not_parked_while_one_is_ready_or_has_yet_to_try() -> None:
    broken = failing(9, node=TWO, slot=1)
    assert at(world_of(a_replica(MODEL, ONE), broken)).failures == 0
    for state in (ReplicaState.PENDING, ReplicaState.STARTING):
        fresh = a_replica(MODEL, ONE, state=state, attempt=1)
        assert at(world_of(fresh, broken)).parked_at is None


@pytest.mark.parametrize("code", sorted(NOTHING_STARTED))
@pytest.mark.parametrize("state", [ReplicaState.BACKOFF, ReplicaState.FAILED])
def test_one_that_cannot_begin_proves_nothing_while_another_fails(code: str, state: ReplicaState) -> None:
    """Its file is not there yet on one node, and broken on the other: parked, with what the one that was tried says."""
    waits = failing(3, state=state, code=code, message="not there", state_since=T)
    standing = at(world_of(waits, failing(5, node=TWO, slot=1, state_since=T - 9)))
    assert (standing.parked_at, standing.failures, standing.parked_code) == (T, 5, "engine_start_failed")
    assert standing.parked_message == f"on node two: {WORDS.rstrip('.')}"
    assert at(world_of(waits, failing(4, node=TWO, slot=1))).parked_at is None
    assert at(world_of(waits, replace(waits, id="rep_other", node_id=TWO.id, slot=1))).parked_at is None


def test_one_that_was_ready_and_died_may_prove_that_it_works() -> None:
    died = failing(1, code="engine_died")
    assert at(world_of(died, failing(9, node=TWO, slot=1))).parked_at is None


def test_a_replica_that_is_lost_does_not_hold_it_from_being_parked() -> None:
    world = world_of(a_replica(MODEL, ONE), failing(5, node=TWO, slot=1))
    world = replace(world, nodes=(replace(ONE, state=NodeState.OFFLINE), TWO))
    assert at(world).parked_at == T


def test_an_outdated_replica_does_not_count() -> None:
    assert at(world_of(failing(9, digest="older"))).failures == 0


def test_it_stays_parked_until_its_definition_changes() -> None:
    standing = at(world_of(failing(5)))
    model = replace(MODEL, standing=standing)
    assert at(world_of(model=model)) == standing
    assert at(world_of(model=replace(model, profiles=(a_profile("small-cpu", digest="mended"),)))) == Standing()


@pytest.mark.parametrize("change", [{"enabled": False}, {"external": True}])
def test_what_cannot_run_here_is_not_parked(change: dict[str, Any]) -> None:
    model = replace(MODEL, standing=at(world_of(failing(5))), **change)
    assert at(world_of(model=model)).parked_at is None


def test_one_that_comes_back_ready_proves_that_it_works() -> None:
    model = replace(MODEL, standing=at(world_of(failing(5))))
    assert at(world_of(a_replica(MODEL, ONE), model=model)) == Standing()


def test_the_reconciler_stops_a_parked_model_says_why_and_starts_it_again_when_told() -> None:
    world = world_of(failing(5))
    plan = reconcile(world, T)
    assert [type(op) for op in plan.ops[1:]] == [Stop]
    world = applied(world, plan)
    status = model_status(world, reconcile(world, T), world.models[0])
    assert (status.code, status.ready, status.wanted) == ("model_parked", 0, 1)
    assert "after 5 failed starts in a row" in status.reason
    assert f"{WORDS.rstrip('.')}; mend what it says" in status.reason
    assert "llmgw model retry small" in status.reason
    world = applied(nodes_work(world), reconcile(nodes_work(world), T + 2))
    assert world.replicas == ()
    for later in (T + 4, T + 90_000):
        assert reconcile(world, later).ops == ()
    model = world.models[0]
    world = replace(world, models=(replace(model, standing=unparked(model.standing)),))
    assert [type(op) for op in reconcile(world, T + 4).ops] == [Start]


def test_parked_on_demand_it_is_said_so_at_rest_too() -> None:
    model = a_model(base=0, most=1, standing=Standing(parked_at=T, failures=5, parked_message=WORDS))
    model = replace(model, standing=replace(model.standing, parked_digest=at(world_of(failing(5))).parked_digest))
    world = world_of(model=model)
    status = model_status(world, reconcile(world, T), model)
    assert (status.code, status.wanted) == ("model_parked", 0)


def test_a_change_whose_starts_fail_again_and_again_is_parked_and_what_served_before_goes_on() -> None:
    """Nothing of the changed one is tried any more; the old one stays, and is replaced once the change is mended."""
    changed = replace(MODEL, profiles=(a_profile("small-cpu", digest="changed"),))
    old = a_replica(MODEL, ONE)
    new = failing(5, model=changed, node=TWO, slot=1)
    world = applied(world_of(old, new, model=changed), reconcile(world_of(old, new, model=changed), T))
    assert world.models[0].standing.parked_at == T
    world = nodes_work(world)
    for later in range(2, 20, 2):
        world = applied(world, reconcile(world, T + later))
    assert [(item.id, item.run, item.state) for item in world.replicas] == [(old.id, True, ReplicaState.READY)]
    (wait,) = reconcile(world, T + 20).waits
    assert wait.code == "update_pending"
    assert "is parked after 5 failed starts in a row" in wait.message
    assert WORDS.rstrip(".") in wait.message
    mended = replace(world.models[0], profiles=(a_profile("small-cpu", digest="mended"),))
    world = replace(world, models=(mended,))
    for later in range(30, 50, 2):
        world = nodes_work(applied(world, reconcile(world, T + later)))
        assert any(item.run and item.state is ReplicaState.READY for item in world.replicas)
    assert [item.digest for item in world.replicas] == ["mended"]
    assert world.models[0].standing == Standing()


def test_parked_it_keeps_what_it_has_grown_by_as_long_as_it_serves() -> None:
    changed = replace(MODEL, base=1, most=3, profiles=(a_profile("small-cpu", digest="changed"),))
    standing = replace(at(world_of(failing(5, model=changed), model=changed)), grown=1)
    model = replace(changed, standing=standing)
    serving = [a_replica(MODEL, ONE), a_replica(MODEL, TWO, slot=1, grown=True)]
    assert reconcile(world_of(*serving, model=model), T).ops == ()
    world = world_of(model=model)
    assert applied(world, reconcile(world, T)).models[0].standing.grown == 0


# --- whatever its replicas do

CODES = ["", "engine_start_failed", "engine_died", *sorted(NOTHING_STARTED)]
STATES = [item for item in ReplicaState if item is not ReplicaState.LOST]
replicas = st.lists(
    st.builds(
        lambda state, code, attempt, proven, run, digest, at_: failing(
            attempt, state=state, code=code, proven=proven, run=run, digest=digest, state_since=T - at_, message=code
        ),
        st.sampled_from(STATES),
        st.sampled_from(CODES),
        st.integers(0, 8),
        st.integers(0, 8),
        st.booleans(),
        st.sampled_from([MODEL.profiles[0].digest, MODEL.profiles[0].digest, "older"]),
        st.integers(0, 99),
    ),
    max_size=4,
)


@given(replicas)
def test_it_is_parked_when_enough_starts_failed_and_nothing_works_or_may_still_work(found: list[ReplicaView]) -> None:
    """What serves as it is now is never parked, nor what has one on its way; and the cause is one that failed."""
    found = [replace(item, slot=slot) for slot, item in enumerate(found)]
    standing = at(world_of(*found))
    now = [item for item in found if item.run and item.digest == MODEL.profiles[0].digest]
    works = [item for item in now if item.state is ReplicaState.READY]
    open_ = [item for item in now if not item.failures and not (item.code in NOTHING_STARTED and item.held_up)]
    failed = sum(item.failures for item in now)
    assert (standing.parked_at is not None) == (failed >= PARK_AFTER and not works and not open_)
    assert standing.failures == (0 if works else failed)
    if standing.parked_at is not None:
        assert standing.parked_code in {item.code or "engine_failed" for item in now if item.failures}
        assert standing.parked_message
        parked_now = replace(MODEL, standing=standing)
        assert at(world_of(*found, model=parked_now)) == standing  # decided once
