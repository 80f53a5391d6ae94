"""cluster.domain.scale: replicas beyond a model's base while requests wait, and back when nothing does."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.board import Board
from cluster.domain.reconcile import reconcile
from cluster.domain.scale import load_of, scaled
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, ReplicaView, Standing, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_model, a_node, a_profile, a_replica, applied, nodes_work, with_replica
from tests.examples import few

T = 1_000_000.0
NODE = a_node(memory=64 * GIB)
MODEL = a_model(base=1, most=3)


def one(model: ModelView = MODEL, **fields: Any) -> ReplicaView:
    return a_replica(model, NODE, slots=2, **fields)


def board(model: ModelView, *replicas: ReplicaView) -> Board:
    return Board(World(models=(model,), nodes=(NODE,), replicas=replicas))


def with_standing(model: ModelView = MODEL, **fields: Any) -> ModelView:
    return replace(model, standing=Standing(**fields))


@pytest.mark.parametrize(
    ("in_flight", "slots", "pressed"),
    [
        ([0], [1], False),
        ([1], [1], False),  # under way, and none waits
        ([2], [1], True),
        ([3], [2], True),
        ([2, 1], [1, 1], False),  # one waits at two replicas: half a request each
        ([2, 2], [1, 1], True),
        ([3, 0], [1, 1], True),  # two wait, whoever has them
        ([9, 0], [8, 1], False),
    ],
)
def test_pressed_means_that_one_request_or_more_waits_for_each_ready_replica(
    in_flight: list[int], slots: list[int], pressed: bool
) -> None:
    ready = [replace(one(), in_flight=n, slots=k) for n, k in zip(in_flight, slots, strict=True)]
    assert load_of(MODEL, ready).pressed is pressed


def test_what_waits_in_an_engines_own_queue_presses_too() -> None:
    """As when the cache of vLLM is full before its slots are."""
    full = replace(one(), in_flight=30, slots=256, waiting=10)
    assert load_of(MODEL, [full]).waiting == 10
    assert load_of(MODEL, [full]).pressed
    assert load_of(MODEL, [replace(full, waiting=0, in_flight=260)]).waiting == 4


def test_a_model_without_a_ready_replica_is_not_pressed() -> None:
    assert not load_of(MODEL, []).pressed


@pytest.mark.parametrize(
    ("in_flight", "pressed"), [([4], False), ([5], True), ([4, 4], False), ([8, 1], True), ([3, 5], False)]
)
def test_measured_replicas_are_pressed_past_what_they_were_measured_to_serve(
    in_flight: list[int], pressed: bool
) -> None:
    model = a_model(most=9, profiles=(a_profile("measured", concurrency=4.0),))
    ready = [a_replica(model, NODE, in_flight=n, slots=16) for n in in_flight]
    assert load_of(model, ready).pressed is pressed


@pytest.mark.parametrize(
    ("in_flight", "quiet"),
    [([6, 0], True), ([3, 3], True), ([7, 0], False), ([7, 6, 0], True), ([7, 7, 0], False), ([5], True)],
)
def test_a_measured_replica_is_taken_back_only_if_the_rest_stay_under_seventy_percent(
    in_flight: list[int], quiet: bool
) -> None:
    model = a_model(most=9, profiles=(a_profile("measured", concurrency=10.0),))
    ready = [a_replica(model, NODE, in_flight=n, slots=16) for n in in_flight]
    assert load_of(model, ready).quiet is quiet


@pytest.mark.parametrize(
    ("in_flight", "quiet"), [([0, 0], True), ([2, 0], True), ([2, 1], False), ([3, 0], False), ([2, 2, 0], True)]
)
def test_a_replica_is_taken_back_only_if_nothing_would_wait_for_it(in_flight: list[int], quiet: bool) -> None:
    assert load_of(MODEL, [one(in_flight=n) for n in in_flight]).quiet is quiet


def test_one_is_added_after_a_minute_and_not_before() -> None:
    busy = one(in_flight=3)
    standing, why = scaled(board(MODEL, busy), MODEL, T)
    assert (standing.pressed_since, standing.grown, why) == (T, 0, "")
    model = replace(MODEL, standing=standing)
    assert scaled(board(model, busy), model, T + 59.9) == (standing, "")
    grown, why = scaled(board(model, busy), model, T + 60)
    assert (grown.grown, grown.pressed_since) == (1, None)
    assert why == "1 request waits at 1 replica, so it has been for 1 min 0 s: one replica more"


def test_a_break_in_the_pressure_lets_the_minute_begin_anew() -> None:
    model = with_standing(pressed_since=T)
    standing, _ = scaled(board(model, one(in_flight=1)), model, T + 50)
    assert standing.pressed_since is None


@pytest.mark.parametrize("state", [ReplicaState.PENDING, ReplicaState.STARTING, ReplicaState.BACKOFF, None])
def test_nothing_is_added_while_the_last_addition_is_not_ready(state: ReplicaState | None) -> None:
    model = with_standing(grown=1, pressed_since=T)
    second = [one(state=state, slot=1)] if state else []
    standing, _ = scaled(board(model, one(in_flight=30), *second), model, T + 600)
    assert (standing.grown, standing.pressed_since) == (1, None)


def test_it_never_grows_above_its_maximum() -> None:
    model = with_standing(grown=2, pressed_since=T)
    replicas = [one(in_flight=30, slot=slot) for slot in range(3)]
    standing, _ = scaled(board(model, *replicas), model, T + 600)
    assert (standing.grown, standing.pressed_since) == (2, None)


@pytest.mark.parametrize(
    ("model", "grown"),
    [
        (with_standing(a_model(base=1, most=2), grown=2), 1),
        (with_standing(a_model(base=3, most=3), grown=2), 0),
        (with_standing(a_model(base=2, most=None), grown=2), 0),
        (with_standing(a_model(base=1, most=3, enabled=False), grown=2), 0),
        (with_standing(a_model(base=1, most=3), grown=2, parked_at=T), 0),
        (with_standing(a_model(base=0, most=3), grown=2), 0),  # at rest
        (with_standing(a_model(base=0, most=3), grown=2, asked_at=T), 2),
        (with_standing(a_model(base=0, most=3), grown=3, asked_at=T), 2),
    ],
)
def test_what_it_has_grown_by_stays_between_base_and_maximum(model: ModelView, grown: int) -> None:
    assert scaled(board(model), model, T)[0].grown == grown


def test_ten_minutes_of_quiet_take_one_back_and_ten_more_the_next() -> None:
    model = with_standing(grown=2)
    replicas = [one(slot=slot) for slot in range(3)]
    standing, _ = scaled(board(model, *replicas), model, T)
    assert standing.quiet_since == T
    model = replace(model, standing=standing)
    assert scaled(board(model, *replicas), model, T + 599)[0] == standing
    standing, why = scaled(board(model, *replicas), model, T + 600)
    assert (standing.grown, standing.quiet_since) == (1, None)
    assert why == "nothing has waited for 10 min 0 s, 0 requests are under way: one replica less"
    model = replace(model, standing=standing)
    standing, _ = scaled(board(model, *replicas[:2]), model, T + 602)
    assert (standing.grown, standing.quiet_since) == (1, T + 602)


def test_an_addition_that_found_no_place_is_taken_back_too() -> None:
    model = with_standing(grown=1, quiet_since=T)
    assert scaled(board(model, one()), model, T + 600)[0].grown == 0


def test_the_times_are_the_worlds() -> None:
    model = with_standing(pressed_since=T)
    world = World(models=(model,), nodes=(NODE,), replicas=(one(in_flight=3),), scale_up_after=2.0)
    assert scaled(Board(world), model, T + 2)[0].grown == 1


def test_a_model_that_cannot_grow_is_never_written() -> None:
    model = a_model(base=2)
    busy = [one(model, in_flight=50, slot=slot) for slot in range(2)]
    assert scaled(board(model, *busy), model, T)[0] is model.standing


def test_the_reconciler_adds_a_grown_replica_and_takes_that_one_back() -> None:
    first = one(in_flight=3)
    world = World(models=(with_standing(pressed_since=T - 60),), nodes=(NODE,), replicas=(first,))
    world = applied(world, reconcile(world, T))
    added = next(item for item in world.replicas if item.id != first.id)
    assert (added.grown, len(world.replicas)) == (True, 2)
    world = with_replica(nodes_work(nodes_work(world)), first.id, in_flight=0)
    world = applied(world, reconcile(world, T + 10))
    world = applied(world, reconcile(world, T + 610))
    assert [item.id for item in world.replicas if item.run] == [first.id]


def test_a_pressure_that_broke_off_begins_anew_after_a_quarter_of_the_minute() -> None:
    model = with_standing(pressed_since=T)
    standing, _ = scaled(board(model, one(in_flight=1)), model, T + 50)
    assert (standing.pressed_since, standing.broke_off_at) == (None, T + 50)
    model, busy = replace(MODEL, standing=standing), one(in_flight=3)
    assert scaled(board(model, busy), model, T + 64.9)[0] is standing
    assert scaled(board(model, busy), model, T + 65)[0].pressed_since == T + 65


def test_after_a_step_the_time_counts_at_once() -> None:
    model = with_standing(grown=1, broke_off_at=T - 100)
    busy = [one(in_flight=9, slot=slot) for slot in range(2)]
    assert scaled(board(model, *busy), model, T)[0].pressed_since == T


@few()
@given(
    loads=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=200, max_size=200), most=st.integers(1, 4)
)
def test_a_load_at_the_threshold_is_not_written_down_at_every_look(loads: list[tuple[int, int]], most: int) -> None:
    """Two writes at most in a quarter of a minute, and one for each step, though the load turns at each look of two
    seconds."""
    model, writes, steps = a_model(base=1, most=most), 0, 0
    for number, load in enumerate(loads):
        count = 1 + model.standing.grown
        flights = [*load, 0, 0][:count]
        replicas = [one(model, in_flight=n, slot=slot) for slot, n in enumerate(flights)]
        standing, why = scaled(board(model, *replicas), model, T + 2 * number)
        writes, steps = writes + (standing != model.standing), steps + bool(why)
        model = replace(model, standing=standing)
    assert writes <= 2 + 2 * (2 * len(loads) / 15) + steps


@given(
    loads=st.lists(st.integers(0, 12), min_size=1, max_size=60),
    step=st.sampled_from([5.0, 20.0, 61.0, 400.0]),
    most=st.integers(1, 4),
)
def test_no_step_is_undone_within_its_hold_time_and_bounds_hold(loads: list[int], step: float, most: int) -> None:
    """Whatever the load does: growth stays for ten minutes at least, and between two additions lies a minute."""
    model = a_model(base=1, most=most)
    now, steps = T, []
    for load in loads:
        count = 1 + model.standing.grown
        replicas = [one(model, in_flight=load if slot == 0 else 0, slot=slot) for slot in range(count)]
        standing, why = scaled(board(model, *replicas), model, now)
        assert 0 <= standing.grown <= most - 1
        if standing.grown != model.standing.grown:
            assert abs(standing.grown - model.standing.grown) == 1
            assert why
            steps.append((now, standing.grown - model.standing.grown))
        model = replace(model, standing=standing)
        now += step
    for (before, _), (after, change) in pairwise(steps):
        assert after - before >= (60 if change > 0 else 600)
