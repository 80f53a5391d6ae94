"""What maintenance, pinned profiles, missing modules and failures for good do to placement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.domain.board import Board
from cluster.domain.explain import model_status
from cluster.domain.modules import Module
from cluster.domain.place import NoPlace, Placement, Placer
from cluster.domain.plan import Plan, Renew, Start, Stop
from cluster.domain.reconcile import reconcile
from cluster.domain.refusals import feasible
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import CardView, NodeView, ProfileView, ReplicaView, Share, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import (
    READY,
    a_card,
    a_model,
    a_node,
    a_profile,
    a_replica,
    applied,
    nodes_work,
    with_replica,
)

NOW = 1_000_000.0
ROUTER = frozenset({Module.ROUTER.value})


def with_node(world: World, node: NodeView, **fields: Any) -> World:
    return replace(world, nodes=tuple(replace(n, **fields) if n.id == node.id else n for n in world.nodes))


def rest(world: World, *, least: int = 0, steps: int = 12) -> tuple[World, list[type]]:
    """The world some heartbeats later, and what was done; at each step at least so many replicas serve."""
    kinds: list[type] = []
    for _ in range(steps):
        plan = reconcile(world, NOW)
        kinds += [type(op) for op in plan.ops]
        world = nodes_work(applied(world, plan))
        assert sum(r.state is READY and r.run for r in world.replicas) >= least
    return world, kinds


def refused(node: NodeView, profile: ProfileView) -> tuple[str, str]:
    found = feasible(Board(World(nodes=(node,))), node, profile)
    return found.code, found.message


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"maintenance": "cordoned", "maintenance_why": "fan"}, "node_cordoned", "cordoned for maintenance (fan)"),
        ({"maintenance": "drained"}, "node_drained", "drained for maintenance"),
        ({"modules": ROUTER}, "no_inference_module", "does not run the module inference"),
    ],
)
def test_nothing_new_goes_where_an_administrator_forbids_it(fields: dict[str, Any], code: str, words: str) -> None:
    verdict = refused(a_node(**fields), a_profile())
    assert verdict[0] == code
    assert words in verdict[1]


ON_CARD = a_profile("gpu", cards=1, card_memory=10 * GIB)
CORDONED_A, DRAINED_B = a_card("a", maintenance="cordoned"), a_card("b", maintenance="drained")


@pytest.mark.parametrize(
    ("cards", "profile", "code", "words"),
    [
        ((CORDONED_A, DRAINED_B), ON_CARD, "cards_in_maintenance", "card a is cordoned; card b is drained"),
        ((CORDONED_A, a_card("b")), ON_CARD, "", ""),
        ((CORDONED_A, a_card("b")), replace(ON_CARD, cards=2), "cards_in_maintenance", "card a is cordoned"),
        ((CORDONED_A, DRAINED_B), a_profile(), "", ""),  # the processor's way needs no card
    ],
)
def test_cards_in_maintenance_are_not_used(
    cards: tuple[CardView, ...], profile: ProfileView, code: str, words: str
) -> None:
    verdict = refused(a_node(cards=cards), profile)
    assert verdict[0] == code
    assert words in verdict[1]


def test_f69_a_node_in_maintenance_that_is_switched_off_says_both() -> None:
    model = a_model()
    node = a_node(state=NodeState.OFFLINE, maintenance="drained", maintenance_why="new disk")
    world = World(models=(model,), nodes=(node,), replicas=(a_replica(model, node),))
    status = model_status(world, reconcile(world, NOW), model)
    assert (status.ready, status.code) == (0, "node_offline")
    assert "it is offline and drained for maintenance (new disk)" in status.reason


def test_f65_a_model_that_is_pinned_to_a_node_waits_for_it_and_goes_nowhere_else() -> None:
    model = a_model(profiles=(a_profile(nodes=("gpu1",)),))
    pinned, other = a_node("gpu1", state=NodeState.OFFLINE), a_node("other")
    world = World(models=(model,), nodes=(pinned, other), replicas=(a_replica(model, pinned),))
    plan = reconcile(world, NOW)
    assert plan.ops == ()
    assert plan.waits[0].code == "node_offline"
    assert plan.waits[0].message == "no suitable node for small, because gpu1: it is offline"
    back = with_node(world, pinned, state=NodeState.ONLINE)
    assert reconcile(back, NOW) == Plan()


def test_a_model_that_is_pinned_to_nodes_that_are_not_there_says_so() -> None:
    model = a_model(profiles=(a_profile(nodes=("gone",)),))
    found = Placer(Board(World(models=(model,), nodes=(a_node(),)))).place(model)
    assert isinstance(found, NoPlace)
    assert found.code == "pinned_elsewhere"
    assert "may run only on gone" in found.message


def test_a_replica_moves_when_its_profile_may_no_longer_run_on_its_node() -> None:
    model, one, two = a_model(), a_node("one"), a_node("two")
    pinned = replace(model, profiles=(replace(model.profiles[0], nodes=("two",)),))
    world = World(models=(pinned,), nodes=(one, two), replicas=(a_replica(model, one),))
    world, kinds = rest(world, least=1)
    assert [r.node_id for r in world.replicas] == [two.id]
    assert kinds[:2] == [Start, Stop]


def test_a_drained_node_is_left_without_a_gap() -> None:
    model, one, two = a_model(base=2), a_node("one"), a_node("two", memory=64 * GIB)
    there = tuple(a_replica(model, one, slot=slot) for slot in (0, 1))
    world = World(
        models=(model,), nodes=(replace(one, maintenance="drained", maintenance_why="x"), two), replicas=there
    )
    plan = reconcile(world, NOW)
    assert [type(op) for op in plan.ops] == [Start]  # one after the other
    assert "node one is drained for maintenance (x)" in plan.ops[0].reason
    world, _ = rest(world, least=2)
    assert [r.node_id for r in world.replicas] == [two.id, two.id]
    assert reconcile(world, NOW) == Plan()


def test_a_cordoned_node_keeps_what_it_has() -> None:
    model, one, two = a_model(), a_node("one", maintenance="cordoned"), a_node("two")
    world = World(models=(model,), nodes=(one, two), replicas=(a_replica(model, one),))
    assert reconcile(world, NOW) == Plan()


def test_a_drained_node_that_nothing_can_replace_serves_on_and_says_why() -> None:
    model, one = a_model(), a_node("one", maintenance="drained", maintenance_why="new fan")
    small = a_node("small", memory=GIB)
    world = World(models=(model,), nodes=(one, small), replicas=(a_replica(model, one),))
    plan = reconcile(world, NOW)
    assert plan.ops == ()
    assert [(wait.code, wait.replica_id) for wait in plan.waits] == [("waiting_to_move", world.replicas[0].id)]
    assert "node one is drained for maintenance (new fan)" in plan.waits[0].message
    assert "small: it needs 1.0 GiB" in plan.waits[0].message
    assert model_status(world, plan, model).ready == 1
    world = replace(world, nodes=(one, replace(small, memory_total=8 * GIB, memory_available=8 * GIB)))
    world, _ = rest(world, least=1)
    assert [r.node_id for r in world.replicas] == [small.id]


def test_a_drained_node_that_goes_off_before_its_replicas_moved_loses_them_and_they_are_placed_elsewhere() -> None:
    model, two = a_model(), a_node("two")
    one = a_node("one", maintenance="drained", state=NodeState.OFFLINE)
    world = World(models=(model,), nodes=(one, two), replicas=(a_replica(model, one),))
    world, _ = rest(world)
    assert [r.node_id for r in world.replicas] == [two.id]


def on_card(node: NodeView, uuid: str) -> ReplicaView:
    share = Share(node_id=node.id, memory=ON_CARD.memory, cards=((uuid, ON_CARD.card_memory),))
    return a_replica(a_model(profiles=(ON_CARD,)), node, shares=(share,))


def test_f68_a_drained_card_alone_is_left_the_node_serves_on_with_the_others() -> None:
    model, node = a_model(profiles=(ON_CARD,)), a_node(cards=(a_card("a"), DRAINED_B))
    world = World(models=(model,), nodes=(node,), replicas=(on_card(node, "b"),))
    world, kinds = rest(world, least=1)
    assert [r.cards for r in world.replicas] == [("a",)]
    assert kinds[:2] == [Start, Stop]


def test_f68_where_there_is_no_room_for_two_the_replica_is_started_anew_without_the_card() -> None:
    model, node = a_model(profiles=(ON_CARD,)), a_node(memory=int(1.7 * GIB), cards=(a_card("a"), DRAINED_B))
    world = World(models=(model,), nodes=(node,), replicas=(on_card(node, "b"),))
    plan = reconcile(world, NOW)
    assert [type(op) for op in plan.ops] == [Renew]
    world = applied(world, plan)
    assert world.replicas[0].cards == ("a",)
    assert reconcile(nodes_work(nodes_work(world)), NOW) == Plan()


def test_a_replica_that_does_not_use_the_drained_card_stays() -> None:
    model, node = a_model(profiles=(ON_CARD,)), a_node(cards=(a_card("a"), DRAINED_B))
    world = World(models=(model,), nodes=(node,), replicas=(on_card(node, "a"),))
    assert reconcile(world, NOW) == Plan()


def test_a_replica_on_the_processor_is_not_concerned_by_cards() -> None:
    model, node = a_model(), a_node(cards=(a_card("a", maintenance="drained"), DRAINED_B))
    world = World(models=(model,), nodes=(node,), replicas=(a_replica(model, node),))
    assert reconcile(world, NOW) == Plan()


def test_a_cordoned_card_moves_nobody() -> None:
    model, node = a_model(profiles=(ON_CARD,)), a_node(cards=(CORDONED_A, a_card("b")))
    world = World(models=(model,), nodes=(node,), replicas=(on_card(node, "a"),))
    assert reconcile(world, NOW) == Plan()


def test_replicas_of_a_node_without_the_inference_module_count_as_lost() -> None:
    model, one, two = a_model(), a_node("one", modules=ROUTER), a_node("two")
    world = World(models=(model,), nodes=(one, two), replicas=(a_replica(model, one),))
    assert world.state(world.replicas[0]) is ReplicaState.LOST
    world, kinds = rest(world)
    assert kinds[:2] == [Start, Stop]
    assert [r.node_id for r in world.replicas] == [two.id]


def test_a_failed_replica_is_replaced_elsewhere_and_then_stopped() -> None:
    model, one, two = a_model(), a_node("one"), a_node("two")
    failed = a_replica(model, one, state=ReplicaState.FAILED, code="weights_missing", message="no file")
    world = World(models=(model,), nodes=(one, two), replicas=(failed,))
    plan = reconcile(world, NOW)
    assert [(type(op), getattr(op, "node_id", "")) for op in plan.ops] == [(Start, two.id)]
    assert [wait.code for wait in plan.waits] == ["weights_missing"]
    world, kinds = rest(world)
    assert [r.node_id for r in world.replicas] == [two.id]
    assert kinds[0] is Start
    assert Stop in kinds


def test_one_that_fails_everywhere_is_tried_once_on_each_node_and_says_so() -> None:
    model, nodes = a_model(), tuple(a_node(name) for name in "abc")
    world = World(models=(model,), nodes=nodes)
    for _ in range(9):
        world = applied(world, reconcile(world, NOW))
        for replica in world.replicas:
            world = with_replica(world, replica.id, state=ReplicaState.FAILED, message="no file")
    assert sorted(r.node_id for r in world.replicas) == [node.id for node in nodes]
    assert all(r.run for r in world.replicas)
    plan = reconcile(world, NOW)
    assert plan.ops == ()
    assert "has failed and is not tried again: no file (no suitable node for small" in plan.waits[0].message


def test_a_second_profile_is_tried_on_the_node_where_the_first_has_failed() -> None:
    first, second = a_profile("first", priority=2), a_profile("second")
    model, node = a_model(profiles=(first, second)), a_node()
    world = World(models=(model,), nodes=(node,), replicas=(a_replica(model, node, state=ReplicaState.FAILED),))
    (op,) = reconcile(world, NOW).ops
    assert isinstance(op, Start)
    assert op.profile_id == second.id


def test_an_external_model_is_placed_nowhere() -> None:
    model, node = a_model(external=True, base=3, profiles=()), a_node(modules=frozenset({"cloud"}))
    world = World(models=(model,), nodes=(node,))
    plan = reconcile(world, NOW)
    assert plan == Plan()
    assert model_status(world, plan, model).code == ""
    without = replace(world, nodes=(a_node(),))
    assert model_status(without, reconcile(without, NOW), model).code == "no_cloud_node"
    off = replace(model, provider_enabled=False)
    found = model_status(replace(world, models=(off,)), plan, off)
    assert (found.code, found.external, found.short) == ("provider_disabled", True, False)


def test_a_long_list_of_equal_reasons_is_one() -> None:
    model = a_model()
    nodes = tuple(a_node(f"n{number:03}", maintenance="cordoned") for number in range(100))
    found = Placer(Board(World(models=(model,), nodes=nodes))).place(model)
    assert not isinstance(found, Placement)
    assert found.message.endswith(", because n000, n001, n002 and 97 more: it is cordoned for maintenance")
