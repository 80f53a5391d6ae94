"""Case 6 of the reconciler, and the words and codes for why a model waits."""

from __future__ import annotations

from cluster.domain.board import Board
from cluster.domain.draft import Draft
from cluster.domain.place import NoPlace
from cluster.domain.plan import Wait
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import ModelView, NodeView, ReplicaView

WAITING_FOR_TURN = "waiting_for_turn"
"""Code of a model on demand that has no room yet, and will."""
ASKING_NODES = "asking_nodes"
"""Code of a new model of which nodes are about to say whether they have its weights."""
TO_MOVE = "waiting_to_move"
"""Code of a replica that is to leave its place and has no other yet."""
ROOM_COMES = "room_comes"
"""Code of a replica that serves and whose successor waits for room that others are leaving: nothing stops meanwhile."""
TAKEN = "room was taken of "
"""How the words begin of a model that gave way to another."""
SHOW_AFTER = 15.0
"""Seconds that an engine may take to come back from its first failure before the model says so."""


def troubled(draft: Draft, model: ModelView, nowhere: NoPlace | None) -> None:
    """Case 6."""
    for replica in draft.board.of_model(model.id):
        state = draft.board.state(replica)
        if not replica.run:
            continue
        node = draft.board.node(replica.node_id)
        name = node.name if node else replica.node_id
        code = text = ""
        if state is ReplicaState.LOST:
            away = _lost_with(draft.board, replica)
            code = "node_offline" if away is None or away.state is NodeState.OFFLINE else "no_inference_module"
            text = f"{lost_words(draft.board, replica)}, {replica.id} is lost with it"
        elif state is ReplicaState.FAILED:
            code = replica.code or "engine_failed"
            text = f"{replica.id} on node {name} has failed and is not tried again: {replica.message}"
            text += f" ({nowhere.message})" if nowhere else ""
        elif state is ReplicaState.BACKOFF and (replica.attempt > 1 or draft.now - replica.state_since >= SHOW_AFTER):
            code = replica.code or "engine_failing"
            text = f"{replica.id} on node {name} keeps failing, the node tries again: {replica.message}"
        if code:
            draft.waits.append(Wait(model_id=model.id, code=code, message=text, replica_id=replica.id))


def _lost_with(board: Board, replica: ReplicaView) -> NodeView | None:
    """The first node of a lost replica that is away; None: it was removed."""
    rooms = [board.rooms.get(node_id) for node_id in replica.node_ids]
    away = next((room for room in rooms if room is None or room.lost), None)
    return away.node if away is not None else None


def lost_words(board: Board, replica: ReplicaView) -> str:
    node = _lost_with(board, replica)
    if node is None:
        return "its node was removed"
    if node.state is not NodeState.OFFLINE:
        return f"node {node.name} does not run the module inference any more"
    return f"node {node.name} is offline" + (f" and {node.maintenance_words}" if node.maintenance else "")


def parked_words(model: ModelView) -> str:
    standing = model.standing
    return (
        f"the model {model.name} is parked after {standing.failures} failed starts in a row: {standing.parked_message}; "
        f"mend what it says and change the model, or try again by `llmgw model retry {model.name}`"
    )
