"""Where a model's replicas sit on the nodes, and where one more would: what the model's page draws. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cluster.domain.modules import Module
from cluster.domain.room import holds_room
from cluster.domain.states import NodeState
from cluster.domain.types import CardView, ModelView, NodeView, ReplicaView, World
from llmgw_site.console.figures import percent
from llmgw_site.lib.units import format_bytes

MOST_NODES = 12
"""That are drawn; of the others the page tells how many there are."""


@dataclass(frozen=True, kw_only=True)
class Strip:
    """A resource as parts of its whole, in percent, and the same in words."""

    title: str
    mine: float  # of the model's replicas
    others: float  # of other models' replicas
    foreign: float  # of other programs
    held: str  # of all that it has, in words
    words: str
    problem: str = ""  # why nothing is placed on it


@dataclass(frozen=True, kw_only=True)
class NodeMap:
    """A node that has replicas of the model, or room for more. `more`: how many, at most what was counted."""

    name: str
    state: str
    replicas: int
    more: int
    cores: Strip | None
    memory: Strip | None
    cards: tuple[Strip, ...]


def node_maps(world: World, model: ModelView, room: Mapping[str, int]) -> tuple[tuple[NodeMap, ...], int]:
    """The nodes to draw, those with most replicas of the model in front, and how many more there are.

    `room`: how many more replicas fit, by the name of a node. Where it has none and fits nowhere, those that could run
    engines, so that who holds them is seen.
    """
    mine: dict[str, int] = {}
    for replica in filter(holds_room, world.of_model(model.id)):
        for share in replica.shares:
            mine[share.node_id] = mine.get(share.node_id, 0) + 1
    found = [node for node in world.nodes if node.id in mine or room.get(node.name)]
    if not found and model.target:
        on_cards = any(profile.cards for profile in model.profiles)
        found = [node for node in world.nodes if node.state is NodeState.ONLINE and node.runs(Module.INFERENCE)]
        found = [node for node in found if node.cards] if on_cards else found
    found.sort(key=lambda node: (-mine.get(node.id, 0), -room.get(node.name, 0), node.name, node.id))
    shown = found[:MOST_NODES]
    here = _by_node(world.replicas, {node.id for node in shown})
    maps = tuple(
        _node_map(node, model, here.get(node.id, []), mine.get(node.id, 0), room.get(node.name, 0)) for node in shown
    )
    return maps, len(found) - len(shown)


def _by_node(replicas: Iterable[ReplicaView], nodes: set[str]) -> dict[str, list[ReplicaView]]:
    """What holds room of these nodes; a replica that spans several stands under each."""
    found: dict[str, list[ReplicaView]] = {}
    for replica in replicas:
        if holds_room(replica):
            for share in replica.shares:
                if share.node_id in nodes:
                    found.setdefault(share.node_id, []).append(replica)
    return found


def _node_map(node: NodeView, model: ModelView, here: list[ReplicaView], mine: int, more: int) -> NodeMap:
    cores, memory, cards = [0, 0], [0, 0], {card.uuid: [0, 0] for card in node.cards}
    for replica in here:
        whose = int(replica.model_id != model.id)
        for share in replica.shares:
            if share.node_id != node.id:
                continue
            cores[whose] += share.cores
            memory[whose] += share.memory
            for uuid, held in share.cards:
                if uuid in cards:
                    cards[uuid][whose] += held
    return NodeMap(
        name=node.name,
        state=node.state.value,
        replicas=mine,
        more=more,
        cores=_strip("Cores", cores, node.cores, unit=str) if node.cores else None,
        memory=_strip("Memory", memory, node.memory_total, unit=format_bytes) if node.memory_total else None,
        cards=tuple(_card(number, card, cards[card.uuid]) for number, card in enumerate(node.cards)),
    )


def _card(number: int, card: CardView, held: list[int]) -> Strip:
    title = f"Card {number}, {card.klass}" if card.klass else f"Card {number}"
    problem = card.problem or ("in maintenance" if card.maintenance else "")
    return _strip(title, held, card.memory_total, unit=format_bytes, foreign=card.foreign, problem=problem)


def _strip(title: str, held: list[int], total: int, *, unit: object, foreign: int = 0, problem: str = "") -> Strip:
    assert callable(unit)
    mine, others = held
    parts = [f"{unit(count)} {whose}" for count, whose in ((mine, "of this model"), (others, "of others")) if count]
    parts += [f"{unit(foreign)} of other programs"] if foreign else []
    return Strip(
        title=title,
        mine=percent(mine, total) or 0.0,
        others=percent(others, total) or 0.0,
        foreign=percent(foreign, total) or 0.0,
        held=f"{unit(mine + others + foreign)} of {unit(total)}",
        words=f"{', '.join(parts) or 'nothing held'}, {unit(total)} in all",
        problem=problem,
    )
