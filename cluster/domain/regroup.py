"""Replicas over several nodes whose parts do not all live: begun anew as a whole, or given up with a node that is lost."""

from __future__ import annotations

from cluster.domain.draft import Draft
from cluster.domain.parts import TRIED_ALONE, pause
from cluster.domain.plan import Renew, Stop, outdated
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, ReplicaView
from cluster.domain.waits import lost_words


def regroup(draft: Draft, model: ModelView) -> None:
    """Before anything else is decided of a model.

    1. a replica that is lost with one of its nodes: told to stop at once. Its other parts compute nothing without that one, and
       hold cards that the next needs
    2. a part has ended by itself: the replica begins anew where it is, after a pause that grows. An outdated one, and one of a
       parked model, is left to what is decided of these
    """
    for replica in draft.board.of_model(model.id):
        if not replica.run or len(replica.shares) < 2:
            continue
        state = draft.board.state(replica)
        if state is ReplicaState.LOST:  # 1
            text = f"{lost_words(draft.board, replica)}, and {replica.id} computes nothing without its part there"
            draft.do(Stop(replica_id=replica.id, reason=text, grace=0.0))
        elif _due(draft, model, replica, state):  # 2
            op = Renew(
                replica_id=replica.id, profile_id=replica.profile_id or "", digest=replica.digest, generation=replica.generation + 1,
                shares=replica.shares, reason=f"{replica.message.rstrip('.')}; its parts begin anew together", again=True,
            )  # fmt: skip
            draft.do(op)


def _due(draft: Draft, model: ModelView, replica: ReplicaView, state: ReplicaState) -> bool:
    if state is not ReplicaState.BACKOFF or replica.code in TRIED_ALONE:
        return False
    if outdated(model, replica) or model.restarts(replica) or model.standing.parked_at is not None:
        return False
    return draft.now - replica.state_since >= pause(replica.attempt - replica.proven)
