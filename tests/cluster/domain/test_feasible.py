"""cluster.domain.feasible and refusals: hard checks of a node without cards, and the words of a refusal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.board import Board
from cluster.domain.feasible import Answer
from cluster.domain.place import NoPlace, Placement, Placer
from cluster.domain.refusals import feasible
from cluster.domain.room import margin
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import ModelView, NodeView, World
from llmgw_site.lib.units import GIB, MIB
from tests.cluster.builders import a_model, a_node, a_profile, a_replica


def place(world: World, model: ModelView) -> Placement | NoPlace:
    return Placer(Board(world)).place(model)


def room(world: World, node: NodeView) -> int:
    return Board(world).rooms[node.id].memory


@pytest.mark.parametrize(
    ("node", "profile", "answer", "code"),
    [
        ({}, {}, Answer.OK, ""),
        ({"state": NodeState.STALE}, {}, Answer.NOT_NOW, "node_stale"),
        ({"state": NodeState.OFFLINE}, {}, Answer.NOT_NOW, "node_offline"),
        ({"engines": {}}, {}, Answer.NEVER, "engine_missing"),
        ({"engines": {"llama.cpp": "no wheel"}}, {}, Answer.NEVER, "engine_broken"),
        ({}, {"threads": 4}, Answer.OK, ""),
        ({}, {"threads": 5}, Answer.NEVER, "too_few_cores"),
        ({}, {"memory": 8 * GIB}, Answer.NEVER, "too_little_memory"),
        ({}, {"memory": int(7.5 * GIB)}, Answer.OK, ""),
        ({"memory_available": 2 * GIB}, {"memory": 3 * GIB}, Answer.NOT_NOW, "no_memory_now"),
        ({"memory_total": 0, "memory_available": 0}, {"memory": 1}, Answer.NEVER, "too_little_memory"),
    ],
)
def test_a_check_says_no_with_its_code(
    node: dict[str, Any], profile: dict[str, Any], answer: Answer, code: str
) -> None:
    host = a_node(**node)
    verdict = feasible(Board(World(nodes=(host,))), host, a_profile(**profile))
    assert (verdict.answer, verdict.code) == (answer, code)
    assert bool(verdict.message) == (answer is not Answer.OK)


def test_a_small_machine_keeps_a_tenth_for_itself_and_a_large_one_half_a_gigabyte() -> None:
    assert margin(a_node(memory=GIB)) == GIB // 10
    assert margin(a_node(memory=64 * GIB)) == 512 * MIB


@pytest.mark.parametrize(
    ("state", "held"),
    [
        (ReplicaState.PENDING, True),
        (ReplicaState.STARTING, True),
        (ReplicaState.READY, True),
        (ReplicaState.DRAINING, True),
        (ReplicaState.BACKOFF, True),
        (ReplicaState.FAILED, False),
        (ReplicaState.STOPPED, False),
    ],
)
def test_a_replica_holds_its_room_as_long_as_it_may_have_a_process(state: ReplicaState, held: bool) -> None:
    model, node = a_model(profiles=(a_profile(memory=4 * GIB),)), a_node()
    for run in (True, False):  # one that shall run may be started anew by its agent at any moment
        replica = a_replica(model, node, state=state, run=run)
        assert (room(World(models=(model,), nodes=(node,), replicas=(replica,)), node) < 4 * GIB) == (held or run)


def test_f09_memory_taken_by_another_program_is_out_of_placement_and_back_when_freed() -> None:
    model = a_model(profiles=(a_profile(memory=4 * GIB),))
    full, free = a_node(memory_available=GIB), a_node()
    refused = place(World(models=(model,), nodes=(full,)), model)
    assert isinstance(refused, NoPlace)
    assert refused.code == "no_memory_now"
    assert "4.0 GiB" in refused.message
    assert isinstance(place(World(models=(model,), nodes=(free,)), model), Placement)


def test_memory_of_an_engine_that_still_loads_is_not_given_away_twice() -> None:
    model, node = a_model(profiles=(a_profile(memory=3 * GIB),)), a_node()  # the machine still shows 8 GiB free
    loading = tuple(a_replica(model, node, slot=n, state=ReplicaState.STARTING) for n in range(2))
    world = World(models=(model,), nodes=(node,), replicas=loading)
    assert feasible(Board(world), node, model.profiles[0]).code == "no_memory_now"


def test_the_second_profile_is_tried_where_the_first_fits_nowhere() -> None:
    model = a_model(profiles=(a_profile("big", memory=99 * GIB), a_profile("small")))
    found = place(World(models=(model,), nodes=(a_node(),)), model)
    assert isinstance(found, Placement)
    assert found.profile.name == "small"
    assert "profile small" in found.reason


def test_the_node_with_the_fewest_copies_wins_then_the_roomiest_then_the_name() -> None:
    model = a_model()
    a, b, c = a_node("a", memory=64 * GIB), a_node("b", memory=16 * GIB), a_node("c", memory=16 * GIB)
    world = World(models=(model,), nodes=(c, b, a), replicas=(a_replica(model, a),))
    found = place(world, model)
    assert isinstance(found, Placement)
    assert found.node.name == "b"


@pytest.mark.parametrize(
    ("world", "model", "code"),
    [
        (World(), a_model(), "no_node"),
        (World(nodes=(a_node(),)), a_model(profiles=()), "no_profile"),
        (
            World(nodes=(a_node("a", engines={}), a_node("b", cores=0))),
            a_model(profiles=(a_profile(threads=1),)),
            "no_suitable_node",
        ),
        (World(nodes=(a_node("a", engines={}), a_node("b", memory_available=0))), a_model(), "no_room_now"),
    ],
)
def test_no_place_has_a_code_that_tells_waiting_from_giving_up(world: World, model: Any, code: str) -> None:
    found = place(world, model)
    assert isinstance(found, NoPlace)
    assert found.code == code
    assert all(node.name in found.message for node in world.nodes) or code == "no_profile"


@given(st.integers(0, 16), st.integers(0, 16), st.lists(st.integers(0, 4), max_size=5))
def test_room_is_never_negative_and_never_more_than_the_machine_has(
    total: int, available: int, reserved: list[int]
) -> None:
    model, node = a_model(), a_node(memory=total * GIB, memory_available=available * GIB)
    replicas = tuple(a_replica(model, node, slot=n, reserved=size * GIB) for n, size in enumerate(reserved))
    left = room(World(models=(model,), nodes=(node,), replicas=replicas), node)
    assert 0 <= left <= min(total, available) * GIB
