"""cluster.domain.board: a picture that changes in place, and goes back to any earlier moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.board import Board
from cluster.domain.states import ReplicaState
from cluster.domain.types import Claim, ReplicaView, Share, Standing, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_model, a_node, a_replica

MODEL, OTHER = a_model(), a_model("other")
ONE, TWO = a_node("one", cards=(a_card("a"), a_card("b"))), a_node("two", memory=16 * GIB)
WORLD = World(models=(MODEL, OTHER), nodes=(TWO, ONE))


def share(node_id: str = ONE.id, size: int = 2, **cards: int) -> Share:
    held = tuple((uuid, gigabytes * GIB) for uuid, gigabytes in cards.items())
    return Share(node_id=node_id, memory=size * GIB, cores=1, cards=held)


def state_of(board: Board) -> dict[str, Any]:
    """All that can be seen of a board, but for orders and versions."""
    rooms = {key: (room.memory, room.cores, list(room.cards), room.top) for key, room in board.rooms.items()}
    world = board.as_world()
    return {
        "rooms": rooms,
        "replicas": {item.id: item for item in world.replicas},
        "claims": world.claims,
        "of_model": {model.id: {item.id for item in board.of_model(model.id)} for model in world.models},
        "on_node": {node.id: {item.id for item in board.on_node(node.id)} for node in world.nodes},
        "counts": {(m.id, n.id): board.count(m.id, n.id) for m in world.models for n in world.nodes},
    }


def test_nodes_stand_in_the_order_of_their_names() -> None:
    board = Board(WORLD)
    assert [room.node.name for room in board.by_index] == ["one", "two"]
    assert [room.index for room in board.by_index] == [0, 1]


def test_a_replica_takes_of_each_node_that_it_spans_and_counts_there() -> None:
    board = Board(WORLD)
    before = {key: room.memory for key, room in board.rooms.items()}
    board.put(a_replica(MODEL, ONE, shares=(share(a=10), share(TWO.id, 3))))
    assert {key: before[key] - room.memory for key, room in board.rooms.items()} == {ONE.id: 2 * GIB, TWO.id: 3 * GIB}
    assert board.rooms[ONE.id].cards[0] == board.rooms[ONE.id].cards[1] - 10 * GIB
    assert [board.count(MODEL.id, node.id) for node in (ONE, TWO)] == [1, 1]
    assert board.count(OTHER.id, ONE.id) == 0
    assert [item.id for item in board.on_node(TWO.id)] == [item.id for item in board.of_model(MODEL.id)]


def test_another_state_of_a_replica_takes_the_place_of_the_first() -> None:
    replica = a_replica(MODEL, ONE, shares=(share(size=3),))
    board = Board(replace(WORLD, replicas=(replica,)))
    left = board.rooms[ONE.id].memory
    board.put(replace(replica, shares=(share(size=1),)))
    assert board.rooms[ONE.id].memory == left + 2 * GIB
    board.put(replace(replica, shares=(share(TWO.id),), node_id=TWO.id))
    assert (board.on_node(ONE.id), len(board.on_node(TWO.id)), len(board.of_model(MODEL.id))) == ([], 1, 1)


def test_one_that_is_dropped_leaves_what_its_engine_used_to_the_machine_s_next_word() -> None:
    """A heartbeat says what is free: until then a drop gives back only what was promised, and a lift the whole."""
    replica = a_replica(MODEL, ONE, shares=(share(size=3),))
    tight = replace(WORLD, nodes=(replace(ONE, memory_available=2 * GIB), TWO), replicas=(replica,))
    dropped, lifted = Board(tight), Board(tight)
    dropped.drop(replica.id)
    lifted.lift(replica.id)
    assert lifted.rooms[ONE.id].memory - dropped.rooms[ONE.id].memory == 3 * GIB
    assert dropped.replica(replica.id) is lifted.replica(replica.id) is None


def test_a_claim_keeps_room_until_another_takes_its_place_or_it_is_released() -> None:
    board = Board(WORLD)
    free = board.rooms[ONE.id].memory
    board.claim(MODEL.id, Claim(model_id=MODEL.id, shares=(share(size=3, a=20),), until=1.0))
    assert free - board.rooms[ONE.id].memory == 3 * GIB
    second = Claim(model_id=MODEL.id, shares=(share(size=1),), until=2.0)
    board.claim(MODEL.id, second)
    assert free - board.rooms[ONE.id].memory == GIB
    assert board.claim_of(MODEL.id) is second
    assert state_of(board) == state_of(Board(board.as_world()))
    board.claim(MODEL.id, None)
    assert (board.rooms[ONE.id].memory, board.claim_of(MODEL.id)) == (free, None)


def test_going_back_forgets_what_was_remembered_of_a_model_since() -> None:
    board = Board(WORLD)
    board.remember(MODEL.id, Standing(grown=1))
    mark = board.mark()
    board.remember(MODEL.id, Standing(grown=2))
    board.remember(MODEL.id, Standing(grown=3))
    board.back(mark)
    assert board.as_world().models[0].standing.grown == 1


def test_a_replica_or_a_claim_on_a_node_that_is_gone_breaks_nothing() -> None:
    replica = a_replica(MODEL, a_node("gone"), shares=(share("node_gone"),))
    claim = Claim(model_id=MODEL.id, shares=(share("node_gone"),), until=1.0)
    board = Board(replace(WORLD, replicas=(replica,), claims=(claim,)))
    board.drop(replica.id)
    board.claim(MODEL.id, None)
    assert state_of(board) == state_of(Board(WORLD))


# --- any order of things

shares = st.lists(
    st.builds(share, st.sampled_from([ONE.id, TWO.id]), st.integers(0, 4), a=st.integers(0, 9), b=st.integers(0, 9)),
    min_size=1,
    max_size=2,
    unique_by=lambda item: item.node_id,
).map(tuple)


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """What is done to a board, one thing after the other; ids come again, so that things are changed and dropped."""
    found: list[tuple[str, Any]] = []
    for _ in range(draw(st.integers(0, 12))):
        act = draw(st.sampled_from(["put", "put", "drop", "lift", "claim", "release"]))
        model = draw(st.sampled_from([MODEL, OTHER]))
        if act == "put":
            held = draw(shares)
            thing: Any = ReplicaView(
                id=draw(st.sampled_from("rst")), model_id=model.id, profile_id=None, node_id=held[0].node_id, slot=0,
                shares=held, state=draw(st.sampled_from(ReplicaState)), run=draw(st.booleans()),
            )  # fmt: skip
        elif act == "claim":
            thing = Claim(model_id=model.id, shares=draw(shares), until=1.0)
        else:
            thing = model.id if act == "release" else draw(st.sampled_from("rst"))
        found.append((act, thing))
    return found


def perform(board: Board, act: str, thing: Any) -> None:
    if act == "put":
        there = board.replica(thing.id)
        board.put(replace(thing, model_id=there.model_id) if there else thing)  # a replica keeps its model
    elif act == "claim":
        board.claim(thing.model_id, thing)
    elif act == "release":
        board.claim(thing, None)
    elif board.replica(thing) is not None:
        (board.lift if act == "lift" else board.drop)(thing)


@given(steps(), steps())
def test_going_back_restores_everything(before: list[tuple[str, Any]], tried: list[tuple[str, Any]]) -> None:
    board = Board(WORLD)
    for act, thing in before:
        perform(board, act, thing)
    mark, then = board.mark(), state_of(board)
    for act, thing in tried:
        perform(board, act, thing)
    board.back(mark)
    assert state_of(board) == then


@given(steps())
def test_a_board_is_at_each_moment_what_one_made_anew_of_its_world_is(done: list[tuple[str, Any]]) -> None:
    board = Board(WORLD)
    for act, thing in done:
        perform(board, "drop" if act == "lift" else act, thing)
        assert state_of(board) == state_of(Board(board.as_world()))


@given(steps())
def test_the_log_names_each_node_whose_room_changed(done: list[tuple[str, Any]]) -> None:
    board = Board(WORLD)
    for act, thing in done:
        versions, read = {key: room.version for key, room in board.rooms.items()}, len(board.log)
        perform(board, act, thing)
        changed = {key for key, room in board.rooms.items() if room.version != versions[key]}
        assert changed == set(board.log[read:])
