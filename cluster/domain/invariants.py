"""What must always hold of a world. Used by `services/apply.py` before it commits, by `cluster_fsck`, and by tests."""

from __future__ import annotations

from collections import Counter

from cluster.domain.room import card_margin, holds_room, margin
from cluster.domain.states import ReplicaState
from cluster.domain.types import World
from llmgw_site.lib.units import format_bytes


def check(world: World) -> tuple[str, ...]:
    """A sentence for each truth that does not hold.

    1. ids are unique, and a live replica of a model has its slot to itself
    2. a replica names a model and a node that exist
    3. no memory of a node or of a card and no core is promised twice (what was not reported yet promises nothing)
    4. generations count from 1
    """
    return (*_truths(world), *(sentence for _, sentence in _promised(world).values()))


def broken(before: World, world: World) -> tuple[str, ...]:
    """What a change from `before` to `world` would make untrue, or less true.

    A node's memory may shrink by itself, and then more is promised than it can give whatever anybody decides. Nothing may
    be added there; what gives some back must go through, and so must every change elsewhere.
    """
    was = _promised(before)
    worse = [text for key, (over, text) in _promised(world).items() if over > was.get(key, (0, ""))[0]]
    return tuple(sorted({*worse, *(set(_truths(world)) - set(_truths(before)))}))


def _truths(world: World) -> list[str]:
    """1, 2 and 4."""
    found: list[str] = []
    for kind, ids in (
        ("model", Counter(item.id for item in world.models)),
        ("node", Counter(item.id for item in world.nodes)),
        ("replica", Counter(item.id for item in world.replicas)),
    ):
        found += [f"{kind} {key} stands {count} times" for key, count in ids.items() if count > 1]  # 1
    slots = Counter((r.model_id, r.slot) for r in world.replicas if r.state is not ReplicaState.STOPPED)
    found += [f"model {key[0]} has {count} replicas in slot {key[1]}" for key, count in slots.items() if count > 1]
    models, nodes = {item.id for item in world.models}, {item.id for item in world.nodes}
    for replica in world.replicas:
        if replica.model_id not in models:  # 2
            found.append(f"replica {replica.id} is of model {replica.model_id}, which does not exist")
        if replica.node_id not in nodes:
            found.append(f"replica {replica.id} is on node {replica.node_id}, which is not in the cluster")
        if replica.generation < 1:  # 4
            found.append(f"replica {replica.id} has generation {replica.generation}")
    return found


def _promised(world: World) -> dict[str, tuple[int, str]]:
    """By node id and by card: how much more is promised than it can give, in words too. Of those that have reported them."""
    memory: Counter[str] = Counter()
    cores: Counter[str] = Counter()
    cards: Counter[str] = Counter()
    for replica in world.replicas:
        if holds_room(replica):
            for share in replica.shares:
                memory[share.node_id] += share.memory
                cores[share.node_id] += share.cores
                cards.update(dict(share.cards))
    found = {}

    def sized(key: str, name: str, promised: int, total: int, kept: int) -> None:
        if total and promised > total - kept:
            text = f"{format_bytes(promised)} are promised and it can give {format_bytes(total - kept)}"
            found[key] = promised - (total - kept), f"{name}: {text}"

    for node in world.nodes:
        if node.id not in memory:  # nothing of it is promised
            continue
        over = cores[node.id] - node.cores
        if node.cores and over > 0:
            text = f"node {node.name}: {cores[node.id]} cores are promised and it has {node.cores}"
            found[f"{node.id}:cores"] = over, text
        sized(node.id, f"node {node.name}", memory[node.id], node.memory_total, margin(node))
        for card in node.cards:
            if card.uuid in cards:
                name = f"card {card.uuid} of node {node.name}"
                sized(card.uuid, name, cards[card.uuid], card.memory_total, card_margin(card))
    return found
