"""Plans to rows: the sole committer. Locks, checks every operation again on fresh rows, writes, says what it refused."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from django.db import transaction
from django.db.models.functions import Now

from catalog.models import Model, Profile
from catalog.services import events
from cluster import selectors, signals
from cluster.domain import invariants
from cluster.domain.plan import Op, Plan, Remove, Renew, Start, Stop, after, recheck
from cluster.domain.states import ReplicaState
from cluster.domain.types import World
from cluster.models import Replica
from cluster.services.locks import plan_lock
from cluster.wire import to_dict
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
    is checked against it as the operations before it leave it. Raises BrokenPromise if the whole would break a truth.
    """
    if not plan.ops:
        return Applied()
    done: list[Op] = []
    refused: list[tuple[Op, str]] = []
    with plan_lock():
        world = before = selectors.world()
        for op in plan.ops:
            why = recheck(op, world) or ("" if (named := _named(op)) and _write(named, world, actor) else _RACE)
            if why:
                refused.append((op, why))
                continue
            world = after(named, world)
            done.append(named)
        broken = set(invariants.check(world)) - set(invariants.check(before))
        if broken:
            raise BrokenPromise("; ".join(sorted(broken)))
        if done:
            transaction.on_commit(lambda: signals.plan_applied.send_robust(sender=Replica))
    for op, why in refused:
        event(log, "plan_op_refused", op=type(op).__name__.lower(), subject=op.subject, why=why)
    return Applied(tuple(done), tuple(refused))


_RACE = "the row changed meanwhile"


def _named(op: Op) -> Op:
    return replace(op, replica_id=new_id("rep")) if isinstance(op, Start) and not op.replica_id else op


def _write(op: Op, world: World, actor: str) -> bool:
    """One operation to its row. False if the row is not as it was read."""
    if isinstance(op, Start):
        return _start(op, world, actor)
    row = Replica.objects.filter(id=op.replica_id).select_related("model").first()
    if row is None:
        return False
    same = Replica.objects.filter(id=row.id, run=row.run, generation=row.generation, state=row.state)
    if isinstance(op, Stop):
        if not same.update(run=False, why=op.reason):
            return False
        _event(actor, "replica_stopping", row.id, f"a replica of {row.model.name} is being stopped", op.reason)
        return True
    if isinstance(op, Remove):
        if not same.delete()[0]:
            return False
        _event(actor, "replica_removed", row.id, f"a replica of {row.model.name} is gone", op.reason)
        return True
    return _renew(op, row, actor)


def _start(op: Start, world: World, actor: str) -> bool:
    model, profile = Model.objects.get(id=op.model_id), Profile.objects.get(id=op.profile_id)
    serve = selectors.serve_of(model, profile)
    if selectors.digest_of(serve) != op.digest:
        return False
    Replica.objects.create(
        id=op.replica_id,
        model=model,
        profile=profile,
        node_id=op.node_id,
        slot=op.slot,
        serve=to_dict(serve),
        digest=op.digest,
        reserved=serve.memory,
        why=op.reason,
    )
    node = world.node(op.node_id)
    where = node.name if node else op.node_id
    _event(actor, "replica_placed", op.replica_id, f"a replica of {model.name} is placed on node {where}", op.reason)
    return True


def _renew(op: Renew, row: Replica, actor: str) -> bool:
    profile = Profile.objects.select_related("model").get(id=op.profile_id)
    serve = selectors.serve_of(profile.model, profile)
    if selectors.digest_of(serve) != op.digest:
        return False
    updated = Replica.objects.filter(id=row.id, run=True, generation=op.generation - 1).update(
        profile=profile,
        generation=op.generation,
        serve=to_dict(serve),
        digest=op.digest,
        reserved=serve.memory,
        why=op.reason,
        state=ReplicaState.PENDING.value,
        state_since=Now(),
        code="",
        message="",
        log_tail="",
        ready_at=None,
    )
    if updated:
        text = f"a replica of {profile.model.name} starts anew as generation {op.generation}"
        _event(actor, "replica_renewed", row.id, text, op.reason)
    return bool(updated)


def _event(actor: str, kind: str, replica_id: str, message: str, why: str) -> None:
    events.append(actor=actor, kind=kind, subject_kind="replica", subject_id=replica_id, message=message, why=why)
