"""Whether a replica is put where it may be and where there is room for it."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.domain.board import Board
from cluster.domain.modules import Module
from cluster.domain.plan import Renew, Start
from cluster.domain.simulation.sums import free_of
from cluster.domain.states import NodeState
from cluster.domain.types import ModelView, NodeView, ProfileView, Share


def wrong(op: Start | Renew, board: Board) -> Iterator[tuple[str, str]]:
    """The rules that a start, or a renewal, breaks, in words: `misplaced` or `promised_twice`."""
    replica = board.replica(op.replica_id) if isinstance(op, Renew) else None
    model = board.model(op.model_id if isinstance(op, Start) else replica.model_id if replica is not None else "")
    profile = model.profile(op.profile_id) if model is not None else None
    if model is None or profile is None:
        yield "misplaced", f"{op.subject} is started as nothing that its model offers"
        return
    nodes = {share.node_id: board.node(share.node_id) for share in op.shares}
    fabrics = {node.fabric for node in nodes.values() if node is not None}
    if not len(nodes) == len(op.shares) == profile.span or (profile.span > 1 and (len(fabrics) > 1 or "" in fabrics)):
        yield (
            "misplaced",
            f"{model.name} is put on {len(nodes)} nodes of {len(fabrics)} fabrics, and spans {profile.span}",
        )
    for share in op.shares:
        node = nodes[share.node_id]
        why = _why_not(node, profile, model, share) if node is not None else "it is gone"
        if why or node is None:
            yield "misplaced", f"{model.name} is put on node {share.node_id}: {why}"
            continue
        free = free_of(board, node, without=(replica,) if replica is not None else (), kept_for=model.id)
        short = [f"card {uuid}" for uuid, size in share.cards if size > free.cards.get(uuid, 0)]
        short += ["memory"] if share.memory > free.memory else []
        short += ["cores"] if share.cores > free.cores else []
        if short:
            yield (
                "promised_twice",
                f"{model.name} is put on node {node.name}, which has not so much of {', '.join(short)}",
            )


def _why_not(node: NodeView, profile: ProfileView, model: ModelView, share: Share) -> str:
    if not may_run(node, profile, model):
        return "it may not run there"
    if (share.memory, share.cores, len(share.cards)) != (profile.memory, profile.threads, profile.cards):
        return "it takes other than it needs"
    cards = {card.uuid: card for card in node.cards}
    for uuid, _ in share.cards:
        card = cards.get(uuid)
        if card is None or card.problem or card.maintenance:
            return f"card {uuid} must not be used"
        if profile.card_classes and card.klass not in profile.card_classes:
            return f"card {uuid} is of another class"
    sizes = [size for _, size in share.cards]
    if len(cards.keys() & dict(share.cards).keys()) < profile.cards or sum(sizes) < profile.card_memory:
        return "its cards give less than it needs"
    return "its cards are not even" if profile.even and len(set(sizes)) > 1 else ""


def may_run(node: NodeView, profile: ProfileView, model: ModelView) -> bool:
    """Whether anything but room forbids a node."""
    return (
        node.state is NodeState.ONLINE
        and not node.maintenance
        and node.runs(Module.INFERENCE)
        and node.engines.get(profile.engine) == ""
        and (not profile.nodes or node.name in profile.nodes)
        and all(node.labels.get(key) == value for key, value in profile.labels)
        and model.weights not in node.lacks
    )
