"""llmgw_site.console.placement: what is drawn of the nodes that a model runs on."""

from __future__ import annotations

from dataclasses import replace

from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import CardView, Share, World
from llmgw_site.console.placement import MOST_NODES, node_maps
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_model, a_node, a_profile, a_replica

CARDS = (
    CardView(uuid="GPU-0", klass="L4", memory_total=24 * GIB),
    CardView(uuid="GPU-1", klass="L4", memory_total=24 * GIB, foreign=6 * GIB),
    CardView(uuid="GPU-2", klass="L4", memory_total=24 * GIB, problem="Xid 79"),
    CardView(uuid="GPU-3", klass="L4", memory_total=0, maintenance="cordoned"),
)
MINE, OTHER = a_model("mine"), a_model("other")


def test_a_node_is_drawn_with_what_the_model_others_and_other_programs_hold() -> None:
    node = a_node("one", cores=8, memory=16 * GIB, cards=CARDS)
    share = Share(node_id=node.id, memory=2 * GIB, cores=2, cards=(("GPU-0", 12 * GIB),))
    mine = a_replica(MINE, node, shares=(share,))
    share = Share(node_id=node.id, memory=4 * GIB, cores=1, cards=(("GPU-1", 12 * GIB),))
    other = a_replica(OTHER, node, shares=(share,))
    (drawn,), more = node_maps(World(models=(MINE, OTHER), nodes=(node,), replicas=(mine, other)), MINE, {"one": 3})
    assert (more, drawn.name, drawn.replicas, drawn.more) == (0, "one", 1, 3)
    assert drawn.cores is not None
    assert (drawn.cores.mine, drawn.cores.others, drawn.cores.held) == (25.0, 12.5, "3 of 8")
    assert drawn.memory is not None
    assert (drawn.memory.mine, drawn.memory.others) == (12.5, 25.0)
    shares = [(card.mine, card.others, card.foreign, card.problem) for card in drawn.cards]
    assert shares == [(50, 0, 0, ""), (0, 50, 25, ""), (0, 0, 0, "Xid 79"), (0, 0, 0, "in maintenance")]
    assert drawn.cards[1].words == "12.0 GiB of others, 6.0 GiB of other programs, 24.0 GiB in all"
    assert drawn.cards[0].title == "Card 0, L4"


def test_only_nodes_with_replicas_or_room_are_drawn_the_fullest_first_and_the_rest_is_counted() -> None:
    nodes = tuple(a_node(f"n{number:02}") for number in range(MOST_NODES + 4))
    replicas = tuple(a_replica(MINE, node, slot=slot) for slot, node in enumerate((nodes[5], nodes[6], nodes[6])))
    gone = a_replica(MINE, nodes[5], slot=9, run=False, state=ReplicaState.STOPPED)
    room = {node.name: 1 for node in nodes[: MOST_NODES + 3]}
    drawn, more = node_maps(World(models=(MINE,), nodes=nodes, replicas=(*replicas, gone)), MINE, room)
    assert [item.name for item in drawn[:3]] == ["n06", "n05", "n00"]
    assert [item.replicas for item in drawn[:3]] == [2, 1, 0]
    assert (len(drawn), more) == (MOST_NODES, 3)


def test_where_it_fits_nowhere_the_nodes_that_others_hold_are_drawn() -> None:
    cards, plain, off = a_node("cards", cards=CARDS), a_node("plain"), a_node("off", state=NodeState.OFFLINE)
    on_cards = a_model("big", profiles=(a_profile(cards=2, card_memory=GIB),))
    for model, names in ((MINE, ["cards", "plain"]), (on_cards, ["cards"]), (replace(MINE, base=0), [])):
        drawn, more = node_maps(World(models=(model,), nodes=(cards, plain, off)), model, {})
        assert ([item.name for item in drawn], more) == (names, 0)
