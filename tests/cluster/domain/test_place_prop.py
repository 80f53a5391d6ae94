"""cluster.domain.place, any world: what is placed fits, what is not has words, and a ranking stays true."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.board import Board
from cluster.domain.feasible import lasting, passing, why_not
from cluster.domain.place import Placement, Placer, Ranked
from cluster.domain.refusals import words
from cluster.domain.room import Room
from cluster.domain.states import ReplicaState
from cluster.domain.types import Claim, ModelView, ProfileView, ReplicaView, Share, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_model, a_replica
from tests.cluster.domain.test_room import nodes, profiles

worlds = st.builds(
    lambda found, pack: World(
        nodes=tuple(
            replace(
                node, id=f"n{n}", name=f"n{n}",
                cards=tuple(replace(card, uuid=f"n{n}{card.uuid}") for card in node.cards),
            )
            for n, node in enumerate(found)
        ),
        pack=pack,
    ),
    st.lists(nodes, max_size=5),
    st.booleans(),
)  # fmt: skip


@given(worlds, profiles)
def test_what_is_refused_has_words_and_what_is_not_can_be_taken(world: World, profile: ProfileView) -> None:
    board, model = Board(world), a_model(profiles=(profile,))
    for room in board.by_index:
        code = why_not(room, profile, model)
        if code:
            text = words(room, profile, code, model)
            assert text.startswith(("it ", "its ", "the "))
            assert "None" not in text
    found = Placer(board).place(model)
    fits = [room.node.id for room in board.by_index if not why_not(room, profile, model)]
    if isinstance(found, Placement):
        assert {share.node_id for share in found.shares} <= set(fits)
        assert len({share.node_id for share in found.shares}) == profile.span
        board.put(a_replica(model, found.node, shares=found.shares, state=ReplicaState.PENDING))
        assert all(room.memory >= 0 and room.cores >= 0 for room in board.by_index)
        before = Board(world)
        for room in board.by_index:
            assert all(
                now == then or now >= 0 for now, then in zip(room.cards, before.rooms[room.node.id].cards, strict=True)
            )
    elif world.nodes:
        assert len(fits) < profile.span or profile.span > 1
        assert all(room.node.name in found.message for room in board.by_index if room.node.id not in fits)


def first(board: Board, model: ModelView, profile: ProfileView) -> list[str]:
    """What `Ranked.best` says it is: looked for among all nodes."""
    ranked = Ranked(board, model, profile, ())
    fits = [room for room in board.by_index if not (lasting(room.node, profile) or passing(room, profile, model))]
    best = min(fits, key=lambda room: (ranked.key(room), room.index), default=None)
    return [best.node.id] if best else []


def ids(rooms: list[Room]) -> list[str]:
    return [room.node.id for room in rooms]


sizes = st.integers(0, 30)


@given(
    worlds,
    profiles,
    st.lists(
        st.tuples(
            st.sampled_from(["put", "put", "drop", "lift", "claim", "release", "mark", "back"]),
            st.integers(0, 4), sizes, st.sampled_from(ReplicaState), st.booleans(),
        ),
        max_size=16,
    ),
)  # fmt: skip
def test_the_best_node_is_the_best_of_a_fresh_ranking_whatever_was_taken_and_given_back(
    world: World, profile: ProfileView, steps: list[tuple[str, int, int, ReplicaState, bool]]
) -> None:
    profile = replace(profile, span=1)  # one that spans several asks for `fabric`
    model = a_model(profiles=(profile,))
    board = Board(replace(world, models=(model,)))
    ranked, marks = Ranked(board, model, profile, ()), [0]
    for act, place_of, size, state, run in steps:
        replica = f"r{size % 4}"
        if act in ("put", "claim") and board.by_index:
            node = board.by_index[place_of % len(board.by_index)].node
            cards = tuple((card.uuid, size * GIB) for card in node.cards[: size % 3])
            share = Share(node_id=node.id, memory=size * GIB // 8, cores=size % 2, cards=cards)
            if act == "claim":
                board.claim("other", Claim(model_id="other", shares=(share,), until=1.0))
            else:
                there = board.replica(replica)
                owner = there.model_id if there else model.id if size % 2 else "other"
                board.put(
                    ReplicaView(
                        id=replica, model_id=owner, profile_id=None, node_id=node.id, slot=0, shares=(share,),
                        state=state, run=run,
                    )
                )  # fmt: skip
        elif act == "release":
            board.claim("other", None)
        elif act == "mark":
            marks.append(board.mark())
        elif act == "back":
            board.back(marks.pop() if len(marks) > 1 else 0)
        elif act in ("drop", "lift") and board.replica(replica) is not None:
            (board.drop if act == "drop" else board.lift)(replica)
        if size % 3:  # not looked at after each step: it has to catch up with several
            assert ids(ranked.best()) == first(board, model, profile)
    assert ids(ranked.best()) == first(board, model, profile) == ids(Ranked(board, model, profile, ()).best())
