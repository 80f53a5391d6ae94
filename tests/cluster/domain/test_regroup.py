"""Replicas over several nodes that have lost a part or a node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.domain.plan import Op, Plan, Remember, Renew, Start, Stop
from cluster.domain.reconcile import reconcile
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import NodeView, ReplicaView, Share, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_model, a_node, a_profile, a_replica, applied

NODES = tuple(
    a_node(name, memory=64 * GIB, fabric="ib0", engines={"vllm": ""}, cards=(a_card(f"GPU-{name}"),)) for name in "abc"
)
WIDE = a_profile("wide", engine="vllm", cards=1, card_memory=16 * GIB, even=True, span=2)
MODEL = a_model(profiles=(WIDE,))
SHARES = tuple(
    Share(node_id=node.id, memory=WIDE.memory, cards=((node.cards[0].uuid, 16 * GIB),)) for node in NODES[:2]
)
DIED = {"state": ReplicaState.BACKOFF, "code": "engine_start_failed", "message": "part 2 of 2, on node b: It ended."}


def wide(**fields: Any) -> ReplicaView:
    return a_replica(MODEL, NODES[0], **{"shares": SHARES, "attempt": 1, "state_since": 100.0, **fields})


def world(replica: ReplicaView, **fields: Any) -> World:
    return World(**{"models": (MODEL,), "nodes": NODES[:2], "replicas": (replica,), **fields})


def done(plan: Plan) -> list[Op]:
    """What is done to replicas."""
    return [op for op in plan.ops if not isinstance(op, Remember)]


def test_a_replica_of_which_a_part_ended_begins_anew_as_a_whole_where_it_is() -> None:
    replica = wide(**DIED)
    plan = reconcile(world(replica), 102.0)
    (op,) = done(plan)
    assert isinstance(op, Renew)
    assert (op.again, op.generation, op.shares) == (True, 2, SHARES)
    assert "part 2 of 2, on node b: It ended; its parts begin anew together" in op.reason
    after = applied(world(replica), plan).replicas[0]
    assert (after.state, after.attempt, after.failures) == (ReplicaState.STARTING, 2, 1)


@pytest.mark.parametrize(("attempt", "after"), [(1, 2.0), (3, 2.0), (4, 4.0)])
def test_the_pauses_between_its_starts_grow(attempt: int, after: float) -> None:
    seen = world(wide(**DIED, attempt=attempt))
    assert not [op for op in reconcile(seen, 100.0 + after - 0.1).ops if isinstance(op, Renew)]
    assert [op for op in reconcile(seen, 100.0 + after).ops if isinstance(op, Renew)]


def test_after_five_failed_starts_its_model_is_parked_and_it_stops() -> None:
    plan = reconcile(world(wide(**DIED, attempt=5)), 1000.0)
    parked = next(op for op in plan.ops if isinstance(op, Remember))
    assert (parked.standing.parked_code, parked.standing.failures) == ("engine_start_failed", 5)
    assert "part 2 of 2, on node b" in parked.standing.parked_message
    assert [type(op) for op in done(plan)] == [Stop]


@pytest.mark.parametrize("code", ["card_memory_taken", "weights_missing", "spawn_failed"])
def test_a_part_that_could_not_even_begin_is_its_nodes_matter(code: str) -> None:
    assert not done(reconcile(world(wide(**{**DIED, "code": code})), 1000.0))


def test_one_that_was_ready_before_a_part_ended_counts_no_failed_start() -> None:
    seen = wide(**{**DIED, "code": "engine_died"}, proven=1)
    after = applied(world(seen), reconcile(world(seen), 102.0)).replicas[0]
    assert after.failures == 0


def test_a_cordoned_node_starts_again_what_it_holds() -> None:
    nodes = (NODES[0], replace(NODES[1], maintenance="cordoned"))
    (op,) = done(reconcile(world(wide(**DIED), nodes=nodes), 102.0))
    assert isinstance(op, Renew)


@pytest.mark.parametrize("nodes", [NODES[:2], NODES])
def test_one_whose_card_has_failed_gives_the_others_back_and_begins_elsewhere(nodes: tuple[NodeView, ...]) -> None:
    bad = replace(NODES[1], cards=(a_card("GPU-b", problem="it has fallen off the bus"),))
    seen = world(wide(**DIED), nodes=(nodes[0], bad, *nodes[2:]))
    (op,) = [op for op in reconcile(seen, 1000.0).ops if isinstance(op, Stop)]
    assert op.reason.startswith("card GPU-b of node b: it has fallen off the bus, and ")
    left = world(replace(seen.replicas[0], run=False, state=ReplicaState.STOPPED), nodes=seen.nodes)
    started = [op for op in reconcile(left, 1010.0).ops if isinstance(op, Start)]
    assert [{share.node_id for share in op.shares} for op in started] == [{"node_a", "node_c"}][: len(nodes) - 2]


def test_it_waits_while_others_hold_what_it_needs_of_a_card() -> None:
    taken = replace(NODES[1], cards=(a_card("GPU-b", foreign=20 * GIB),))
    assert not [
        op for op in reconcile(world(wide(**DIED), nodes=(NODES[0], taken)), 102.0).ops if isinstance(op, Renew)
    ]


@pytest.mark.parametrize("away", [0, 1])
def test_one_that_is_lost_with_a_node_stops_at_once_and_another_takes_the_cards_that_are_left(away: int) -> None:
    nodes = tuple(replace(node, state=NodeState.OFFLINE) if at == away else node for at, node in enumerate(NODES))
    replica = wide()
    seen = world(replica, nodes=nodes)
    first = reconcile(seen, 1000.0)
    (op,) = [op for op in first.ops if isinstance(op, Stop)]
    assert op.grace == 0.0
    assert "is offline" in op.reason
    left = replace(replica, run=False, shares=(SHARES[away],))  # the part on the other node has stopped
    plan = reconcile(world(left, nodes=nodes), 1010.0)
    start = next(op for op in plan.ops if isinstance(op, Start))
    assert {share.node_id for share in start.shares} == {node.id for node in nodes} - {nodes[away].id}


def test_a_node_whose_address_on_the_fabric_is_loopback_takes_no_part() -> None:
    nodes = tuple(replace(node, unreachable="its address is 127.0.0.1") for node in NODES)
    plan = reconcile(World(models=(MODEL,), nodes=nodes), 1.0)
    assert not plan.ops
    assert plan.waits[0].code == "no_fabric_address"
    assert "its address is 127.0.0.1" in plan.waits[0].message
