"""Odd figures break nothing: whatever nodes report and profiles say, there is a place that holds or a refusal with words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.board import Board
from cluster.domain.explain import model_status
from cluster.domain.feasible import cards_left
from cluster.domain.headroom import headroom
from cluster.domain.invariants import check
from cluster.domain.place import NoPlace, Placer
from cluster.domain.reconcile import reconcile
from cluster.domain.states import NodeState
from cluster.domain.types import CardView, ModelView, NodeView, ProfileView, Share, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_replica

odd = st.sampled_from([-(2**40), -1, 0, 1, 511, GIB, 24 * GIB, 2**63 - 1])
few = st.integers(-1, 5)
words = st.sampled_from(["", "a", "x y", "é"])
cards = st.builds(
    CardView, uuid=st.sampled_from(["", "c0", "c1"]), klass=words, memory_total=odd, foreign=odd, problem=words,
    maintenance=st.sampled_from(["", "cordoned", "drained"]),
)  # fmt: skip
nodes = st.builds(
    NodeView, id=st.sampled_from(["n0", "n1", "n2"]), name=words, state=st.sampled_from(NodeState),
    engines=st.dictionaries(st.sampled_from(["llama.cpp", "vllm"]), words), cores=few, memory_total=odd,
    memory_available=odd, disk_free=st.none() | odd, cards=st.lists(cards, max_size=3).map(tuple),
    labels=st.dictionaries(words, words, max_size=2), fabric=words,
)  # fmt: skip
profiles = st.builds(
    ProfileView, id=st.sampled_from(["p0", "p1"]), name=words, engine=st.sampled_from(["llama.cpp", "vllm"]),
    digest=words, memory=odd, threads=few, priority=few, labels=st.lists(st.tuples(words, words), max_size=2).map(tuple),
    cards=st.integers(0, 4), card_classes=st.lists(words, max_size=2).map(tuple), card_memory=odd, layer=odd,
    layers=st.sampled_from([0, 1, 3, 1000]), tail=odd, card_base=odd, even=st.booleans(), span=st.integers(1, 3),
    rate=st.sampled_from([0.0, 1e-300, 1e300]),
)  # fmt: skip


@given(
    st.lists(nodes, max_size=3, unique_by=lambda node: node.id),
    st.lists(profiles, max_size=2, unique_by=lambda profile: profile.id),
    odd,
    odd,
    st.booleans(),
)
def test_whatever_is_reported_is_decided(
    found: list[NodeView], ways: list[ProfileView], size: int, held: int, pack: bool
) -> None:
    model = ModelView(id="m", name="m", base=2, profiles=tuple(ways), weights="w", weights_size=size)
    share = [Share(node_id=node.id, memory=held, cores=1, cards=(("c0", held),)) for node in found[:1]]
    replicas = tuple(a_replica(model, node, shares=tuple(share)) for node in found[:1])
    world = World(models=(model,), nodes=tuple(found), replicas=replicas, pack=pack)
    board = Board(world)
    place = Placer(board).place(model)
    if isinstance(place, NoPlace):
        assert place.code
        assert place.message
    else:
        for part in place.shares:
            left = [free for _, free in cards_left(board.rooms[part.node_id], place.profile)]
            assert len(part.cards) == place.profile.cards <= len(left)
            assert all(size <= max(left) for _, size in part.cards)
    plan = reconcile(world, 0.0)
    assert model_status(world, plan, model).name == "m"
    assert headroom(world, model, 0.0, most=3).fits <= 3
    check(world)
