"""cluster.domain.plan: when an operation may be done, and what it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.domain.board import Board
from cluster.domain.plan import Keep, Op, Release, Remember, Remove, Renew, Start, Stop, do, recheck, running
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import CardView, Claim, Share, Standing, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_model, a_node, a_profile, a_replica

MODEL, NODE = a_model(), a_node()
REPLICA = a_replica(MODEL, NODE)
OUTDATED = replace(REPLICA, digest="before")
LOADING = a_replica(MODEL, NODE, slot=1, state=ReplicaState.STARTING)
FAILED = a_replica(MODEL, NODE, slot=2, state=ReplicaState.FAILED)
WORLD = World(models=(MODEL,), nodes=(NODE,), replicas=(REPLICA,))
EMPTY = replace(WORLD, replicas=())
PROFILE = MODEL.profiles[0]
SHARES = (Share(node_id=NODE.id, memory=PROFILE.memory),)
ON_CARDS = a_profile("small-gpu", cards=1, card_memory=10 * GIB)
GPU = replace(MODEL, profiles=(ON_CARDS,))
ON_A, ON_B = ((Share(node_id=NODE.id, memory=GIB, cards=((uuid, 10 * GIB),)),) for uuid in "ab")
USES_A = a_replica(GPU, NODE, shares=ON_A)
FULL_A = a_replica(GPU, NODE, slot=1, shares=(Share(node_id=NODE.id, memory=GIB, cards=(("a", 20 * GIB),)),))


def start(**fields: object) -> Start:
    values = {"model_id": MODEL.id, "profile_id": PROFILE.id, "shares": SHARES, "slot": 0, "digest": PROFILE.digest}
    return Start(**{**values, "reason": "", **fields})  # type: ignore[arg-type]


def gpu(shares: tuple[Share, ...], **fields: object) -> Start:
    return start(**{"profile_id": ON_CARDS.id, "digest": ON_CARDS.digest, "shares": shares, **fields})


def with_cards(*cards: CardView) -> World:
    return World(models=(GPU,), nodes=(replace(NODE, cards=cards),))


def renew(**fields: object) -> Renew:
    values = {
        "replica_id": REPLICA.id,
        "profile_id": PROFILE.id,
        "digest": PROFILE.digest,
        "generation": 2,
        "shares": SHARES,
    }
    return Renew(**{**values, "reason": "", **fields})  # type: ignore[arg-type]


GPU_WORLD = with_cards(a_card("a"), a_card("b"))


@pytest.mark.parametrize(
    ("op", "world", "why"),
    [
        (start(), EMPTY, ""),
        (start(), replace(WORLD, models=(replace(MODEL, base=2),)), "slot 0 is taken"),
        (start(slot=1), WORLD, "enough replicas"),
        (start(slot=1), replace(WORLD, replicas=(OUTDATED,)), ""),
        (gpu(ON_A), GPU_WORLD, ""),
        (gpu(ON_A), replace(GPU_WORLD, replicas=(FULL_A,), models=(replace(GPU, base=2),)), "card a has no room"),
        (gpu(ON_B), replace(GPU_WORLD, replicas=(FULL_A,), models=(replace(GPU, base=2),)), ""),
        (gpu(ON_A), with_cards(a_card("a", maintenance="cordoned"), a_card("b")), "card a has no room"),
        (gpu(ON_A), with_cards(a_card("a", problem="Xid 79"), a_card("b")), "card a has no room"),
        (gpu(ON_A), with_cards(a_card("b")), "card a has no room"),
        (gpu(ON_A), with_cards(a_card("a", foreign=20 * GIB), a_card("b")), "card a has no room"),
        (gpu(ON_B, slot=1), replace(GPU_WORLD, replicas=(USES_A,)), "enough replicas"),
        (
            gpu(ON_B, slot=1),
            replace(with_cards(a_card("a", maintenance="drained"), a_card("b")), replicas=(USES_A,)),
            "",
        ),
        (start(slot=2), replace(WORLD, replicas=(OUTDATED, a_replica(MODEL, NODE, slot=1))), "enough replicas"),
        (start(), replace(EMPTY, models=()), "not wanted any more"),
        (start(), replace(EMPTY, models=(replace(MODEL, enabled=False),)), "not wanted any more"),
        (start(digest="other"), EMPTY, "profile changed"),
        (start(), replace(EMPTY, nodes=()), "node was removed"),
        (start(), replace(EMPTY, nodes=(a_node(state=NodeState.STALE),)), "it is stale"),
        (renew(), WORLD, ""),
        (renew(generation=3), WORLD, "replica changed"),
        (renew(), replace(WORLD, replicas=(replace(REPLICA, run=False),)), "replica changed"),
        (renew(digest="other"), WORLD, "profile changed"),
        (renew(), EMPTY, "replica is gone"),
        (Stop(replica_id=REPLICA.id, reason=""), WORLD, "no replica too many"),
        (Stop(replica_id=REPLICA.id, reason=""), replace(WORLD, models=()), ""),
        (Stop(replica_id=REPLICA.id, reason=""), replace(WORLD, replicas=(REPLICA, LOADING)), "no replica too many"),
        (Stop(replica_id=LOADING.id, reason=""), replace(WORLD, replicas=(REPLICA, LOADING)), ""),
        (Stop(replica_id=FAILED.id, reason=""), replace(WORLD, replicas=(REPLICA, FAILED)), ""),
        (Stop(replica_id=FAILED.id, reason=""), replace(WORLD, replicas=(LOADING, FAILED)), "no replica too many"),
        (Stop(replica_id=REPLICA.id, reason=""), replace(WORLD, replicas=(replace(REPLICA, run=False),)), "already"),
        (Remove(replica_id=REPLICA.id, reason=""), WORLD, "may still run"),
        (Remove(replica_id=REPLICA.id, reason=""), replace(WORLD, nodes=()), ""),
    ],
)
def test_an_operation_is_checked_again_before_it_is_done(op: object, world: World, why: str) -> None:
    found = recheck(op, Board(world))  # type: ignore[arg-type]
    assert (found == "") if why == "" else (why in found)


def test_looking_changes_nothing() -> None:
    board = Board(replace(GPU_WORLD, replicas=(FULL_A,)))
    before = (board.rooms[NODE.id].memory, list(board.rooms[NODE.id].cards), board.replicas)
    for op in (gpu(ON_B, slot=1), renew(replica_id=FULL_A.id), Stop(replica_id=FULL_A.id, reason="")):
        recheck(op, board)
    assert (board.rooms[NODE.id].memory, list(board.rooms[NODE.id].cards), board.replicas) == before


def test_what_is_kept_for_a_model_is_for_its_own_replica_and_for_nobody_else() -> None:
    other = a_model("other", profiles=(replace(ON_CARDS, id="prof_other"),))
    claim = Claim(model_id=GPU.id, shares=(Share(node_id=NODE.id, memory=GIB, cards=(("a", 20 * GIB),)),), until=9.0)
    world = replace(GPU_WORLD, models=(GPU, other), claims=(claim,))
    assert recheck(gpu(ON_A), Board(world)) == ""
    assert "card a has no room" in recheck(gpu(ON_A, model_id=other.id, profile_id="prof_other"), Board(world))


@pytest.mark.parametrize(
    ("op", "world", "why"),
    [
        (Keep(claim=Claim(model_id=MODEL.id, shares=SHARES, until=9.0), reason=""), WORLD, ""),
        (Keep(claim=Claim(model_id=MODEL.id, shares=SHARES, until=9.0), reason=""), World(), "not wanted"),
        (Release(model_id=MODEL.id, reason=""), World(), "no room is kept"),
        (Remember(model_id=MODEL.id, before=Standing(), standing=Standing(grown=1)), WORLD, ""),
        (Remember(model_id=MODEL.id, before=Standing(grown=1), standing=Standing()), WORLD, "changed meanwhile"),
        (Remember(model_id=MODEL.id, before=Standing(), standing=Standing(grown=1)), World(), "changed meanwhile"),
    ],
)
def test_what_is_remembered_and_kept_is_checked_too(op: Op, world: World, why: str) -> None:
    found = recheck(op, Board(world))
    assert (found == "") if why == "" else (why in found)


def test_a_renewal_needs_room_for_what_it_will_be_less_what_it_was() -> None:
    small = a_node(memory=3 * GIB)
    bigger = replace(MODEL, profiles=(a_profile("small-cpu", memory=2 * GIB),))
    world = World(models=(bigger,), nodes=(small,), replicas=(a_replica(MODEL, small, id=REPLICA.id),))
    assert recheck(renew(digest=bigger.profiles[0].digest), Board(world)) == ""
    tight = replace(world, nodes=(a_node(memory=2 * GIB),))
    assert "2.0 GiB" in recheck(renew(digest=bigger.profiles[0].digest), Board(tight))


def done(op: Op, world: World, **fields: str) -> World:
    board = Board(world)
    do(op, board, **fields)
    return board.as_world()


def test_what_operations_do() -> None:
    (new,) = done(start(grown=True), EMPTY, new_id="rep_x").replicas
    assert (new.id, new.run, new.state, new.reserved) == ("rep_x", True, ReplicaState.PENDING, PROFILE.memory)
    assert (new.node_id, new.shares, new.grown) == (NODE.id, SHARES, True)
    (renewed,) = done(renew(shares=ON_A), WORLD).replicas
    assert (renewed.generation, renewed.state, renewed.shares) == (2, ReplicaState.PENDING, ON_A)
    (stopped,) = done(Stop(replica_id=REPLICA.id, reason=""), WORLD).replicas
    assert (stopped.run, stopped.state) == (False, ReplicaState.READY)
    assert done(Remove(replica_id=REPLICA.id, reason=""), WORLD).replicas == ()


def test_what_operations_remember() -> None:
    claim = Claim(model_id=MODEL.id, shares=SHARES, until=9.0)
    kept = done(Keep(claim=claim, reason=""), EMPTY)
    assert kept.claims == (claim,)
    assert done(Release(model_id=MODEL.id, reason=""), kept).claims == ()
    assert done(start(), kept).claims == ()  # used
    grown = done(Remember(model_id=MODEL.id, before=Standing(), standing=Standing(grown=2)), WORLD)
    assert grown.models[0].standing.grown == 2


def test_a_replica_on_a_lost_node_does_not_count_as_running() -> None:
    lost = replace(WORLD, nodes=(a_node(state=NodeState.OFFLINE),))
    assert running(Board(lost), MODEL.id) == []
    assert lost.state(REPLICA) is ReplicaState.LOST
