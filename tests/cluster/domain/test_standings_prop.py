"""cluster.domain.standings, whatever the world: decided once, within bounds, and nothing written that says nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.board import Board
from cluster.domain.reconcile import reconcile
from cluster.domain.standings import standing_now
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import ModelView, Standing, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_model, a_node, a_replica, applied

T = 1_000_000.0
TIMES = st.one_of(st.none(), st.floats(T - 2000, T))
STATES = st.sampled_from([item for item in ReplicaState if item is not ReplicaState.LOST])
CODES = st.sampled_from(["", "engine_start_failed", "weights_missing", "engine_died"])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A model of any scaling and standing with up to four replicas in any state on two nodes."""
    base = draw(st.integers(0, 3))
    standing = Standing(
        grown=draw(st.integers(0, 3)),
        pressed_since=draw(TIMES),
        quiet_since=draw(TIMES),
        asked_at=draw(TIMES),
        used_at=draw(TIMES),
        failures=draw(st.integers(0, 7)),
        parked_at=draw(TIMES),
        parked_digest=draw(st.sampled_from(["", "other"])),
    )
    model = a_model(
        base=base,
        most=draw(st.one_of(st.none(), st.integers(base, 5))),
        enabled=draw(st.sampled_from([True, True, True, False])),
        standing=standing,
    )
    nodes = (a_node("one", memory=32 * GIB), a_node("two", state=draw(st.sampled_from(list(NodeState)))))
    replicas = []
    for slot in range(draw(st.integers(0, 4))):
        fields: dict[str, Any] = {
            "state": draw(STATES),
            "run": draw(st.sampled_from([True, True, False])),
            "attempt": draw(st.integers(1, 8)),
            "proven": draw(st.integers(0, 3)),
            "code": draw(CODES),
            "in_flight": draw(st.integers(0, 6)),
            "slots": 2,
            "state_since": draw(st.floats(T - 2000, T)),
            "used_at": draw(TIMES),
            "grown": draw(st.booleans()),
        }
        replicas.append(a_replica(model, draw(st.sampled_from(nodes)), slot=slot, **fields))
    restarting = [item.name_now for item in replicas if draw(st.booleans())] + draw(st.sampled_from([[], ["gone:1"]]))
    standing = replace(standing, restarting=tuple(restarting), in_place=draw(st.booleans()) and bool(restarting))
    model = replace(model, standing=standing)
    return World(models=(model,), nodes=nodes, replicas=tuple(replicas))


def decided(world: World, model: ModelView, now: float = T) -> tuple[Standing, str]:
    return standing_now(Board(replace(world, models=(model,))), model, now)


@given(worlds())
def test_what_was_decided_is_not_decided_again_at_the_same_moment(world: World) -> None:
    (model,) = world.models
    standing, _ = decided(world, model)
    again, why = decided(world, replace(model, standing=standing))
    if standing.asked_at is None and model.standing.asked_at is not None and model.on_demand:
        return  # it goes to rest: its replicas are told to stop by the same plan
    if standing.grown != model.standing.grown and standing.quiet_since is None:  # after a step the times begin anew
        again = replace(again, pressed_since=None, quiet_since=None)
    assert (again, why) == (standing, "")


@given(worlds())
def test_bounds_hold_whatever_was_remembered(world: World) -> None:
    (model,) = world.models
    standing, _ = decided(world, model)
    after = replace(model, standing=standing)
    assert 0 <= after.target <= model.limit or not model.enabled
    assert 0 <= standing.grown <= max(0, model.limit - after.least)
    assert standing.grown <= model.standing.grown + 1
    assert standing.parked_at is None or standing.parked_digest
    there = {item.name_now for item in world.replicas if item.run}
    assert set(standing.restarting) <= there
    assert not standing.in_place or standing.restarting
    if not model.enabled:
        assert (standing.grown, standing.parked_at, standing.asked_at, standing.restarting) == (0, None, None, ())


@given(worlds())
def test_every_plan_of_such_a_world_passes_its_own_checks_and_soon_there_is_nothing_left_to_do(world: World) -> None:
    """So a cluster at peace writes no row, and no two rules undo each other."""
    for _ in range(6):
        plan = reconcile(world, T)
        world = applied(world, plan)
        if not plan.ops:
            break
    assert plan.ops == ()
    model = world.models[0]
    running = [item for item in world.replicas if item.run]
    if model.standing.parked_at is not None:
        assert all(world.state(item) is ReplicaState.LOST for item in running)
    counting = [item for item in running if world.state(item) not in (ReplicaState.LOST, ReplicaState.FAILED)]
    assert len(counting) <= max(model.target, 4) + 1
