"""cluster.domain.place: the best way to run a model on the hardware there is, on the best node that has room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.domain.board import Board
from cluster.domain.place import NoPlace, Placement, Placer, Ranked, ranks
from cluster.domain.plan import Plan
from cluster.domain.reconcile import reconcile
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import Claim, Klass, ModelView, NodeView, ReplicaView, Share, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_model, a_node, a_profile, a_replica

GPU = a_profile("gpu", priority=2, cards=1, card_memory=20 * GIB)
CPU = a_profile("cpu", priority=1)
BOTH = a_model(profiles=(GPU, CPU))
"""Whose way with a card comes first."""


def place(world: World, model: ModelView, **fields: Any) -> Placement | NoPlace:
    return Placer(Board(world)).place(model, **fields)


def placed(world: World, model: ModelView, **fields: Any) -> tuple[str, str]:
    """The names of node and profile."""
    found = place(world, model, **fields)
    assert isinstance(found, Placement), found
    return found.node.name, found.profile.name


def refused(world: World, model: ModelView, **fields: Any) -> NoPlace:
    found = place(world, model, **fields)
    assert isinstance(found, NoPlace), found
    return found


def on_card(uuid: str, node: NodeView, gigabytes: int = 20, **fields: Any) -> ReplicaView:
    share = Share(node_id=node.id, memory=GIB, cards=((uuid, gigabytes * GIB),))
    return a_replica(a_model("other"), node, shares=(share,), **fields)


# --- which way to run it


def test_a_model_that_cannot_be_run_at_all_says_so() -> None:
    assert refused(World(nodes=(a_node(),)), a_model(profiles=())).code == "no_profile"
    assert refused(World(), a_model()).code == "no_node"


@pytest.mark.parametrize(
    ("node", "profile"),
    [
        ({"cards": (a_card("a"),)}, "gpu"),
        ({"cards": ()}, "cpu"),  # no hardware for the first
        ({"cards": (a_card("a", memory=16 * GIB),)}, "cpu"),
        ({"cards": (a_card("a", maintenance="cordoned"),)}, "cpu"),  # out by order, not busy
        ({"cards": (a_card("a", problem="Xid 79"),)}, "cpu"),
    ],
)
def test_the_first_way_that_the_hardware_has_is_taken(node: dict[str, Any], profile: str) -> None:
    assert placed(World(nodes=(a_node(**node),)), BOTH)[1] == profile


@pytest.mark.parametrize("fields", [{"state": NodeState.OFFLINE}, {"maintenance": "drained"}, {"engines": {}}])
def test_where_its_nodes_are_off_or_in_maintenance_the_next_way_is_taken(fields: dict[str, Any]) -> None:
    world = World(nodes=(a_node("gpu", cards=(a_card("a"),), **fields), a_node("cpu")))
    assert placed(world, BOTH) == ("cpu", "cpu")


def test_busy_is_not_unfit() -> None:
    """The model waits for its cards, though the processor would be free."""
    node = a_node(cards=(a_card("a"),))
    found = refused(World(nodes=(node, a_node("cpu")), replicas=(on_card("a", node),)), BOTH)
    assert (found.busy, found.waits, found.code) == (True, True, "no_room_now")
    assert "one: it needs 20.0 GiB of one card and its cards have now 3.0 GiB" in found.message
    assert "cpu: the profile wants 1 card and it has none" in found.message


def test_f09_memory_of_another_program_is_busy_too_and_the_model_is_back_when_it_is_freed() -> None:
    taken, free = (a_node(cards=(a_card("a", foreign=size * GIB),)) for size in (20, 0))
    assert "20.0 GiB held by other programs" in refused(World(nodes=(taken,)), BOTH).message
    assert placed(World(nodes=(free,)), BOTH) == ("one", "gpu")


def test_f10_what_was_unloaded_is_room_for_the_next_plan() -> None:
    node = a_node(cards=(a_card("a"),))
    board = Board(World(nodes=(node,), replicas=(on_card("a", node, id="r"),)))
    placer = Placer(board)
    assert isinstance(placer.place(BOTH), NoPlace)
    board.drop("r")
    found = placer.place(BOTH)
    assert isinstance(found, Placement)
    assert found.shares[0].cards == (("a", 20 * GIB),)


def test_of_equal_priority_what_was_measured_best_is_tried_first() -> None:
    slow, fast = a_profile("slow", rate=10.0), a_profile("fast", rate=90.0)
    first = a_profile("first", priority=1)
    assert [[item.name for item in group] for group in ranks((slow, fast, first))] == [["first"], ["fast"], ["slow"]]
    assert [len(group) for group in ranks((a_profile("a"), a_profile("b")))] == [2]
    world = World(nodes=(a_node(),))
    assert placed(world, a_model(profiles=(slow, fast)))[1] == "fast"


def test_of_ways_that_are_equal_what_is_free_now_decides() -> None:
    one, two = a_profile("one", nodes=("a",), memory=6 * GIB), a_profile("two", nodes=("b",), memory=6 * GIB)
    world = World(nodes=(a_node("a", memory_available=2 * GIB), a_node("b")))
    assert placed(world, a_model(profiles=(one, two))) == ("b", "two")


def test_the_words_are_those_of_the_way_that_may_still_come() -> None:
    model = a_model(profiles=(GPU, replace(CPU, memory=20 * GIB)))
    here, away = a_node("a"), a_node("b", memory=32 * GIB, state=NodeState.OFFLINE)
    found = refused(World(nodes=(here, away)), model)
    assert found.message == (
        "no suitable node for small, because a: it needs 20.0 GiB of memory and the whole node can give 7.5 GiB; "
        "b: it is offline"
    )
    assert (found.code, found.waits, found.busy) == ("no_room_now", True, False)
    none = refused(World(nodes=(here,)), model)
    assert (none.code, none.waits) == ("too_few_cards", False)
    pinned = replace(model, profiles=(GPU, replace(CPU, memory=20 * GIB, nodes=("b",))))
    later = refused(World(nodes=(here, replace(away, cards=(a_card("a", memory=GIB),), maintenance="drained"))), pinned)
    assert "b: it is offline and drained for maintenance" in later.message


def test_the_way_that_the_hardware_has_gives_the_words_though_it_is_not_the_first() -> None:
    model = a_model(profiles=(GPU, replace(CPU, memory=5 * GIB)))
    found = refused(World(nodes=(a_node("a", memory_available=GIB),)), model)
    assert (found.code, found.busy) == ("no_memory_now", True)
    assert "a: it needs 5.0 GiB of memory and 512.0 MiB are free for it now" in found.message


# --- which node


def test_spread_goes_where_fewest_of_its_own_are_then_where_most_is_left_then_by_name() -> None:
    model = a_model()
    a, b, c = a_node("a", memory=64 * GIB), a_node("b", memory=16 * GIB), a_node("c", memory=16 * GIB)
    world = World(models=(model,), nodes=(c, b, a))
    assert placed(world, model)[0] == "a"
    assert placed(replace(world, replicas=(a_replica(model, a),)), model)[0] == "b"
    assert placed(replace(world, replicas=(a_replica(model, a), a_replica(model, b))), model)[0] == "c"


def test_pack_goes_where_least_is_left() -> None:
    model = a_model()
    a, b = a_node("a", memory=64 * GIB), a_node("b", memory=16 * GIB)
    world = World(models=(model,), nodes=(a, b), replicas=(a_replica(model, b),), pack=True)
    assert placed(world, model)[0] == "b"


@pytest.mark.parametrize("pack", [False, True])
def test_a_node_that_has_the_weights_is_preferred(pack: bool) -> None:
    model = a_model(weights="w", weights_size=GIB)
    nodes = (a_node("a"), a_node("b", weights=frozenset({"w"})), a_node("c"))
    assert placed(World(nodes=nodes, pack=pack), model)[0] == "b"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"disk_free": 4 * GIB}, "no_disk_now"),
        ({"disk_free": 5 * GIB}, ""),
        ({"disk_free": 0, "weights": frozenset({"w"})}, ""),
        ({"disk_free": None}, ""),
    ],
)
def test_weights_that_are_not_there_need_disk(fields: dict[str, Any], code: str) -> None:
    model = a_model(weights="w", weights_size=5 * GIB)
    found = place(World(nodes=(a_node(**fields),)), model)
    assert (found.code if isinstance(found, NoPlace) else "") == code
    if isinstance(found, NoPlace):
        assert "the weights need 5.0 GiB of disk and 4.0 GiB are free" in found.message


def test_a_node_that_lacks_the_weights_is_refused_with_words_and_nobody_gives_way_there() -> None:
    model = a_model(weights="/m.gguf of 5 bytes", weights_size=5, klass=Klass.CRITICAL)
    lacking = frozenset({model.weights})
    nodes = (a_node("a", memory=64 * GIB, lacks=lacking), a_node("b"))
    assert placed(World(nodes=nodes), model)[0] == "b"
    other = a_model("other", klass=Klass.OPPORTUNISTIC)
    full = a_replica(other, nodes[0], reserved=50 * GIB)
    found = refused(World(models=(model, other), nodes=nodes[:1], replicas=(full,)), model)
    assert (found.code, found.waits, found.busy) == ("no_weights_now", True, False)
    assert "a: it does not say that it has /m.gguf of 5 bytes" in found.message


def test_what_runs_on_a_node_whose_weights_have_gone_is_left_alone() -> None:
    model = a_model(weights="w")
    node = a_node(lacks=frozenset({"w"}))
    world = World(models=(model,), nodes=(node,), replicas=(a_replica(model, node),))
    assert reconcile(world, 0.0) == Plan()


def test_labels_of_a_profile_are_asked_of_the_node() -> None:
    model = a_model(profiles=(a_profile(labels=(("zone", "b"),)),))
    nodes = (a_node("a", labels={"zone": "a"}), a_node("b", labels={"zone": "b", "more": "x"}))
    assert placed(World(nodes=nodes), model)[0] == "b"
    found = refused(World(nodes=nodes[:1]), model)
    assert found.code == "label_missing"
    assert "a: it lacks the label zone=b" in found.message


def test_cores_are_reserved() -> None:
    model, node = a_model(profiles=(a_profile(threads=3),)), a_node()
    assert placed(World(nodes=(node,)), model) == ("one", "cpu")
    found = refused(World(models=(model,), nodes=(node,), replicas=(a_replica(model, node),)), model)
    assert (found.code, found.busy) == ("no_cores_now", True)
    assert "wants 3 cores and 1 of 4 is free now" in found.message


def test_room_that_is_kept_for_another_is_not_taken() -> None:
    model, other, node = a_model(), a_model("other"), a_node(memory=int(1.7 * GIB))
    claim = Claim(model_id=other.id, shares=(Share(node_id=node.id, memory=GIB),), until=1.0)
    world = World(models=(model, other), nodes=(node,), claims=(claim,))
    assert refused(world, model).code == "no_memory_now"


def test_where_the_same_has_failed_for_good_it_is_not_tried_again() -> None:
    model = a_model()
    a, b = a_node("a", memory=64 * GIB), a_node("b")
    failed = {(a.id, model.profiles[0].digest)}
    assert placed(World(nodes=(a, b)), model, failed=failed)[0] == "b"
    found = refused(World(nodes=(a,)), model, failed=failed)
    assert (found.code, found.waits) == ("failed_there", False)
    assert "a: it has failed there and is not placed there again without a change" in found.message
    changed = replace(model, profiles=(replace(model.profiles[0], digest="new"),))
    assert placed(World(nodes=(a,)), changed, failed=failed)[0] == "a"


def test_a_placement_says_what_it_is_based_on() -> None:
    found = place(World(nodes=(a_node(cards=(a_card("a"),)),)), BOTH)
    assert isinstance(found, Placement)
    assert found.reason == "profile gpu needs 1.0 GiB, node one has 7.5 GiB of room; of its cards it gets 20.0 GiB of a"


# --- several nodes

SPAN = a_model(profiles=(a_profile("span", engine="vllm", span=2, cards=1, card_memory=20 * GIB, even=True),))


def member(name: str, fabric: str, **fields: Any) -> NodeView:
    card = a_card(f"{name}0")
    return a_node(name, **{"fabric": fabric, "engines": {"vllm": ""}, "cards": (card,), **fields})


def test_a_replica_over_several_nodes_stays_within_one_fabric() -> None:
    world = World(nodes=(member("a", "x"), member("b", "y"), member("c", "y"), member("d", "")))
    found = place(world, SPAN)
    assert isinstance(found, Placement)
    assert [share.node_id for share in found.shares] == ["node_b", "node_c"]
    assert [share.cards for share in found.shares] == [(("b0", 20 * GIB),), (("c0", 20 * GIB),)]
    assert found.reason.endswith("; together with c on fabric y")


def test_of_fabrics_the_one_whose_worst_node_is_best() -> None:
    x = (member("a", "x", memory=64 * GIB), member("b", "x"))
    y = (member("c", "y", memory=16 * GIB), member("d", "y", memory=16 * GIB))
    model = replace(SPAN, profiles=(replace(SPAN.profiles[0], cards=0, card_memory=0),))
    found = place(World(nodes=(*x, *y)), model)
    assert isinstance(found, Placement)
    assert [share.node_id for share in found.shares] == ["node_c", "node_d"]


def test_no_fabric_with_enough_room_says_so() -> None:
    a, b, c = member("a", "x"), member("b", "x"), member("c", "y")
    found = refused(World(nodes=(a, c)), SPAN)
    assert (found.code, found.waits, found.busy) == ("fabric_too_small", False, False)
    assert "spans 2 nodes of one fabric" in found.message
    busy = refused(World(nodes=(a, b, c), replicas=(on_card("b0", b),)), SPAN)
    assert busy.busy
    assert "b: it needs 20.0 GiB" in busy.message
    none = refused(World(nodes=(member("d", ""),)), SPAN)
    assert (none.code, none.waits) == ("no_fabric", False)


# --- many nodes


def test_a_long_list_of_reasons_is_counted() -> None:
    cordoned = [a_node(f"n{number:02}", maintenance="cordoned") for number in range(12)]
    others = [a_node("o1", engines={}), a_node("o2", engines={}), a_node("o3", state=NodeState.STALE)]
    found = refused(World(nodes=(*cordoned, *others)), a_model())
    assert found.message == (
        "no suitable node for small, because n00, n01, n02 and 9 more: it is cordoned for maintenance; "
        "o3: it is stale; o1, o2: it has no llama.cpp"
    )
    assert (found.code, found.waits, found.busy) == ("no_room_now", True, False)


def test_many_replicas_are_spread_evenly_and_no_node_is_promised_twice() -> None:
    model = a_model(base=40, profiles=(a_profile(memory=GIB),))
    board = Board(World(models=(model,), nodes=tuple(a_node(f"n{n}", memory=5 * GIB) for n in range(10))))
    placer = Placer(board)
    for slot in range(40):
        found = placer.place(model)
        assert isinstance(found, Placement), (slot, found)
        board.put(a_replica(model, found.node, slot=slot, shares=found.shares, state=ReplicaState.PENDING))
    assert {board.count(model.id, room.node.id) for room in board.by_index} == {4}
    assert isinstance(placer.place(model), NoPlace)  # half a gigabyte of each is kept


def test_replicas_of_which_nothing_is_left_count_until_they_are_removed_and_count_again_when_that_is_undone() -> None:
    model, a, b = a_model(), a_node("a"), a_node("b")
    ended = a_replica(model, a, id="r", state=ReplicaState.STOPPED, run=False)
    board = Board(World(models=(model,), nodes=(a, b), replicas=(ended,)))
    ranked = Ranked(board, model, model.profiles[0], ())
    found = [ranked.best()[0].node.name]
    mark = board.mark()
    board.drop("r")
    found.append(ranked.best()[0].node.name)
    board.back(mark)
    found.append(ranked.best()[0].node.name)
    assert found == ["b", "a", "b"]
