"""Fit, looked for the long way round: every choice of nodes, of cards and of layers on each is tried, and `place` must say the same.

Sizes are small numbers of GiB, so that all choices can be gone through; what a node and a card keep for themselves is
worked out here once more, from the words of the documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.board import Board
from cluster.domain.place import NoPlace, Placement, Placer
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import CardView, ModelView, NodeView, ProfileView, ReplicaView, Share, World
from llmgw_site.lib.units import GIB, MIB
from tests.cluster.builders import a_card, a_model, a_node, a_profile, a_replica

OTHER = a_model("other")
Left = tuple[Fraction, int, Mapping[str, Fraction]]
"""Bytes of memory, cores, and bytes of each card that may be used."""


# --- the long way round


def left_of(node: NodeView, replicas: Sequence[ReplicaView]) -> Left:
    """What one more replica may take of a node: by hand, from what each replica holds."""
    kept = min(Fraction(512 * MIB), Fraction(node.memory_total, 10))
    shares = [share for item in replicas for share in item.shares if share.node_id == node.id]
    loading = [share for item in replicas if item.state is ReplicaState.STARTING for share in item.shares]
    promised = node.memory_total - kept - sum(share.memory for share in shares)
    physical = node.memory_available - kept - sum(share.memory for share in loading if share.node_id == node.id)
    cards = {}
    for card in node.cards:
        if not card.problem and not card.maintenance:
            margin = max(Fraction(512 * MIB), Fraction(card.memory_total, 25))
            used = sum(size for share in shares for uuid, size in share.cards if uuid == card.uuid)
            cards[card.uuid] = card.memory_total - margin - card.foreign - used
    return max(Fraction(0), min(promised, physical)), node.cores - sum(share.cores for share in shares), cards


def divisions(profile: ProfileView, left: Sequence[Fraction]) -> Iterator[tuple[int, ...]]:
    """Every way to divide a profile's card memory over these cards, none over what is left of one."""
    if profile.even or profile.cards == 1:
        part = Fraction(profile.card_memory, profile.cards)
        if all(part <= free for free in left):
            yield (int(part),) * len(left)
        return
    layers = -(-(profile.card_memory - profile.card_base * profile.cards) // profile.layer)
    bounds = [int((free - profile.card_base) // profile.layer) for free in left]
    for counts in product(*(range(1, max(0, bound) + 1) for bound in bounds)):  # each at least one
        if sum(counts) == max(layers, profile.cards):
            yield counts


def fits_on(node: NodeView, left: Left, profile: ProfileView, model: ModelView) -> bool:
    memory, cores, cards = left
    if profile.nodes and node.name not in profile.nodes:
        return False
    if node.state is not NodeState.ONLINE or node.maintenance or "inference" not in node.modules:
        return False
    if node.engines.get(profile.engine) != "" or not {*profile.labels} <= {*node.labels.items()}:
        return False
    if profile.memory > memory or profile.threads > cores:
        return False
    if node.disk_free is not None and model.weights not in node.weights and node.disk_free < model.weights_size:
        return False
    usable = [
        free
        for card in node.cards
        if card.uuid in cards and (not profile.card_classes or card.klass in profile.card_classes)
        for free in [cards[card.uuid]]
        if free > 0
    ]
    chosen = combinations(usable, profile.cards) if profile.cards else [()]
    return any(not profile.cards or next(divisions(profile, pick), None) is not None for pick in chosen)


def places(world: World, profile: ProfileView, model: ModelView) -> list[frozenset[str]]:
    """Every set of nodes that could take one more replica now."""
    fit = [
        node
        for node in world.nodes
        if fits_on(node, left_of(node, world.replicas), profile, model) and (profile.span == 1 or node.fabric)
    ]
    return [
        frozenset(node.id for node in chosen)
        for chosen in combinations(fit, profile.span)
        if profile.span == 1 or len({node.fabric for node in chosen}) == 1
    ]


def emptied(world: World) -> World:
    """If nobody used anything."""
    nodes = tuple(
        replace(
            node,
            memory_available=node.memory_total,
            cards=tuple(replace(card, foreign=0) for card in node.cards),
        )
        for node in world.nodes
    )
    return replace(world, nodes=nodes, replicas=())


def well(world: World) -> World:
    """And if every node were back, every card well, and the disk free."""
    nodes = tuple(
        replace(
            node,
            state=NodeState.ONLINE,
            maintenance="",
            disk_free=None,
            cards=tuple(replace(card, problem="", maintenance="") for card in node.cards),
        )
        for node in emptied(world).nodes
    )
    return replace(world, nodes=nodes, replicas=())


# --- any small fleet

some_cards = st.builds(
    CardView,
    uuid=st.just(""),
    klass=st.sampled_from(["L4", "H100"]),
    memory_total=st.sampled_from([0, 4 * GIB, 6 * GIB, 9 * GIB]),
    foreign=st.sampled_from([0, 0, 0, 3 * GIB, 20 * GIB]),
    problem=st.sampled_from(["", "", "", "Xid 79"]),
    maintenance=st.sampled_from(["", "", "", "cordoned"]),
)
some_nodes = st.builds(
    a_node,
    memory=st.sampled_from([0, 4 * GIB, 8 * GIB]),
    state=st.sampled_from([NodeState.ONLINE] * 4 + [NodeState.STALE, NodeState.OFFLINE]),
    engines=st.sampled_from([{"llama.cpp": ""}] * 3 + [{"llama.cpp": "broken"}, {}]),
    cores=st.integers(0, 4),
    maintenance=st.sampled_from(["", "", "", "drained"]),
    labels=st.sampled_from([{}, {"zone": "a"}]),
    fabric=st.sampled_from(["", "x", "y"]),
    modules=st.sampled_from([frozenset({"inference"})] * 3 + [frozenset({"router"})]),
    weights=st.sampled_from([frozenset[str](), frozenset({"w"})]),
    disk_free=st.sampled_from([None, None, 0, 9 * GIB]),
    cards=st.lists(some_cards, max_size=3).map(tuple),
)
some_profiles = st.builds(
    a_profile,
    memory=st.sampled_from([0, GIB, 5 * GIB]),
    threads=st.integers(0, 3),
    labels=st.sampled_from([(), (), (("zone", "a"),)]),
    nodes=st.sampled_from([(), (), ("n0", "n1"), ("nowhere",)]),
    cards=st.integers(0, 3),
    card_classes=st.sampled_from([(), (), ("L4",)]),
    card_memory=st.integers(0, 18).map(lambda size: size * GIB),
    card_base=st.sampled_from([0, GIB // 2]),
    layer=st.sampled_from([GIB, 2 * GIB]),
    even=st.booleans(),
    span=st.sampled_from([1, 1, 2]),
    priority=st.integers(0, 1),
    rate=st.sampled_from([0.0, 0.0, 5.0]),
)
holding = st.tuples(
    st.integers(0, 3), st.integers(0, 4), st.integers(0, 2), st.integers(0, 5), st.sampled_from(["ready", "starting"])
)


@st.composite
def fleets(draw: st.DrawFn) -> World:
    nodes = []
    for number, node in enumerate(draw(st.lists(some_nodes, min_size=1, max_size=4))):
        cards = tuple(replace(card, uuid=f"n{number}c{place}") for place, card in enumerate(node.cards))
        if not node.memory_total:  # it was heard; of one that was not, nothing can be said
            node = replace(node, state=NodeState.ONLINE)
        free = draw(st.sampled_from([node.memory_total, node.memory_total, 2 * GIB]))
        nodes.append(
            replace(
                node, id=f"id{number}", name=f"n{number}", cards=cards, memory_available=min(free, node.memory_total)
            )
        )
    replicas = []
    for number, (place, memory, cores, of_card, state) in enumerate(draw(st.lists(holding, max_size=4))):
        node = nodes[place % len(nodes)]
        held = tuple((card.uuid, of_card * GIB) for card in node.cards[:1])
        share = Share(node_id=node.id, memory=memory * GIB // 2, cores=cores, cards=held)
        replicas.append(a_replica(OTHER, node, slot=number, shares=(share,), state=ReplicaState(state)))
    return World(models=(OTHER,), nodes=tuple(nodes), replicas=tuple(replicas), pack=draw(st.booleans()))


@given(fleets(), some_profiles)
def test_what_fits_somewhere_is_placed_and_what_waits_is_told_from_what_never_fits(
    world: World, profile: ProfileView
) -> None:
    model = a_model(profiles=(profile,), weights="w", weights_size=GIB)
    found = Placer(Board(world)).place(model)
    now = places(world, profile, model)
    if isinstance(found, Placement):
        assert frozenset(share.node_id for share in found.shares) in now
        for share in found.shares:
            node = next(item for item in world.nodes if item.id == share.node_id)
            _, _, cards = left_of(node, world.replicas)
            assert len(share.cards) == profile.cards
            assert all(0 <= size <= cards[uuid] for uuid, size in share.cards)
            if profile.cards > 1 and not profile.even:
                assert all(size >= profile.card_base + profile.layer for _, size in share.cards)
        return
    assert now == []
    busy = places(emptied(world), profile, model)
    assert found.busy == bool(busy), found.message
    assert found.waits == bool(busy or places(well(world), profile, model)), found.message
    assert all(node.name in found.message for node in world.nodes if not profile.nodes) or profile.span > 1


@given(fleets(), st.lists(some_profiles, min_size=1, max_size=3))
def test_the_best_way_that_the_hardware_has_decides_and_what_is_free_only_chooses_among_equals(
    world: World, ways: list[ProfileView]
) -> None:
    ways = [replace(way, id=f"way{number}", name=f"way{number}") for number, way in enumerate(ways)]
    model = a_model(profiles=tuple(ways), weights="w", weights_size=GIB)
    found = Placer(Board(world)).place(model)
    order = sorted({(-way.priority, -way.rate) for way in ways})
    for rank in order:
        equals = [way for way in ways if (-way.priority, -way.rate) == rank]
        free = [way for way in equals if places(world, way, model)]
        if free:
            assert isinstance(found, Placement), found.message
            assert found.profile == free[0]
            return
        if any(places(emptied(world), way, model) for way in equals):
            assert isinstance(found, NoPlace), "a worse way was taken though a better one is only busy"
            assert found.busy
            return
    assert isinstance(found, NoPlace)
    assert not found.busy


def one_after_the_other(world: World, node: NodeView, model: ModelView) -> int:
    """How many replicas of a model a node takes, if they come one after the other."""
    board = Board(replace(world, nodes=(node,)))
    taken = 0
    while isinstance(found := Placer(board).place(model), Placement):
        board.put(a_replica(model, found.node, slot=taken, shares=found.shares, state=ReplicaState.PENDING))
        taken += 1
    return taken


@given(fleets(), some_profiles)
def test_spread_and_pack_go_by_how_many_more_fit_then_weights_then_what_is_left(
    world: World, profile: ProfileView
) -> None:
    profile = replace(profile, span=1, cards=min(profile.cards, 1), memory=max(profile.memory, GIB), nodes=())
    model = a_model(
        profiles=(replace(profile, card_memory=max(profile.card_memory, GIB)),), weights="w", weights_size=0
    )
    found = Placer(Board(world)).place(model)
    if isinstance(found, NoPlace):
        return
    more = {node.name: one_after_the_other(world, node, model) for node in world.nodes}
    fit = [node for node in world.nodes if more[node.name]]
    best = (min if world.pack else max)(more[node.name] for node in fit)
    assert more[found.node.name] == best
    equal = [node for node in fit if more[node.name] == best]
    assert ("w" in found.node.weights) == any("w" in node.weights for node in equal)


def test_a_node_that_was_never_heard_is_waited_for() -> None:
    node = a_node(memory=0, cores=0, engines={}, state=NodeState.OFFLINE)
    found = Placer(Board(World(nodes=(node,)))).place(a_model())
    assert isinstance(found, NoPlace)
    assert (found.code, found.waits) == ("node_offline", True)
    too_small = replace(node, memory_total=GIB, memory_available=GIB, engines={"llama.cpp": ""})
    found = Placer(Board(World(nodes=(too_small,)))).place(a_model())
    assert isinstance(found, NoPlace)
    assert (found.code, found.waits) == ("too_little_memory", False)


def test_a_card_of_which_nothing_is_known_is_no_card_to_wait_for() -> None:
    """Some drivers do not tell how much memory a card has."""
    node = a_node(cards=(a_card("a"), a_card("b", memory=0)))
    model = a_model(profiles=(a_profile(cards=2, card_memory=4 * GIB, layer=GIB),))
    found = Placer(Board(World(nodes=(node,)))).place(model)
    assert isinstance(found, NoPlace)
    assert (found.code, found.waits, found.busy) == ("too_little_card_memory", False, False)
    assert "its cards can give 23.0 GiB, 0 B" in found.message
