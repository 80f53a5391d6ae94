"""cluster.domain.room: what a node has left, while replicas take and give back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.feasible import lasting
from cluster.domain.maintenance import Maintenance
from cluster.domain.room import Room, card_margin, kind_of
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import CardView, NodeView, ProfileView, ReplicaView, Share
from llmgw_site.lib.units import GIB, MIB
from tests.cluster.builders import a_card, a_model, a_node, a_profile, a_replica

NODE = a_node(memory=16 * GIB, cards=(a_card("a"), a_card("b", memory=80 * GIB)))
SHARE = Share(node_id=NODE.id, memory=3 * GIB, cores=2, cards=(("b", 10 * GIB),))


def replica(**fields: Any) -> ReplicaView:
    return a_replica(a_model(), NODE, **{"shares": (SHARE,), **fields})


def left(room: Room) -> tuple[int, int, tuple[int, ...]]:
    return room.memory, room.cores, tuple(room.cards)


@pytest.mark.parametrize(
    ("card", "kept"),
    [
        (a_card(memory=8 * GIB), 512 * MIB),
        (a_card(memory=24 * GIB), int(24 * GIB * 0.04)),
        (a_card(memory=0), 512 * MIB),
    ],
)
def test_a_card_keeps_half_a_gigabyte_or_a_twenty_fifth_whichever_is_more(card: CardView, kept: int) -> None:
    assert card_margin(card) == kept


@pytest.mark.parametrize(
    ("fields", "gives"),
    [
        ({}, 24 * GIB - int(24 * GIB * 0.04)),
        ({"foreign": 4 * GIB}, 20 * GIB - int(24 * GIB * 0.04)),
        ({"foreign": 24 * GIB}, -int(24 * GIB * 0.04)),
        ({"problem": "Xid 79"}, -1),
        ({"maintenance": Maintenance.CORDONED}, -1),
        ({"maintenance": Maintenance.DRAINED}, -1),
    ],
)
def test_a_card_gives_what_others_leave_of_it_and_nothing_while_it_is_out(fields: dict[str, Any], gives: int) -> None:
    room = Room(a_node(cards=(a_card(**fields),)), 0)
    assert room.cards == [gives]
    assert room.top == ((gives,) if gives > 0 else ())


@pytest.mark.parametrize(
    ("state", "run", "free_now"),
    [
        (ReplicaState.READY, True, 6 * GIB),  # what its engine uses, the machine has counted already
        (ReplicaState.DRAINING, False, 6 * GIB),
        (ReplicaState.FAILED, True, 6 * GIB),
        (ReplicaState.STARTING, True, 3 * GIB),  # what it will use, it has not
        (ReplicaState.BACKOFF, True, 3 * GIB),
        (ReplicaState.PENDING, False, 3 * GIB),
    ],
)
def test_of_what_the_machine_has_free_only_loading_engines_take(state: ReplicaState, run: bool, free_now: int) -> None:
    room = Room(replace(NODE, memory_available=6 * GIB + 512 * MIB), 0)
    room.take(replica(state=state, run=run), SHARE, 1, lifted=False)
    assert left(room) == (free_now, 2, (room.cards[0], 80 * GIB - int(80 * GIB * 0.04) - 10 * GIB))


def test_one_of_which_nothing_is_left_takes_nothing() -> None:
    room = Room(NODE, 0)
    before = left(room)
    room.take(replica(state=ReplicaState.FAILED, run=False), SHARE, 1, lifted=False)
    assert left(room) == before


def test_one_that_is_imagined_to_be_gone_gives_back_what_its_engine_uses() -> None:
    """The machine has 4.5 GiB free, and the engine uses 3 of what is not."""
    room = Room(replace(NODE, memory_available=4 * GIB + 512 * MIB), 0)
    room.take(replica(), SHARE, 1, lifted=False)
    assert room.memory == 4 * GIB
    room.take(replica(), SHARE, -1, lifted=True)
    assert room.memory == 7 * GIB


def test_one_that_has_failed_gives_back_only_what_it_was_promised() -> None:
    """No engine of it is left, so nothing that the machine counts as used is its."""
    room = Room(replace(NODE, memory_available=2 * GIB + 512 * MIB), 0)
    failed = replica(state=ReplicaState.FAILED)
    room.take(failed, SHARE, 1, lifted=False)
    room.take(failed, SHARE, -1, lifted=True)
    assert room.memory == 2 * GIB


def test_room_that_is_kept_for_somebody_is_nobody_elses() -> None:
    room = Room(NODE, 0)
    before = left(room)
    room.keep(SHARE, 1)
    assert left(room) == (before[0] - 3 * GIB, 2, (before[2][0], before[2][1] - 10 * GIB))
    room.keep(SHARE, -1)
    assert left(room) == before


def test_a_card_that_is_out_stays_out_whoever_leaves_it() -> None:
    room = Room(a_node(cards=(a_card("b", problem="Xid 79"),)), 0)
    room.take(replica(), SHARE, 1, lifted=False)
    assert room.cards == [-1]
    room.take(replica(), SHARE, -1, lifted=False)
    assert room.cards == [-1]


def test_every_change_is_a_new_version_also_one_that_takes_nothing() -> None:
    """Whoever ranks nodes counts replicas of which nothing is left too, until they are removed."""
    room = Room(NODE, 0)
    versions = [room.version]
    for state in (ReplicaState.READY, ReplicaState.STOPPED):
        room.take(replica(state=state, run=False), SHARE, 1, lifted=False)
        versions.append(room.version)
    room.keep(SHARE, 1)
    versions.append(room.version)
    assert versions == sorted(set(versions))


# --- any node, any profile

cards = st.lists(
    st.builds(
        CardView,
        uuid=st.just(""),
        klass=st.sampled_from(["L4", "A100", "H200"]),
        memory_total=st.sampled_from([24 * GIB, 80 * GIB]),
        foreign=st.sampled_from([0, 20 * GIB]),
        maintenance=st.sampled_from(["", "", "drained"]),
    ),
    max_size=3,
).map(lambda found: tuple(replace(card, uuid=f"c{place}") for place, card in enumerate(found)))
nodes = st.builds(
    a_node,
    st.sampled_from("ab"),
    memory=st.sampled_from([2 * GIB, 8 * GIB]),
    state=st.sampled_from(NodeState),
    engines=st.sampled_from([{"llama.cpp": ""}, {"llama.cpp": "broken"}, {}]),
    cores=st.sampled_from([1, 4]),
    maintenance=st.sampled_from(["", "cordoned", "drained"]),
    labels=st.sampled_from([{}, {"disk": "fast"}]),
    fabric=st.sampled_from(["", "ib0", "ib1"]),
    modules=st.sampled_from([frozenset({"inference"}), frozenset({"router"})]),
    cards=cards,
)
profiles = st.builds(
    a_profile,
    memory=st.sampled_from([0, GIB, 4 * GIB]),
    threads=st.sampled_from([0, 2]),
    labels=st.sampled_from([(), (("disk", "fast"),)]),
    cards=st.integers(0, 3),
    card_classes=st.sampled_from([(), ("L4",), ("A100", "H200")]),
    card_memory=st.sampled_from([GIB, 30 * GIB, 100 * GIB]),
    layer=st.sampled_from([0, GIB]),
    even=st.booleans(),
    span=st.integers(1, 2),
)


@given(nodes, nodes, profiles)
def test_nodes_of_one_kind_are_alike_in_all_that_lasts(one: NodeView, two: NodeView, profile: ProfileView) -> None:
    if kind_of(one) == kind_of(two) and one.labels == two.labels:
        assert lasting(one, profile) == lasting(two, profile)


@given(nodes, st.lists(st.tuples(st.integers(0, 3), st.sampled_from(ReplicaState), st.booleans()), max_size=6))
def test_what_was_taken_and_given_back_is_there_again(
    node: NodeView, takes: list[tuple[int, ReplicaState, bool]]
) -> None:
    room = Room(node, 0)
    before = left(room)
    taken = []
    for size, state, run in takes:
        share = Share(
            node_id=node.id, memory=size * GIB, cores=size, cards=tuple((card.uuid, size * GIB) for card in node.cards)
        )
        taken.append((replica(state=state, run=run), share))
        room.take(*taken[-1], 1, lifted=False)
        assert 0 <= room.memory <= before[0]
    for item, share in reversed(taken):
        room.take(item, share, -1, lifted=False)
    assert left(room) == before


# --- disk


def weighty(room: Room, **there: int) -> list[bool]:
    """Whether the disk lacks room for 4 GiB of weights `w`, and for as much of `v`, when these are to come."""
    for name, size in there.items():
        room.fetch(name, size * GIB, 1)
    return [room.lacks_disk(name, 4 * GIB) for name in ("w", "v")]


@pytest.mark.parametrize(
    ("node", "there", "lacks"),
    [
        ({"disk_free": 4 * GIB}, {}, [False, False]),
        ({"disk_free": 4 * GIB - 1}, {}, [True, True]),
        ({"disk_free": None}, {"x": 9}, [False, False]),
        ({"disk_free": 4 * GIB}, {"x": 1}, [True, True]),  # promised to others
        ({"disk_free": 4 * GIB}, {"w": 4}, [False, True]),  # comes once for all who run it
        ({"disk_free": 5 * GIB, "fetching": {"w": GIB}}, {"w": 4}, [False, False]),  # most of it is there
        ({"disk_free": 5 * GIB, "fetching": {"w": GIB + 1}}, {"w": 4}, [False, True]),
        ({"disk_free": 5 * GIB, "fetching": {"x": GIB + 1}}, {}, [True, True]),  # it keeps that for others
        ({"disk_free": 9 * GIB, "no_room": {"w": "its limit"}}, {}, [True, False]),
        ({"disk_free": None, "no_room": {"w": "its limit"}}, {}, [True, False]),
        ({"disk_free": 0, "weights": frozenset({"w"})}, {}, [False, True]),
        ({"disk_free": 4 * GIB, "weights": frozenset({"x"})}, {"x": 9}, [False, False]),
    ],
)
def test_disk_is_for_weights_that_are_to_come(node: dict[str, Any], there: dict[str, int], lacks: list[bool]) -> None:
    assert weighty(Room(a_node(**node), 0), **there) == lacks


def test_disk_that_was_promised_is_free_when_the_last_of_those_who_share_the_weights_has_gone() -> None:
    room = Room(a_node(disk_free=5 * GIB), 0)
    for _ in range(2):
        room.fetch("x", 3 * GIB, 1)
    room.fetch("x", 3 * GIB, -1)
    assert (room.disk_promised, room.lacks_disk("w", 3 * GIB)) == (3 * GIB, True)
    room.fetch("x", 3 * GIB, -1)
    assert (room.disk_promised, room.lacks_disk("w", 3 * GIB)) == (0, False)
