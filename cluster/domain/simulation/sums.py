"""What is held and what is left, worked out anew from views alone, so that it says what is wrong with sums that are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cluster.domain.amounts import cards_of, of_shares
from cluster.domain.board import Board
from cluster.domain.room import card_margin, holds_room, margin
from cluster.domain.states import REPLICA_LOADING, ReplicaState
from cluster.domain.types import Claim, NodeView, ProfileView, ReplicaView, ScopeView, Share

OUT = frozenset({ReplicaState.LOST, ReplicaState.FAILED})
_ENGINE = frozenset({ReplicaState.READY, ReplicaState.DRAINING})


@dataclass(frozen=True, kw_only=True)
class Free:
    """What one more replica may take of a node: bytes, cores, bytes of each card that may be used."""

    memory: int
    cores: int
    cards: Mapping[str, int]


def free_of(board: Board, node: NodeView, *, without: Iterable[ReplicaView] = (), kept_for: str = "") -> Free:
    """`without`: replicas that are looked at as if they were gone; `kept_for`: a model whose own claim does not count."""
    gone = {item.id: item for item in without}
    promised = loading = cores = 0
    cards = {
        card.uuid: card.memory_total - card_margin(card) - card.foreign
        for card in node.cards
        if not card.problem and not card.maintenance
    }
    held: list[tuple[Share, bool]] = []
    back = 0
    for replica in board.on_node(node.id):
        mine = [share for share in replica.shares if share.node_id == node.id]
        if replica.id in gone:
            back += sum(share.memory for share in mine) if replica.state in _ENGINE else 0
        elif holds_room(replica):
            held += [(share, replica.state in REPLICA_LOADING) for share in mine]
    for claim in board.claims:
        if claim.model_id != kept_for:
            held += [(share, True) for share in claim.shares if share.node_id == node.id]
    for share, loads in held:
        promised, cores, loading = promised + share.memory, cores + share.cores, loading + share.memory * loads
        for uuid, size in share.cards:
            if uuid in cards:
                cards[uuid] -= size
    memory = min(node.memory_total - promised, node.memory_available + back - loading) - margin(node)
    return Free(memory=memory, cores=node.cores - cores, cards=cards)


def fits(profile: ProfileView, node: NodeView, free: Free) -> bool:
    """Whether the sums let a profile run there; nothing is said of labels, engines, disks and the like."""
    if profile.memory > free.memory or profile.threads > free.cores:
        return False
    if not profile.cards:
        return True
    classes = {card.uuid: card.klass for card in node.cards}
    wanted = profile.card_classes
    left = sorted((size for uuid, size in free.cards.items() if not wanted or classes[uuid] in wanted), reverse=True)
    left = left[: profile.cards]
    if len(left) < profile.cards:
        return False
    if profile.even or profile.cards == 1:
        return left[-1] * profile.cards >= profile.card_memory
    piece, base = max(1, profile.layer), profile.card_base
    layers = -(-(profile.card_memory - base * profile.cards) // piece)
    return left[-1] >= base + piece and sum((size - base) // piece for size in left) >= layers


def chain(scopes: Mapping[str, ScopeView], owner: str) -> list[str]:
    """A scope and those above it."""
    found = []
    while owner in scopes:
        found.append(owner)
        owner = scopes[owner].parent
    return found


def amount_of(board: Board, shares: Iterable[Share]) -> dict[str, int]:
    there = list(shares)
    nodes = {share.node_id: board.node(share.node_id) for share in there}
    return of_shares(there, {key: cards_of(node) if node is not None else {} for key, node in nodes.items()})


def held(
    board: Board, scope: str, *, going: bool = True, replicas: Iterable[ReplicaView] | None = None
) -> dict[str, int]:
    """What the replicas of a scope's models hold; `going`: of those that are meant to go on."""
    scopes = {item.id: item for item in board.world.scopes}
    mine = {item.id for item in board.world.models if scope in chain(scopes, item.owner)}
    total: dict[str, int] = {}
    for item in board.replicas if replicas is None else replicas:
        if item.model_id in mine and (item.run or not going) and holds_room(item) and board.state(item) not in OUT:
            for key, size in amount_of(board, item.shares).items():
                total[key] = total.get(key, 0) + size
    return total


def taken_by_others(board: Board, claim: Claim) -> bool:
    """Whether other programs hold some of the memory that is kept for a model."""
    for share in claim.shares:
        node = board.node(share.node_id)
        if node is None:
            continue
        cards = tuple(replace(card, foreign=0) for card in node.cards)
        now, alone = (
            free_of(board, item, kept_for=claim.model_id)
            for item in (node, replace(node, memory_available=node.memory_total, cards=cards))
        )
        if now.memory < share.memory <= alone.memory:
            return True
        if any(now.cards.get(uuid, 0) < size <= alone.cards.get(uuid, 0) for uuid, size in share.cards):
            return True
    return False
