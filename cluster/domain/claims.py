"""Room that is kept for a model until those who are in its way have gone: when it is kept no longer."""

from __future__ import annotations

from dataclasses import replace

from cluster.domain.board import Board
from cluster.domain.modules import Module
from cluster.domain.room import card_margin, holds_room, margin
from cluster.domain.states import NodeState
from cluster.domain.types import Claim, NodeView, Share

CLAIM_FOR = 330.0
"""Seconds that room is kept for a model: the longest that a replica in its way may drain, and some."""


SETTLE = 30.0
"""Seconds that the room may take to be free once all that were in its way have gone: an engine's memory comes back late."""


def shortened(board: Board, claim: Claim, now: float) -> Claim:
    """The claim as it is to be kept where its model finds no place: SETTLE more where nobody in its way is leaving any more.
    Whatever holds the room then is not ours, and other room may be sought before CLAIM_FOR is over."""
    nodes = {share.node_id for share in claim.shares}
    leaving = any(holds_room(item) and nodes & {share.node_id for share in item.shares} for item in board.leaving)
    return claim if leaving or claim.until <= now + SETTLE else replace(claim, until=now + SETTLE)


def ended(board: Board, claim: Claim, now: float, *, enough: bool) -> str:
    """Why room is kept for a model no longer; empty if it is. `enough`: the model has the replicas that it should have.

    1. the model is gone, or wants none
    2. it has enough
    3. its time is over, and those in the way have not gone: others may be asked
    4. it will not be free, whatever leaves (see `unreachable`)
    """
    model = board.model(claim.model_id)
    if model is None or not model.target or not model.profiles:  # 1
        return "the model wants no further replica"
    if model.standing.parked_at is not None:
        return "the model is parked"
    if enough:  # 2
        return "the model has its replicas"
    if now >= claim.until:  # 3
        return "its time is over, and it is not free yet"
    return unreachable(board, claim)  # 4


def unreachable(board: Board, claim: Claim) -> str:
    """Why room that is kept will not be there even when all that are told to stop have gone; empty if it will be.

    1. its node was removed, is offline or in maintenance, or runs no engines any more
    2. a card of it is gone, out of use or in maintenance
    3. others hold it again

    Memory that other programs hold does not count: that of an engine which ended comes back some seconds after it.
    """
    for share in claim.shares:
        why = _taken(board, claim, share)
        if why:
            return why
    return ""


def _out(node: NodeView | None, share: Share) -> str:
    """1, 2."""
    if node is None:
        return "its node was removed"
    if node.state is NodeState.OFFLINE or node.maintenance:
        return f"node {node.name} is {node.maintenance_words or 'offline'}"
    if not node.runs(Module.INFERENCE):
        return f"node {node.name} does not run the module inference any more"
    cards = {card.uuid: card for card in node.cards}
    for uuid, _ in share.cards:
        card = cards.get(uuid)
        if card is None:
            return f"card {uuid} of node {node.name} is not there any more"
        if not card.usable:
            return f"card {uuid} of node {node.name} is {card.maintenance or f'out of use: {card.problem}'}"
    return ""


def _taken(board: Board, claim: Claim, share: Share) -> str:
    node = board.node(share.node_id)
    why = _out(node, share)
    if why or node is None:
        return why
    memory, cores = node.memory_total - margin(node), node.cores  # 3
    cards = {card.uuid: card.memory_total - card_margin(card) for card in node.cards}
    staying = [item.shares for item in board.on_node(node.id) if item.run and holds_room(item)]
    staying += [other.shares for other in board.claims if other.model_id != claim.model_id]
    for shares in staying:
        for held in shares:
            if held.node_id == node.id:
                memory, cores = memory - held.memory, cores - held.cores
                for uuid, size in held.cards:
                    cards[uuid] = cards.get(uuid, 0) - size
    if share.memory > memory or share.cores > cores or any(size > cards.get(uuid, 0) for uuid, size in share.cards):
        return f"others hold it again on node {node.name}"
    return ""
