"""cluster.domain.rest: a model that runs on demand stops when nobody has asked for it for a while."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.board import Board
from cluster.domain.reconcile import reconcile
from cluster.domain.rest import rested
from cluster.domain.states import REPLICA_LOADING, NodeState, ReplicaState
from cluster.domain.types import ModelView, ReplicaView, Standing, World
from tests.cluster.builders import a_model, a_node, a_replica, applied, nodes_work

T = 1_000_000.0
NODE = a_node()
SLEEPY = a_model(base=0, most=1, rest_after=900.0)


def awake(**fields: Any) -> ModelView:
    return replace(SLEEPY, standing=Standing(**{"asked_at": T, **fields}))


def at(now: float, model: ModelView, *replicas: ReplicaView, state: NodeState = NodeState.ONLINE) -> Standing:
    world = World(models=(model,), nodes=(replace(NODE, state=state),), replicas=replicas)
    return rested(Board(world), model, now)[0]


def test_a_model_at_rest_that_nobody_asked_for_stays_at_rest() -> None:
    assert at(T, SLEEPY) is SLEEPY.standing
    assert SLEEPY.target == 0


def test_a_request_makes_it_want_one_replica() -> None:
    assert awake().target == 1


@pytest.mark.parametrize(
    ("fields", "rests_at"),
    [
        ({"state_since": T + 5}, T + 905),  # ready since then, never used
        ({"state_since": T + 5, "used_at": T + 100}, T + 1000),
        ({"state_since": T - 5000, "used_at": T - 4000}, T + 900),  # asked for since
    ],
)
def test_it_rests_when_it_was_not_used_for_its_idle_time(fields: dict[str, Any], rests_at: float) -> None:
    model = awake()
    replica = a_replica(model, NODE, **fields)
    assert at(rests_at - 0.1, model, replica) == model.standing
    assert at(rests_at, model, replica).asked_at is None


def test_a_use_that_controllers_know_of_counts_as_well() -> None:
    model = awake(used_at=T + 500)
    replica = a_replica(model, NODE, state_since=T)
    assert at(T + 1399, model, replica) == model.standing
    assert at(T + 1400, model, replica).asked_at is None


def test_it_does_not_rest_while_it_works() -> None:
    model = awake()
    assert at(T + 90_000, model, a_replica(model, NODE, in_flight=1)) == model.standing


@pytest.mark.parametrize("state", [ReplicaState.PENDING, ReplicaState.STARTING])
def test_a_load_of_twenty_minutes_is_not_given_up_for_rest(state: ReplicaState) -> None:
    model = awake()
    assert at(T + 1200, model, a_replica(model, NODE, state=state)) == model.standing


def test_one_that_fails_is_left_to_be_parked() -> None:
    model = replace(awake(), rest_after=5.0)
    failing = a_replica(model, NODE, state=ReplicaState.BACKOFF, attempt=3, code="engine_start_failed")
    assert at(T + 60, model, failing) == model.standing


def test_one_that_found_no_place_is_wanted_no_longer_after_its_idle_time() -> None:
    model = awake()
    assert at(T + 899, model) == model.standing
    assert at(T + 900, model).asked_at is None


def test_one_whose_node_is_lost_is_wanted_no_longer_either() -> None:
    model = awake()
    assert at(T + 900, model, a_replica(model, NODE, in_flight=1), state=NodeState.OFFLINE).asked_at is None


@pytest.mark.parametrize(("rest_after", "rests_at"), [(1.0, T + 160), (59.0, T + 160), (61.0, T + 161)])
def test_an_idle_time_shorter_than_two_reports_of_its_node_stops_no_model_in_use(
    rest_after: float, rests_at: float
) -> None:
    """Its node reports every 30 s; it was used 100 s after T, and each second since, for all that is known."""
    model = replace(awake(), rest_after=rest_after)
    replica = a_replica(model, NODE, state_since=T, used_at=T + 100)
    world = World(models=(model,), nodes=(NODE,), replicas=(replica,), heard_every=30.0)
    assert rested(Board(world), model, rests_at - 0.1)[0] == model.standing
    assert rested(Board(world), model, rests_at)[0].asked_at is None


def test_one_whose_node_is_not_heard_for_a_while_may_be_in_use() -> None:
    model = awake()
    replica = a_replica(model, NODE, state_since=T, used_at=T + 10)
    assert at(T + 5000, model, replica, state=NodeState.STALE) == model.standing
    assert at(T + 5000, model, replica).asked_at is None


def test_one_that_ran_all_the_time_until_now_is_used_up_first() -> None:
    replica = a_replica(SLEEPY, NODE, state_since=T - 90_000)
    assert at(T, SLEEPY, replica).asked_at == T
    world = World(models=(SLEEPY,), nodes=(NODE,), replicas=(replica,))
    world = applied(world, reconcile(world, T))
    assert all(item.run for item in world.replicas)


def test_a_model_that_does_not_run_on_demand_any_more_forgets_that_it_was_asked_for() -> None:
    model = replace(awake(), base=1)
    assert at(T, model).asked_at is None
    assert model.target == 1


def test_it_starts_when_asked_and_stops_when_idle_and_starts_again() -> None:
    world = World(models=(SLEEPY,), nodes=(NODE,))
    assert reconcile(world, T).ops == ()
    world = replace(world, models=(awake(),))
    world = nodes_work(nodes_work(applied(world, reconcile(world, T))))
    assert [item.state for item in world.replicas] == [ReplicaState.READY]
    world = replace(world, replicas=tuple(replace(item, state_since=T + 9) for item in world.replicas))
    assert reconcile(world, T + 900).ops == ()
    world = nodes_work(applied(world, reconcile(world, T + 909)))
    world = applied(world, reconcile(world, T + 911))
    assert world.replicas == ()
    assert reconcile(world, T + 913).ops == ()
    world = replace(world, models=(awake(asked_at=T + 2000),))
    assert len(applied(world, reconcile(world, T + 2000)).replicas) == 1


def test_requests_that_are_told_of_a_replica_that_could_not_begin_keep_nobody_awake() -> None:
    """Deciding and checking again look at the same: else it would be decided and refused at every look."""
    model, node = a_model("m", base=0, most=1, rest_after=60.0, standing=Standing(asked_at=T - 1000.0)), a_node("one")
    stuck = a_replica(
        model, node, state=ReplicaState.BACKOFF, code="weights_missing", in_flight=3, state_since=T - 900.0
    )
    world = World(models=(model,), nodes=(node,), replicas=(stuck,))
    after = applied(world, reconcile(world, T))
    assert after.models[0].standing.asked_at is None
    assert [item.run for item in after.replicas] == [False]


TIMES = st.one_of(st.none(), st.floats(T - 2000, T))
STATES = [item for item in ReplicaState if item is not ReplicaState.LOST]


@given(
    st.lists(
        st.tuples(st.sampled_from(STATES), st.integers(0, 2), TIMES, st.floats(T - 2000, T), st.booleans()), max_size=3
    ),
    st.floats(T - 2000, T),
    TIMES,
    st.sampled_from([1.0, 60.0, 900.0]),
    st.sampled_from([0.0, 30.0]),
)
def test_it_rests_exactly_when_nothing_of_it_is_in_use_or_on_its_way_and_the_last_use_is_long_ago(
    found: list[tuple[ReplicaState, int, float | None, float, bool]],
    asked: float,
    used: float | None,
    rest_after: float,
    heard_every: float,
) -> None:
    model = replace(awake(asked_at=asked, used_at=used), rest_after=rest_after)
    replicas = tuple(
        a_replica(model, NODE, slot=slot, state=state, in_flight=busy, used_at=last, state_since=since, run=run)
        for slot, (state, busy, last, since, run) in enumerate(found)
    )
    world = World(models=(model,), nodes=(NODE,), replicas=replicas, heard_every=heard_every)
    mine = [item for item in replicas if item.run]
    loads = any(item.state in REPLICA_LOADING - {ReplicaState.BACKOFF} for item in mine)
    works = any(item.in_flight for item in mine if item.state is not ReplicaState.BACKOFF)
    uses = [asked, used or 0.0, *(item.used_at or 0.0 for item in mine)]
    uses += [item.state_since for item in mine if item.state is ReplicaState.READY]
    quiet = T - max(uses) >= max(rest_after, 2 * heard_every)
    assert (rested(Board(world), model, T)[0].asked_at is None) == (quiet and not loads and not works)
