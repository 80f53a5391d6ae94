"""Case 3 of the reconciler: replicas that are too many, or that others have taken the place of, are told to stop."""

from __future__ import annotations

from cluster.domain.draft import Draft
from cluster.domain.plan import Stop, old, outdated, running
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, ReplicaView
from cluster.domain.waits import lost_words

_READY = ReplicaState.READY
SOON = 60.0
"""Seconds of its start in which a replica may have become ready unheard. One that loads for longer gives way to a change at once:
what hangs with a wrong argument must not hold up the one that mends it."""


def surplus(draft: Draft, model: ModelView) -> None:
    """Case 3. While an old replica is being replaced, its successor's start is no surplus until it is ready."""
    active = running(draft.board, model.id)
    replaced = [item for item in active if old(draft.board, model, item)]
    if replaced and len(active) > model.target:
        # case 4a under way: the old ones may go as soon as enough others are ready, and in an update have answered
        ready = sum(item.state is _READY and model.trusts(item) for item in active if item not in replaced)
        enough = ready + len(replaced) - model.target
        order = sorted(replaced, key=lambda item: (item.state is _READY, not outdated(model, item), *_replaced(item)))
        many = _many(len(active), model.target)
        for replica in order[: max(0, min(enough, len(active) - model.target))]:
            if ready or not _may_serve(draft, model, replica, active):
                why = _why_replaced(draft, model, replica, ready=ready, many=many)
                draft.do(Stop(replica_id=replica.id, reason=why))
    elif len(active) > model.target:
        many = _many(len(active), model.target)
        for replica in sorted(active, key=_taken_back)[: len(active) - model.target]:
            draft.do(Stop(replica_id=replica.id, reason=many))
    _useless(draft, model)


def _many(there: int, wanted: int) -> str:
    return f"{there} replica{'s run' if there != 1 else ' runs'} and {wanted} {'is' if wanted == 1 else 'are'} wanted"


def _may_serve(draft: Draft, model: ModelView, replica: ReplicaView, active: list[ReplicaView]) -> bool:
    """Whether an outdated replica that loads for the first time may be serving already, unheard: routers on its node know before
    controllers do. Who was answered for an adapter and adds the next would lose the first. So it goes when it is known to be
    ready, and then the one before it goes, or has failed; where nothing serves there is nothing to lose.
    """
    loads = replica.state is ReplicaState.STARTING and not replica.failures and draft.now - replica.state_since < SOON
    return loads and outdated(model, replica) and any(item.state is _READY for item in active)


def _why_replaced(draft: Draft, model: ModelView, replica: ReplicaView, *, ready: int, many: str) -> str:
    """Why one goes that was to be replaced. `ready`: those of the present definition that serve; `many`: how many there are.

    1. it was to leave its place, or to restart
    2. it was not ready yet, as what it was started as was changed already
    3. one of the present definition serves
    4. none does: the model was changed again, or wants fewer
    """
    why = draft.board.to_move(replica)
    if not why and model.restarts(replica) and not outdated(model, replica):
        why = "it was to restart"
    if why:  # 1
        return f"{why}, and another replica is ready"
    if replica.state is not _READY:  # 2
        return "the profile or the weights changed before it was ready"
    if ready:  # 3
        return "one with the changed profile has taken its place"
    return f"{many}, and of those from before the last change the oldest goes first"  # 4


def _useless(draft: Draft, model: ModelView) -> None:
    """Case 3 for replicas that are lost or have failed: told to stop once others have taken over.

    A failed one of the present profile only for others that are not old themselves: it is what tells that their successor
    must not be tried there again.
    """
    ready = [item for item in running(draft.board, model.id) if item.state is _READY]
    if len(ready) < model.target:
        return
    fresh = sum(not old(draft.board, model, item) for item in ready)
    for replica in draft.board.of_model(model.id):
        state = draft.board.state(replica)
        if replica.run and (
            state is ReplicaState.LOST
            or (state is ReplicaState.FAILED and (fresh >= model.target or outdated(model, replica)))
        ):
            why = "it has failed" if state is ReplicaState.FAILED else lost_words(draft.board, replica)
            draft.do(Stop(replica_id=replica.id, reason=f"{why}, and others have taken its place"))


def usefulness(replica: ReplicaView) -> tuple[int, str]:
    """Sort key, the least useful first: failed, trying, loading, ready; among equals the newest first."""
    order = {
        ReplicaState.STOPPED: 0,
        ReplicaState.FAILED: 0,
        ReplicaState.BACKOFF: 1,
        ReplicaState.DRAINING: 2,
        ReplicaState.PENDING: 3,
        ReplicaState.FETCHING: 4,
        ReplicaState.STARTING: 5,
        ReplicaState.READY: 6,
    }
    return (order.get(replica.state, 0), _newest_first(replica.id))


def _taken_back(replica: ReplicaView) -> tuple[int, bool, int, str]:
    """Sort key of a surplus: the least useful first, of equals one that was added under load, then the idlest."""
    use, name = usefulness(replica)
    return (use, not replica.grown, replica.in_flight, name)


def _replaced(replica: ReplicaView) -> tuple[int, str]:
    """Sort key of those that are replaced: the least useful first, of equals the oldest. Where the definition changed again
    before the first successor was in its place, the later one is nearer to it: it has the adapter that came in between."""
    return (usefulness(replica)[0], replica.id)


def _newest_first(replica_id: str) -> str:
    """Ids sort by time; this turns the order round."""
    return "".join(chr(0x10FFFF - ord(letter)) for letter in replica_id)
