"""Which of several nodes with room: by spread or pack, then where the weights lie; and the disk that weights take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.domain.board import Board
from cluster.domain.place import NoPlace, Placement, Placer
from cluster.domain.states import ReplicaState
from cluster.domain.types import Claim, ModelView, NodeView, Share, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_model, a_node, a_profile, a_replica

HERE = frozenset({"w"})
MODEL = a_model(weights="w", weights_size=4 * GIB, profiles=(a_profile(memory=4 * GIB),))


def chosen(*nodes: NodeView, model: ModelView = MODEL, **fields: Any) -> str:
    found = Placer(Board(World(nodes=nodes, **fields))).place(model)
    assert isinstance(found, Placement), found
    return found.node.name


@pytest.mark.parametrize(
    ("nodes", "spread", "pack"),
    [
        # weights decide among nodes with room for as many
        ((a_node("a", memory=18 * GIB), a_node("b", memory=17 * GIB, weights=HERE)), "b", "b"),
        # room for more, or for fewer, decides before them
        ((a_node("a", memory=32 * GIB), a_node("b", memory=16 * GIB, weights=HERE)), "a", "b"),
        ((a_node("a", memory=16 * GIB), a_node("b", memory=32 * GIB, weights=HERE)), "b", "a"),
        # without weights anywhere, what is left
        ((a_node("a", memory=17 * GIB), a_node("b", memory=18 * GIB)), "b", "a"),
        ((a_node("b"), a_node("a")), "a", "a"),
    ],
)
def test_spread_or_pack_comes_before_weights_and_these_before_a_little_more_room(
    nodes: tuple[NodeView, ...], spread: str, pack: str
) -> None:
    assert (chosen(*nodes), chosen(*nodes, pack=True)) == (spread, pack)


def test_a_node_without_a_replica_of_it_comes_before_one_that_has_the_weights() -> None:
    a, b = a_node("a", memory=64 * GIB, weights=HERE), a_node("b", memory=8 * GIB)
    assert chosen(a, b, models=(MODEL,), replicas=(a_replica(MODEL, a),)) == "b"


def test_cores_bound_the_room_as_memory_does() -> None:
    model = a_model(profiles=(a_profile(memory=GIB, threads=4),))
    roomy, many = a_node("a", memory=64 * GIB, cores=4), a_node("b", memory=16 * GIB, cores=16)
    assert (chosen(roomy, many, model=model), chosen(roomy, many, model=model, pack=True)) == ("b", "a")


def test_cards_that_a_profile_may_not_use_are_no_room_for_it() -> None:
    model = a_model(profiles=(a_profile(cards=1, card_memory=10 * GIB, card_classes=("L4",)),))
    one = a_node("a", cards=(a_card("a0"), a_card("a1", klass="H100", memory=80 * GIB)))
    two = a_node("b", cards=(a_card("b0"), a_card("b1")))
    assert (chosen(one, two, model=model), chosen(one, two, model=model, pack=True)) == ("b", "a")


def test_a_way_that_needs_nothing_is_placed_too() -> None:
    assert chosen(a_node("a"), a_node("b", memory=9 * GIB), model=a_model(profiles=(a_profile(memory=0),))) == "b"


# --- the disk, while a plan is made


def placed(world: World, *models: ModelView) -> list[str]:
    """One replica of each after the other: the names of their nodes, or the code why there is none."""
    board, found = Board(replace(world, models=models)), []
    placer = Placer(board)
    for model in models:
        place = placer.place(model)
        if isinstance(place, NoPlace):
            found.append(place.code)
            continue
        found.append(place.node.name)
        board.put(a_replica(model, place.node, shares=place.shares, state=ReplicaState.PENDING))
    return found


def test_two_models_do_not_get_the_same_disk() -> None:
    node, other = a_node(memory=64 * GIB, disk_free=7 * GIB), replace(MODEL, id="other", name="other", weights="v")
    assert placed(World(nodes=(node,)), MODEL, other) == ["one", "no_disk_now"]
    again = replace(MODEL, id="again", name="again")  # of the same weights
    assert placed(World(nodes=(node,)), MODEL, again) == ["one", "one"]
    board = Board(World(models=(MODEL, other), nodes=(node,), replicas=(pending(MODEL, node),)))
    found = Placer(board).place(other)
    assert isinstance(found, NoPlace)
    assert found.message.endswith(
        "one: the weights need 4.0 GiB of disk and 3.0 GiB are free beside 4.0 GiB for weights that are to come for others"
    )


def pending(model: ModelView, node: NodeView, **fields: Any) -> Any:
    return a_replica(model, node, **{"state": ReplicaState.PENDING, **fields})


@pytest.mark.parametrize(
    ("state", "run", "fits"),
    [
        (ReplicaState.PENDING, True, False),
        (ReplicaState.BACKOFF, True, False),
        (ReplicaState.STARTING, True, True),  # its weights are there, and the disk says so
        (ReplicaState.READY, True, True),
        (ReplicaState.FAILED, True, True),
        (ReplicaState.STOPPED, False, True),
    ],
)
def test_weights_are_to_come_until_an_engine_begins(state: ReplicaState, run: bool, fits: bool) -> None:
    node, other = a_node(memory=64 * GIB, disk_free=7 * GIB), replace(MODEL, id="other", name="other", weights="v")
    board = Board(World(models=(MODEL, other), nodes=(node,), replicas=(pending(MODEL, node, state=state, run=run),)))
    assert isinstance(Placer(board).place(other), Placement) is fits


def test_room_that_is_kept_keeps_the_disk_for_its_weights() -> None:
    node, other = a_node(memory=64 * GIB, disk_free=7 * GIB), replace(MODEL, id="other", name="other", weights="v")
    claim = Claim(model_id=MODEL.id, shares=(Share(node_id=node.id, memory=GIB),), until=1.0)
    board = Board(World(models=(MODEL, other), nodes=(node,), claims=(claim,)))
    placer = Placer(board)
    assert isinstance(placer.place(other), NoPlace)
    mark = board.mark()
    board.claim(MODEL.id, None)
    assert isinstance(placer.place(other), Placement)
    board.back(mark)
    assert isinstance(placer.place(other), NoPlace)
