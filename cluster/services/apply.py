"""Plans to rows: the sole committer. Locks, checks every operation again on fresh rows, writes, says what it refused."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from catalog.models import Model
from catalog.services import events
from cluster import selectors, signals
from cluster.domain import invariants
from cluster.domain.board import Board
from cluster.domain.decided import decided
from cluster.domain.plan import Keep, Op, Plan, Release, Remember, Renew, Start, Stop, do, overtaken, recheck
from cluster.domain.shares import layers_on
from cluster.domain.states import ReplicaState
from cluster.domain.types import ProfileView, ReplicaView, Share
from cluster.models import ModelStanding, Replica
from cluster.services import parts
from cluster.services.locks import plan_lock
from cluster.wire import Serve, to_dict
from llmgw_site.lib.clock import new_id
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)


class BrokenPromise(Exception):
    """A plan would make something untrue that was true; nothing of it was written."""


@dataclass(frozen=True)
class Applied:
    done: tuple[Op, ...] = ()
    refused: tuple[tuple[Op, str], ...] = ()


def commit(plan: Plan, *, actor: str = "reconciler") -> Applied:
    """Write the operations that still make sense; each leaves an event.

    Rows may have changed since the plan was made, so under the lock the world is read again, once, and every operation
    is checked against it as the operations before it leave it: none is done to a replica that is of another generation
    than the one it was decided from. Raises BrokenPromise if the whole would break a truth.
    """
    if not plan.ops:
        return Applied()
    done: list[Op] = []
    refused: list[tuple[Op, str]] = []
    with plan_lock():
        _hold_models(plan.ops)
        before, serves = selectors.picture()
        board, replicas = Board(before), {item.id: item for item in before.replicas}
        for op in plan.ops:
            named = _named(op)
            why = overtaken(plan, op, replicas.get(op.subject)) or recheck(named, board)
            if not why and not _write(named, board, serves, actor):
                why = "the row changed meanwhile"
            if why:
                refused.append((op, why))
                continue
            do(named, board)
            done.append(named)
        broken = invariants.broken(before, board.as_world())
        if broken:
            raise BrokenPromise("; ".join(broken))
        if done:
            told = _nodes_of(done, replicas, board)
            transaction.on_commit(lambda: signals.plan_applied.send_robust(sender=Replica, nodes=told))
    for op, why in refused:
        event(log, "plan_op_refused", op=type(op).__name__.lower(), subject=op.subject, why=why)
    return Applied(tuple(done), tuple(refused))


def _hold_models(ops: Iterable[Op]) -> None:
    """Lock the models that a plan is about before anything that hangs on them, as whoever deletes a model does: in any
    other order the two could wait for each other."""
    subjects = [op.subject for op in ops]
    of_replicas = Replica.objects.filter(id__in=subjects).values("model_id")
    models = Model.objects.filter(Q(id__in=subjects) | Q(id__in=of_replicas)).order_by("id")
    list(models.select_for_update(no_key=True).values_list("id"))


def _nodes_of(ops: list[Op], before: Mapping[str, ReplicaView], board: Board) -> frozenset[str]:
    """Nodes that have something else to do now. `before`: the replicas as they were, by id."""
    found: set[str] = set()
    for op in ops:
        if not isinstance(op, (Keep, Release, Remember)):
            replica = before.get(op.replica_id) or board.replica(op.replica_id)
            if replica is not None:
                found |= {replica.node_id, *(share.node_id for share in replica.shares)}
    return frozenset(found)


def _named(op: Op) -> Op:
    return replace(op, replica_id=new_id("rep")) if isinstance(op, Start) and not op.replica_id else op


def _write(op: Op, board: Board, serves: Mapping[str, Serve], actor: str) -> bool:
    """One operation to its row. False if the row is not as it was read."""
    if isinstance(op, Start):
        _start(op, board, serves[op.profile_id], actor)
        return True
    if isinstance(op, (Keep, Release, Remember)):
        return _remember(op, board, actor)
    replica = board.replica(op.replica_id)
    assert replica is not None  # recheck saw it
    model = board.model(replica.model_id)
    name = model.name if model else replica.model_id
    # An agent may report at this moment; its state is none of ours, so only what we decided about must be the same.
    same = Replica.objects.filter(id=replica.id, run=replica.run, generation=replica.generation)
    if isinstance(op, Stop):
        written = same.update(run=False, why=op.reason, grace=op.grace)
        kind, text = "replica_stopping", f"a replica of {name} stops"
        if op.for_model:
            taker = board.model(op.for_model)
            kind, text = (
                "replica_preempted",
                f"a replica of {name} gives way to {taker.name if taker else op.for_model}",
            )
    elif isinstance(op, Renew):
        serve = _told(serves[op.profile_id], op.shares[0], model.profile(op.profile_id) if model else None)
        serve = parts.meeting(serve, replica_id=replica.id, generation=op.generation, shares=op.shares)
        written = same.update(**_renewed(op, serve))
        kind, text = "replica_renewed", f"a replica of {name} starts anew as generation {op.generation}"
    else:
        gone = same if board.node(replica.node_id) is None else same.filter(state=ReplicaState.STOPPED.value)
        written, kind, text = gone.delete()[0], "replica_removed", f"a replica of {name} is gone"
    if written:
        _event(actor, kind, replica.id, replica.model_id, text, op.reason)
    return bool(written)


def _start(op: Start, board: Board, serve: Serve, actor: str) -> None:
    model, node = board.model(op.model_id), board.node(op.node_id)
    assert model is not None  # recheck saw them both
    assert node is not None
    serve = _told(serve, op.shares[0], model.profile(op.profile_id))
    serve = parts.meeting(serve, replica_id=op.replica_id, generation=1, shares=op.shares)
    Replica.objects.create(
        id=op.replica_id,
        model_id=model.id,
        profile_id=op.profile_id,
        node_id=node.id,
        slot=op.slot,
        serve=to_dict(serve),
        digest=op.digest,
        reserved=op.shares[0].memory,
        shares=[asdict(share) for share in op.shares],
        grown=op.grown,
        why=op.reason,
    )
    parts.placed(op.replica_id, op.shares)
    if board.claim_of(model.id) is not None:
        _written(model.id, claim=None, claim_until=0.0)
    more = f" and {len(op.shares) - 1} more" if len(op.shares) > 1 else ""
    text = f"a replica of {model.name} is placed on node {node.name}{more}"
    _event(actor, "replica_placed", op.replica_id, model.id, text, op.reason)


def _remember(op: Keep | Release | Remember, board: Board, actor: str) -> bool:
    model = board.model(op.subject)
    name = model.name if model else op.subject
    if isinstance(op, Keep):
        _written(op.subject, claim=[asdict(share) for share in op.claim.shares], claim_until=op.claim.until)
        kind, text = "room_kept", f"room is kept for {name}"
    elif isinstance(op, Release):
        _written(op.subject, claim=None, claim_until=0.0)
        kind, text = "room_released", f"room is kept for {name} no longer"
    else:
        values = {**asdict(op.standing), "restarting": list(op.standing.restarting)}
        if op.standing.used_at == op.before.used_at:  # it may have been used since, and that stands
            del values["used_at"]
        _written(op.subject, **values)
        kind, text = "model_decided", decided(name, op.before, op.standing)
    if op.reason:
        events.append(actor=actor, kind=kind, subject_kind="model", subject_id=op.subject, message=text, why=op.reason)
    return True


def _written(model_id: str, **values: Any) -> None:
    """Under the plan lock, and after the standing was compared: nobody else writes these rows meanwhile."""
    ModelStanding.objects.update_or_create(model_id=model_id, defaults=values)
    ModelStanding.objects.filter(model_id=model_id).update(version=F("version") + 1)


def _told(serve: Serve, share: Share, profile: ProfileView | None) -> Serve:
    """What this node is told: the profile, and the cards that it uses there. What of each is for no layer is told as it was
    planned with, which after a measurement is not what was estimated: layers are divided by what is left."""
    return replace(
        serve,
        cards=tuple(uuid for uuid, _ in share.cards),
        card_memory=tuple(size for _, size in share.cards),
        card_base=profile.card_base if profile is not None and share.cards else serve.card_base,
        card_layers=layers_on(profile, share) if profile is not None else (),
    )


def _renewed(op: Renew, serve: Serve) -> dict[str, Any]:
    """Begun again as it is, it is what it was, and has started once more."""
    counted = {"attempt": F("attempt") + 1, "state": ReplicaState.STARTING.value} if op.again else {}
    return {
        "profile_id": op.profile_id,
        "generation": op.generation,
        "serve": to_dict(serve),
        "digest": op.digest,
        "reserved": op.shares[0].memory,
        "shares": [asdict(share) for share in op.shares],
        "why": op.reason,
        "state": ReplicaState.PENDING.value,
        "state_since": Now(),
        "code": "",
        "message": "",
        "log_tail": "",
        "ready_at": None,
        "grace": 0.0 if op.again else None,
        **(counted or {"attempt": 0, "proven": 0}),
    }


def _event(actor: str, kind: str, replica_id: str, model_id: str, message: str, why: str) -> None:
    events.append(
        actor=actor, kind=kind, subject_kind="replica", subject_id=replica_id, about=model_id, message=message, why=why
    )
