"""A replica whose engine does not start because its node has lost what it needs moves to one that has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.board import Board
from cluster.domain.demand import Found, Stage, verdict
from cluster.domain.explain import model_status
from cluster.domain.parking import PARK_AFTER
from cluster.domain.plan import Remember, Start, Stop
from cluster.domain.reconcile import reconcile
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import NOTHING_STARTED, SETTLED, NodeView, ReplicaView, Share, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import READY, a_card, a_model, a_node, a_profile, a_replica, applied, nodes_work

NOW = 1_000_000.0
S = ReplicaState
MODEL = a_model(profiles=(a_profile("gpu", cards=1, card_memory=20 * GIB),))
FULL = a_card("GPU-0", foreign=22 * GIB)


def gpu_node(name: str = "a", *cards: Any, **fields: Any) -> NodeView:
    return a_node(name, cards=cards or (a_card(f"GPU-{name}"),), **fields)


def stuck(node: NodeView, **fields: Any) -> ReplicaView:
    """A replica on card GPU-0 of a node, which its node tries to start again and again."""
    share = Share(node_id=node.id, memory=GIB, cards=(("GPU-0", 20 * GIB),))
    values = {"state": S.BACKOFF, "code": "card_memory_taken", "attempt": SETTLED, "shares": (share,), **fields}
    return a_replica(MODEL, node, **values)


def why(node: NodeView, replica: ReplicaView, *others: NodeView) -> str:
    return Board(World(models=(MODEL,), nodes=(node, *others), replicas=(replica,))).to_move(replica)


@pytest.mark.parametrize(
    ("node", "fields", "words"),
    [
        (gpu_node("a", FULL), {}, "other programs hold what it needs of card GPU-0 of node a"),
        (gpu_node("a", FULL), {"state": S.STARTING, "attempt": SETTLED + 1}, "other programs hold"),  # it looks again
        (gpu_node("a", FULL), {"attempt": SETTLED - 1}, ""),  # an engine's memory may still be coming back
        (gpu_node("a", FULL), {"attempt": SETTLED + 2, "proven": 3}, ""),
        (gpu_node("a", FULL), {"state": READY, "code": ""}, ""),
        (gpu_node("a", a_card("GPU-0")), {}, ""),  # it is free again: the next start will do
        (gpu_node("a", a_card("GPU-1")), {"code": "card_missing"}, "card GPU-0 of node a is not there any more"),
        (gpu_node("a", a_card("GPU-0")), {"code": "card_missing"}, ""),  # the node tells it again
        (gpu_node("a", a_card("GPU-0", problem="Xid 79")), {"code": "engine_start_failed"}, "card GPU-0 of node a: Xid 79"),
        (gpu_node("a", a_card("GPU-0", problem="Xid 79")), {"code": "engine_died", "attempt": 2, "proven": 1}, ""),
        (gpu_node("a", a_card("GPU-0", problem="Xid 79")), {"state": READY, "code": ""}, ""),  # it serves on
        (gpu_node("a", a_card("GPU-0"), engines={}), {"code": "engine_missing"}, "node a has no llama.cpp"),
        (
            gpu_node("a", a_card("GPU-0"), engines={"llama.cpp": "no such file"}),
            {"code": "engine_missing"},
            "node a has no llama.cpp that can run: no such file",
        ),
        (gpu_node("a", a_card("GPU-0")), {"code": "engine_missing"}, ""),
        (gpu_node("a", a_card("GPU-0")), {"code": "spawn_failed", "attempt": 1}, ""),
        (gpu_node("a", a_card("GPU-0")), {"code": "spawn_failed", "attempt": 2}, "the system of node a did not start its engine 2"),
    ],
)  # fmt: skip
def test_it_leaves_where_its_node_says_what_has_gone(node: NodeView, fields: dict[str, Any], words: str) -> None:
    found = why(node, stuck(node, **fields))
    assert found.startswith(words) if words else not found


@pytest.mark.parametrize("code", ["card_memory_taken", "card_missing", "engine_missing", "spawn_failed"])
def test_it_is_placed_elsewhere_and_stopped_when_the_other_is_ready(code: str) -> None:
    cards = {"card_memory_taken": FULL, "card_missing": a_card("GPU-1", memory=8 * GIB)}
    node = gpu_node(
        "a", cards.get(code, a_card("GPU-0")), engines={} if code == "engine_missing" else {"llama.cpp": ""}
    )
    tries = 2 if code == "spawn_failed" else SETTLED
    world = World(models=(MODEL,), nodes=(node, gpu_node("b")), replicas=(stuck(node, code=code, attempt=tries),))
    kinds: list[type] = []
    for _ in range(6):
        plan = reconcile(world, NOW)
        kinds += [type(op) for op in plan.ops if isinstance(op, (Start, Stop))]
        world = nodes_work(applied(world, plan))
    assert kinds == [Start, Stop]
    assert [(item.node_id, item.state) for item in world.replicas] == [("node_b", READY)]


def test_while_its_node_looks_again_its_successor_goes_on() -> None:
    """Each new look is a start for a moment: that must not stop the one that takes its place."""
    node = gpu_node("a", FULL)
    world = World(models=(MODEL,), nodes=(node, gpu_node("b")), replicas=(stuck(node),))
    world = applied(world, reconcile(world, NOW))
    looks = replace(world.replicas[0], state=S.STARTING, attempt=SETTLED + 1)
    assert reconcile(replace(world, replicas=(looks, world.replicas[1])), NOW).ops == ()


def test_where_nobody_else_has_room_it_stays_and_says_both() -> None:
    node = gpu_node("a", FULL)
    world = World(models=(MODEL,), nodes=(node, a_node("b")), replicas=(stuck(node, message="only 4 GiB are free."),))
    plan = reconcile(world, NOW)
    assert plan.ops == ()
    status = model_status(world, plan, MODEL)
    assert status.code == "card_memory_taken"
    assert "only 4 GiB are free; other programs hold what it needs of card GPU-0" in status.reason
    assert "b: the profile wants 1 card" in status.reason
    freed = replace(world, nodes=(gpu_node("a", a_card("GPU-0")), world.nodes[1]))
    assert reconcile(freed, NOW).ops == ()


def refused_at(node: NodeView, world: World) -> World:
    """One more start of whatever is on this node, which its system refuses."""
    failed = [
        replace(item, state=S.BACKOFF, attempt=item.attempt + 1, code="spawn_failed", message="Cannot allocate memory.")
        if item.node_id == node.id
        else item
        for item in world.replicas
    ]
    return replace(world, replicas=tuple(failed))


def test_what_the_system_does_not_start_goes_to_another_node_and_not_back() -> None:
    one, two = gpu_node("a"), gpu_node("b")
    world = World(models=(MODEL,), nodes=(one, two))
    where: list[str] = []
    for step in range(12):
        world = applied(world, reconcile(world, NOW + step))
        where += [item.node_id for item in world.replicas if item.node_id not in where]
        world = refused_at(two, refused_at(one, world))
    assert sorted(where) == ["node_a", "node_b"]
    standing = world.models[0].standing
    assert (standing.parked_at is not None, standing.parked_code) == (True, "spawn_failed")
    assert "Cannot allocate memory" in standing.parked_message


def test_what_no_system_starts_is_parked_after_five_starts() -> None:
    """It is not started anew in its place either, though a second way to run it is there: each would have its tries again."""
    model = replace(MODEL, profiles=(*MODEL.profiles, a_profile("other", cards=1, card_memory=20 * GIB)))
    node = gpu_node("a")
    world = World(models=(model,), nodes=(node,))
    for step in range(1, 12):
        world = applied(world, reconcile(world, NOW + step))
        if world.models[0].standing.parked_at is not None:
            break
        world = refused_at(node, world)
    assert world.models[0].standing.failures in (PARK_AFTER, PARK_AFTER + 1)
    assert sum(item.attempt for item in world.replicas) <= PARK_AFTER + 1


def test_what_the_system_does_not_start_and_has_no_other_place_says_what_it_said() -> None:
    node = gpu_node("a", a_card("GPU-0"))
    there = stuck(node, code="spawn_failed", attempt=3, message="Cannot allocate memory.")
    world = World(models=(MODEL,), nodes=(node,), replicas=(there,))
    plan = reconcile(world, NOW)
    assert [type(op) for op in plan.ops] == [Remember]
    status = model_status(world, plan, MODEL)
    assert (status.code, "Cannot allocate memory; the system of node a" in status.reason) == ("spawn_failed", True)


def test_it_may_move_to_another_card_of_its_node() -> None:
    node = gpu_node("a", FULL, a_card("GPU-1"))
    world = World(models=(MODEL,), nodes=(node,), replicas=(stuck(node),))
    (op,) = reconcile(world, NOW).ops
    assert isinstance(op, Start)
    assert op.shares[0].cards == (("GPU-1", 20 * GIB),)


def test_two_that_share_a_card_with_another_program_do_not_both_leave() -> None:
    node = gpu_node("a", a_card("GPU-0", memory=80 * GIB, foreign=40 * GIB))
    one = a_replica(MODEL, node, shares=stuck(node).shares)
    two = stuck(node, slot=1)
    model = replace(MODEL, base=2)
    world = World(models=(model,), nodes=(node, gpu_node("b")), replicas=(one, two))
    board = Board(world)
    assert [bool(board.to_move(item)) for item in (one, two)] == [False, True]
    for _ in range(6):
        world = nodes_work(applied(world, reconcile(world, NOW)))
    assert {(item.id == one.id, item.node_id) for item in world.replicas} == {(True, node.id), (False, "node_b")}


def test_a_replica_over_several_nodes_leaves_when_one_of_them_is_drained() -> None:
    one, two = gpu_node("a", fabric="ib"), gpu_node("b", fabric="ib", maintenance="drained")
    shares = tuple(Share(node_id=node.id, memory=GIB, cards=((node.cards[0].uuid, GIB),)) for node in (one, two))
    assert why(one, a_replica(MODEL, one, shares=shares), two) == "node b is drained for maintenance"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"state": NodeState.OFFLINE}, "node b is offline"),
        ({"modules": frozenset({"router"})}, "node b does not run the module inference any more"),
        (None, "its node was removed"),
    ],
)
def test_a_replica_over_several_nodes_is_lost_with_any_of_them(fields: dict[str, Any] | None, words: str) -> None:
    """Its engine cannot go on without the others: it is replaced on nodes that are there."""
    nodes = [gpu_node(name, fabric="ib") for name in "abcd"]
    model = replace(MODEL, profiles=(a_profile("wide", cards=1, card_memory=GIB, span=2),))
    shares = tuple(Share(node_id=node.id, memory=GIB, cards=((node.cards[0].uuid, GIB),)) for node in nodes[:2])
    nodes[1:2] = [] if fields is None else [replace(nodes[1], **fields)]
    world = World(models=(model,), nodes=tuple(nodes), replicas=(a_replica(model, nodes[0], shares=shares),))
    assert world.state(world.replicas[0]) is Board(world).state(world.replicas[0]) is S.LOST
    plan = reconcile(world, NOW)
    assert [op.node_id for op in plan.ops if isinstance(op, Start)]
    (stop,) = (op for op in plan.ops if isinstance(op, Stop))
    assert stop.reason.startswith(words), "its other part holds a card and computes nothing: it goes at once"
    assert stop.grace == 0.0
    for _ in range(6):
        world = nodes_work(applied(world, reconcile(world, NOW)))
    assert [(item.state, "node_b" in item.node_ids) for item in world.replicas] == [(READY, False)]


@pytest.mark.parametrize(
    ("attempt", "stage"), [(1, Stage.STARTING), (SETTLED - 1, Stage.STARTING), (SETTLED, Stage.FAILED)]
)
def test_f41_a_request_waits_for_memory_that_comes_back_late(attempt: int, stage: Stage) -> None:
    waiting = stuck(gpu_node("a", FULL), attempt=attempt)
    assert verdict(MODEL, [(waiting, waiting.state)], Found(attempt_at=NOW), attempt=NOW).stage is stage


# --- whatever does not start

nodes = st.builds(
    lambda name, card, engines, lacks: a_node(
        name, engines=engines, cards=(replace(card, uuid=f"GPU-{name}"),), lacks=lacks, memory=64 * GIB
    ),
    st.sampled_from("ab"),
    st.sampled_from([a_card(), a_card(foreign=22 * GIB), a_card(problem="Xid 79"), a_card(memory=8 * GIB)]),
    st.sampled_from([{"llama.cpp": ""}, {"llama.cpp": ""}, {}]),
    st.sampled_from([frozenset[str](), frozenset[str](), frozenset({"w"})]),
)


@given(
    st.lists(nodes, min_size=1, max_size=2, unique_by=lambda node: node.name),
    st.sampled_from([*sorted(NOTHING_STARTED), "spawn_failed", "engine_start_failed"]),
    st.sampled_from([S.BACKOFF, S.STARTING]),
    st.integers(1, 9),
    st.booleans(),
)
def test_one_that_is_to_move_is_moved_once_or_says_why_not(
    found: list[NodeView], code: str, state: ReplicaState, attempt: int, old_card: bool
) -> None:
    model = replace(MODEL, weights="w", weights_size=5)
    card = found[0].cards[0].uuid if not old_card else "GPU-gone"
    share = Share(node_id=found[0].id, memory=GIB, cards=((card, 20 * GIB),))
    first = a_replica(model, found[0], shares=(share,), state=state, code=code, attempt=attempt)
    world = World(models=(model,), nodes=tuple(found), replicas=(first,))
    moves = Board(world).to_move(first)
    plan = reconcile(world, NOW)
    starts = [op for op in plan.ops if isinstance(op, Start)]
    if moves:
        assert len(starts) == 1 or {wait.code for wait in plan.waits} & {"waiting_to_move", "model_parked"}
        assert all((share.node_id, share.cards) != (op.node_id, op.shares[0].cards) for op in starts)
    else:
        assert starts == []
    for step in range(8):
        world = nodes_work(applied(world, plan))
        plan = reconcile(world, NOW + step)
    assert plan.ops == ()
