"""Why a replica shall leave the place where it is, though its model wants it."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.domain.maintenance import Maintenance
from cluster.domain.room import Room
from cluster.domain.states import ReplicaState
from cluster.domain.types import NOTHING_STARTED, ModelView, NodeView, ProfileView, ReplicaView

_NO_WEIGHTS = frozenset({"weights_missing", "weights_changed"})
_AGAIN = frozenset({ReplicaState.BACKOFF, ReplicaState.STARTING})


def why_to_move(replica: ReplicaView, room: Room, model: ModelView | None) -> str:
    """Why a replica shall leave this node, of which it holds a part; empty if it may stay.

    1. the node is drained
    2. it uses a card that is drained
    3. its profile may no longer run there
    4. its node has no room for its weights
    5. its engine does not start, and what it needs has gone from there (see `_gone`)
    """
    node = room.node
    if node.drained:  # 1
        return f"node {node.name} is {node.maintenance_words}"
    if replica.cards and room.drains:  # 2
        drained = {card.uuid for card in node.cards if card.maintenance == Maintenance.DRAINED}
        for uuid in replica.cards:
            if uuid in drained:
                return f"card {uuid} of node {node.name} is drained"
    profile = model.profile(replica.profile_id) if model else None
    if profile is not None and not profile.may_run_on(node):  # 3
        return f"profile {profile.name} may run only on {', '.join(profile.nodes)}"
    if model is not None and replica.state is ReplicaState.FETCHING and model.weights in node.no_room:  # 4
        return f"node {node.name} has no room for its weights"
    if model is None or profile is None or replica.state not in _AGAIN:
        return ""
    if replica.code not in NOTHING_STARTED and not replica.failures:
        return ""
    return next(_gone(replica, room, model, profile), "")  # 5


def _gone(replica: ReplicaView, room: Room, model: ModelView, profile: ProfileView) -> Iterator[str]:
    """What a replica whose engine does not start lacks on a node, as the node itself says; so it is placed there no more.
    It is looked at while the next start is under way, too: else it would be wanted there again for a moment each time.

    1. the weights
    2. the engine
    3. a card: it is not there any more, or has a problem
    4. room of a card that others hold, for longer than the memory of an engine that has ended takes to come back
    5. whatever its system needs to start a process: only the replica says so, and `place.failed_there` keeps others away
    """
    node = room.node
    if replica.code in _NO_WEIGHTS and model.weights in node.lacks:  # 1
        yield f"node {node.name} does not say that it has {model.weights}"
    if replica.code == "engine_missing":  # 2
        why = node.engines.get(profile.engine)
        if why or why is None:
            yield f"node {node.name} has no {profile.engine}{f' that can run: {why}' if why else ''}"
    yield from _cards_gone(replica, node)  # 3
    if replica.code == "card_memory_taken" and not replica.settles:  # 4
        for card, left in zip(node.cards, room.cards, strict=True):
            if card.usable and left < 0 and card.uuid in replica.cards:
                yield f"other programs hold what it needs of card {card.uuid} of node {node.name}"
    if replica.refused_by_system and node.id == replica.node_id:  # 5
        yield f"the system of node {node.name} did not start its engine {replica.failures} times in a row"


def _cards_gone(replica: ReplicaView, node: NodeView) -> Iterator[str]:
    """Case 3."""
    problems = {card.uuid: card.problem for card in node.cards}
    for share in replica.shares:
        for uuid, _ in share.cards if share.node_id == node.id else ():
            if uuid not in problems:
                yield f"card {uuid} of node {node.name} is not there any more"
            elif problems[uuid]:
                yield f"card {uuid} of node {node.name}: {problems[uuid]}"
