"""An update that is under way: nothing that serves gives way to a replica that has not answered yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.domain.board import Board
from cluster.domain.plan import Renew, Start, Stop, recheck
from cluster.domain.reconcile import reconcile
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, Standing, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import READY, a_model, a_node, a_profile, a_replica, applied, nodes_work

NOW = 1_000.0
S = ReplicaState


def an_update(*, replicas: int = 1, memory: int = 8 * GIB) -> World:
    """Replicas that run as the catalogue had it before; it has another digest now."""
    before = a_model("m", base=replicas)
    node = a_node(memory=memory)
    old = tuple(a_replica(before, node, slot=slot) for slot in range(replicas))
    now = replace(before, profiles=(a_profile("m-cpu", digest="new"),), standing=Standing(vetted=()))
    return World(models=(now,), nodes=(node,), replicas=old)


def vetted(world: World, *names: str) -> World:
    model = world.models[0]
    return replace(world, models=(replace(model, standing=replace(model.standing, vetted=names)),))


def step(world: World) -> World:
    return nodes_work(applied(world, reconcile(world, NOW)))


def settled(world: World) -> World:
    for _ in range(8):
        world = step(world)
    return world


def fresh(world: World) -> list[str]:
    return [item.name_now for item in world.replicas if item.run and item.digest == "new"]


def digests(world: World) -> list[str]:
    return sorted(item.digest for item in world.replicas if item.run and item.state is READY)


def test_the_old_one_stays_until_the_new_one_has_answered() -> None:
    world = settled(an_update())
    assert digests(world) == ["digest-m-cpu-1", "new"]
    world = settled(vetted(world, *fresh(world)))
    assert digests(world) == ["new"]


def test_of_several_one_is_replaced_after_the_other_each_when_it_has_answered() -> None:
    world, seen = an_update(replicas=3), []
    for _ in range(3):
        world = settled(world)
        seen.append(digests(world).count("new"))
        world = vetted(world, *fresh(world))
    assert seen == [1, 2, 3]
    assert digests(settled(world)) == ["new"] * 3


def test_without_room_for_two_the_next_is_renewed_when_the_one_before_has_answered() -> None:
    world = settled(an_update(replicas=2, memory=2 * GIB + GIB // 2))
    assert digests(world) == ["digest-m-cpu-1", "new"]
    assert digests(settled(vetted(world, *fresh(world)))) == ["new", "new"]


def test_a_planner_that_saw_an_older_moment_stops_no_old_one_either() -> None:
    world = settled(an_update())
    old = next(item for item in world.replicas if item.digest != "new")
    stop = Stop(replica_id=old.id, reason="one with the changed profile has taken its place")
    assert recheck(stop, Board(world)) == "the model has no replica too many any more"
    assert recheck(stop, Board(vetted(world, *fresh(world)))) == ""


@pytest.mark.parametrize("state", [READY, S.STARTING, S.BACKOFF, S.FAILED])
def test_swapped_back_the_new_one_goes_whatever_became_of_it_and_the_old_one_never_stopped(state: ReplicaState) -> None:
    world = settled(an_update())
    world = replace(
        world, replicas=tuple(replace(item, state=state) if item.digest == "new" else item for item in world.replicas)
    )
    model = world.models[0]
    back: ModelView = replace(model, profiles=(a_profile("m-cpu"),), standing=Standing())
    world = replace(world, models=(back,))
    plan = reconcile(world, NOW)
    assert not [op for op in plan.ops if isinstance(op, (Start, Renew))]
    assert digests(settled(world)) == ["digest-m-cpu-1"]
    assert len(settled(world).replicas) == 1


def test_where_no_update_is_under_way_ready_is_enough() -> None:
    world = an_update()
    world = replace(world, models=(replace(world.models[0], standing=Standing()),))
    assert digests(settled(world)) == ["new"]
