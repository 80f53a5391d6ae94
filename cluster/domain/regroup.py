"""Replicas over several nodes whose parts do not all live: begun anew as a whole, or given up with a node that is lost."""

from __future__ import annotations

from cluster.domain.board import Board
from cluster.domain.draft import Draft
from cluster.domain.parts import pause
from cluster.domain.plan import Renew, Stop, computes_nothing, outdated, part_ended
from cluster.domain.types import ModelView, ReplicaView
from cluster.domain.waits import lost_words


def regroup(draft: Draft, model: ModelView) -> None:
    """Before anything else is decided of a model.

    1. a replica that is lost with one of its nodes: told to stop at once. Its other parts compute nothing without that one, and
       hold cards that the next needs
    2. a part has ended by itself, and the replica is to leave a node or a card of it: the same
    3. a part has ended by itself: the replica begins anew where it is, after a pause that grows, and once there is room for it
       again. An outdated one, and one of a parked model, is left to what is decided of these
    """
    for replica in draft.board.of_model(model.id):
        if not replica.run or len(replica.shares) < 2:
            continue
        if computes_nothing(draft.board, replica):  # 1, 2
            why = draft.board.to_move(replica) if part_ended(draft.board, replica) else lost_words(draft.board, replica)
            text = f"{why}, and {replica.id} computes nothing without its part there"
            draft.do(Stop(replica_id=replica.id, reason=text, grace=0.0))
        elif _due(draft, model, replica) and _has_room(draft.board, replica):  # 3
            op = Renew(
                replica_id=replica.id, profile_id=replica.profile_id or "", digest=replica.digest, generation=replica.generation + 1,
                shares=replica.shares, reason=f"{replica.message.rstrip('.')}; its parts begin anew together", again=True,
            )  # fmt: skip
            draft.do(op)


def _due(draft: Draft, model: ModelView, replica: ReplicaView) -> bool:
    if not part_ended(draft.board, replica):
        return False
    if outdated(model, replica) or model.restarts(replica) or model.standing.parked_at is not None:
        return False
    starts = max(replica.attempt - replica.proven, replica.wedged)
    return draft.now - replica.state_since >= pause(starts)


def _has_room(board: Board, replica: ReplicaView) -> bool:
    """Whether each card has still what the replica takes of it: others may have come while nothing of it ran."""
    mark = board.mark()
    board.lift(replica.id)
    rooms = [(board.rooms[share.node_id], share) for share in replica.shares]
    left = {card.uuid: free for room, _ in rooms for card, free in zip(room.node.cards, room.cards, strict=True)}
    enough = all(left.get(uuid, -1) >= size for _, share in rooms for uuid, size in share.cards)
    board.back(mark)
    return enough
