"""cluster.domain.preempt on any cluster: whoever gives way may, is needed, and is enough."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from cluster.domain import invariants
from cluster.domain.board import Board
from cluster.domain.claims import unreachable
from cluster.domain.feasible import why_not
from cluster.domain.place import Placement, Placer
from cluster.domain.plan import Start, Stop, do, recheck
from cluster.domain.preempt import make_room
from cluster.domain.quotas import Ledger
from cluster.domain.states import ReplicaState
from cluster.domain.tally import Tally
from cluster.domain.types import (
    Claim,
    ModelView,
    ReplicaView,
    World,
)
from cluster.domain.victims import size_of
from llmgw_site.lib.units import GIB
from tests.cluster.builders import (
    READY,
    a_card,
    a_model,
    a_node,
    a_profile,
)
from tests.cluster.crowd import HIGH, LOW, MID, NOW

# --- any world

KINDS = st.sampled_from([LOW, MID, HIGH])


@st.composite
def full_worlds(draw: st.DrawFn) -> tuple[World, ModelView]:
    nodes = []
    for number in range(draw(st.integers(1, 3))):
        cards = tuple(
            a_card(
                f"GPU-{number}-{place}",
                klass=draw(st.sampled_from(["L4", "T4"])),
                foreign=draw(st.sampled_from([0, 10])) * GIB,
            )
            for place in range(draw(st.integers(0, 3)))
        )
        nodes.append(a_node(f"n{number}", memory=draw(st.integers(4, 12)) * GIB, cards=cards, fabric="f"))
    models = [
        a_model(
            f"m{number}",
            klass=draw(KINDS),
            base=9,
            profiles=(
                a_profile(
                    f"m{number}",
                    memory=draw(st.integers(1, 4)) * GIB,
                    cards=draw(st.integers(0, 1)),
                    card_memory=draw(st.integers(2, 20)) * GIB,
                ),
            ),
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    board = Board(World(models=tuple(models), nodes=tuple(nodes)))
    placer = Placer(board)
    for number in range(draw(st.integers(0, 12))):
        model = draw(st.sampled_from(models))
        found = placer.place(model)
        if isinstance(found, Placement):
            run = draw(st.integers(0, 5)) > 0
            board.put(
                ReplicaView(
                    id=f"rep_{number:03d}", model_id=model.id, profile_id=found.profile.id, node_id=found.node.id,
                    slot=number, digest=found.profile.digest, shares=found.shares, run=run,
                    state=READY if run else ReplicaState.DRAINING, in_flight=draw(st.integers(0, 2)),
                    grown=draw(st.booleans()),
                )
            )  # fmt: skip
    asks = a_model(
        "asks",
        klass=draw(KINDS),
        profiles=(
            a_profile("asks", memory=draw(st.integers(1, 8)) * GIB, cards=draw(st.integers(0, 3)), even=draw(st.booleans()),
                      layer=GIB, card_memory=draw(st.integers(2, 40)) * GIB, span=draw(st.sampled_from([1, 1, 1, 2]))),
        ),
    )  # fmt: skip
    world = board.as_world()
    return replace(world, models=(*world.models, asks)), asks


@given(full_worlds())
def test_whoever_gives_way_is_of_no_higher_right_is_needed_and_is_enough(case: tuple[World, ModelView]) -> None:
    """1. the model fits when they have gone, exactly as planned; 2. without any one of them it does not; 3. each of a
    lower class, or grown in the same; 4. the room holds what is planned for it; 5. nothing is promised twice."""
    world, asks = case
    board = Board(world)
    placer = Placer(board)
    if isinstance(placer.place(asks), Placement):
        return
    found = make_room(board, placer, Ledger(board), asks, NOW)
    if found is None:
        return
    rooms = [board.rooms[share.node_id] for share in found.placement.shares]
    profile = asks.profiles[0]
    leaving = [item.id for item in board.replicas if not item.run]
    ids = [item.replica.id for item in found.victims]

    def fits(gone: list[str]) -> bool:
        mark = board.mark()
        for replica_id in gone:
            board.lift(replica_id)
        good = not any(why_not(room, profile, asks) for room in rooms)
        board.back(mark)
        return good

    assert fits([*leaving, *ids])  # 1
    for replica_id in ids:  # 2
        assert not fits([*leaving, *(item for item in ids if item != replica_id)])
    for item in found.victims:  # 3
        other = board.model(item.replica.model_id)
        assert other is not None
        assert other.klass < asks.klass or (other.klass == asks.klass and item.replica.grown)
    for item in found.victims:
        do(Stop(replica_id=item.replica.id, reason="", for_model=asks.id), board)
    claim = Claim(model_id=asks.id, shares=found.placement.shares, until=NOW + 1)
    assert unreachable(board, claim) == ""  # 4
    for replica_id in [*leaving, *ids]:
        if board.replica(replica_id) is not None:
            board.lift(replica_id)
    start = Start(
        model_id=asks.id, profile_id=profile.id, slot=0, digest=profile.digest, shares=found.placement.shares, reason=""
    )
    assert recheck(start, board) == ""
    do(start, board, new_id="rep_new")
    assert invariants.broken(world, board.as_world()) == ()  # 5


@given(full_worlds())
def test_where_nobody_is_found_taking_everything_of_lower_classes_would_not_help(case: tuple[World, ModelView]) -> None:
    world, asks = case
    profile = asks.profiles[0]
    if profile.span > 1:
        return
    board = Board(world)
    placer = Placer(board)
    if isinstance(placer.place(asks), Placement) or make_room(board, placer, Ledger(board), asks, NOW) is not None:
        return
    for replica in board.replicas:
        other = board.model(replica.model_id)
        if other is not None and (not replica.run or other.klass < asks.klass):
            board.lift(replica.id)
    assert all(why_not(room, profile, asks) for room in board.by_index)


@given(full_worlds())
def test_a_tally_never_says_no_where_the_board_says_yes(case: tuple[World, ModelView]) -> None:
    world, asks = case
    board = Board(world)
    profile = asks.profiles[0]
    for room in board.by_index:
        tally = Tally(room, profile, asks)
        for replica in board.on_node(room.node.id):
            tally.add(replica)
        mark = board.mark()
        for replica in board.on_node(room.node.id):
            board.lift(replica.id)
        if not why_not(room, profile, asks):
            assert tally.fits()
        board.back(mark)


@given(full_worlds())
def test_who_is_lifted_and_had_back_holds_what_it_held(case: tuple[World, ModelView]) -> None:
    board = Board(case[0])
    before = [(room.memory, room.cores, tuple(room.cards)) for room in board.by_index]
    mark = board.mark()
    for replica in board.replicas:
        board.lift(replica.id)
        board.unlift(replica)
    assert [(room.memory, room.cores, tuple(room.cards)) for room in board.by_index] == before
    board.back(mark)
    assert [(room.memory, room.cores, tuple(room.cards)) for room in board.by_index] == before
    assert {item.id for item in board.leaving} == {item.id for item in board.replicas if not item.run}


@given(full_worlds())
def test_of_all_sets_that_would_do_the_dearest_of_who_gives_way_is_the_cheapest(case: tuple[World, ModelView]) -> None:
    """Every set of replicas of each node is tried: one is found where one would do, and none whose dearest is cheaper."""
    world, asks = case
    profile, board = asks.profiles[0], Board(world)
    placer = Placer(board)
    if profile.span > 1 or isinstance(placer.place(asks), Placement):
        return
    found = make_room(board, placer, Ledger(board), asks, NOW)
    models = {item.id: item for item in world.models}
    dear = {item.id: (int(models[item.model_id].klass), item.in_flight, size_of(item)) for item in world.replicas}
    levels = []
    for room in board.by_index:
        lower = [
            item.id for item in board.on_node(room.node.id) if item.run and models[item.model_id].klass < asks.klass
        ]
        leaving = [item.id for item in board.on_node(room.node.id) if not item.run]
        for count in range(len(lower) + 1):
            for chosen in combinations(lower, count):
                mark = board.mark()
                for replica_id in (*leaving, *chosen):
                    board.lift(replica_id)
                if not why_not(room, profile, asks):
                    levels.append(max((dear[item] for item in chosen), default=(-1, 0, 0)))
                board.back(mark)
    assert (found is None) == (not levels)
    if found is not None:
        assert max((dear[item.replica.id] for item in found.victims), default=(-1, 0, 0)) == min(levels)
