"""Replicas over several nodes: what each node reports of its part, and how the replica stands then. Written here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction

from catalog.services import events
from cluster import selectors, signals
from cluster.domain import parts as rules
from cluster.domain.parts import PartView, Said, Stand
from cluster.domain.states import REPLICA_REPORTED, ReplicaState
from cluster.domain.types import Share
from cluster.models import Node, Replica, ReplicaPart
from cluster.selectors import from_unix
from cluster.wire import ReplicaReport, Serve

Reports = Mapping[str, tuple[ReplicaReport, dict[str, Any]]]
"""By the replica's id: what a node reports of it, and that as columns keep it."""
_OF_PART = ("code", "message", "log_tail", "pid", "memory", "card_memory", "cpu")
_OF_LEADER = ("pid", "port", "started_at", "ready_at", "context", "slots", "in_flight", "waiting", "last_used_at",
              "wedged")  # fmt: skip


@dataclass(frozen=True)
class Shared:
    """Replicas of which a node has a part, with what it is told (`Replica.told`); those of which it brought news."""

    rows: list[Replica]
    news: list[Replica]


def placed(replica_id: str, shares: Sequence[Share]) -> None:
    """Make the parts of a new replica, where it is one over several nodes."""
    if len(shares) < 2:
        return
    nodes = Node.objects.in_bulk([share.node_id for share in shares])
    ReplicaPart.objects.bulk_create(
        ReplicaPart(replica_id=replica_id, node_id=share.node_id, rank=rank, address=_address(nodes[share.node_id]))
        for rank, share in enumerate(shares)
    )


def meeting(serve: Serve, *, replica_id: str, generation: int, shares: Sequence[Share]) -> Serve:
    """What the leader is told, with where its parts meet, where it is one over several nodes."""
    if len(shares) < 2:
        return serve
    leader = Node.objects.get(id=shares[0].node_id)
    led = Replica.objects.filter(node_id=leader.id).exclude(id=replica_id).values_list("serve", flat=True)
    port = rules.meeting_port(replica_id, generation, {other.get("master_port", 0) for other in led})
    address = _address(leader)
    return replace(serve, master=address, master_port=port, address=address)


def _address(node: Node) -> str:
    return rules.fabric_address(node.fabric_address, node.address)


def observe(*, node: Node, said: Reports, now: float) -> Shared:
    """Write what a node says of its parts, and how their replicas stand then; under the rows' locks, for several nodes speak of one
    replica. One query where the node has no part."""
    mine = list(ReplicaPart.objects.filter(node_id=node.id).order_by("replica_id").values_list("replica_id", flat=True))
    if not mine:
        return Shared([], [])
    rows, news = [], []
    with transaction.atomic():
        found = list(Replica.objects.select_for_update(no_key=True).filter(id__in=mine).order_by("id"))
        held = selectors.parts.of_replicas(mine)
        for row in found:
            if _observe(row, held[row.id], node, said.get(row.id), now):
                news.append(row)
                others = frozenset(part.node_id for part in held[row.id]) - {node.id}
                transaction.on_commit(
                    lambda others=others: signals.plan_applied.send_robust(sender=Replica, nodes=others)  # type: ignore[misc]
                )
            if row.told is not None and (row.run or row.told.run or row.state != ReplicaState.STOPPED):
                rows.append(row)
    return Shared(rows, news)


def _observe(
    row: Replica, held: Sequence[ReplicaPart], node: Node, said: tuple[ReplicaReport, dict[str, Any]] | None, now: float
) -> bool:
    """One part of a replica. True if anything is new that others go by."""
    views = [selectors.parts.part_view(part) for part in held]
    own = next(part for part in held if part.node_id == node.id)
    before = views[own.rank]
    told = rules.order(before, views, run=row.run, generation=row.generation, grace=row.grace)
    after = rules.heard(before, _said(said), run=row.run, told=told.run, generation=row.generation, now=now)
    views[own.rank] = after
    _write_part(own, before, after, said[1] if said else {})
    known = said is not None and said[0].generation == row.generation
    stood = _write_stand(row, held, views, said[1] if said and known and own.rank == 0 else {}, now)
    row.told = selectors.parts.wanted(row, own, views)
    return stood or (before.generation, before.state, before.code) != (after.generation, after.state, after.code)


def _said(said: tuple[ReplicaReport, dict[str, Any]] | None) -> Said | None:
    if said is None or said[0].state not in REPLICA_REPORTED:
        return None
    report, fields = said
    return Said(
        generation=report.generation,
        state=ReplicaState(report.state),
        code=fields["code"],
        message=fields["message"],
        pid=fields["pid"],
    )


def _write_part(part: ReplicaPart, before: PartView, after: PartView, fields: Mapping[str, Any]) -> None:
    values = {name: fields.get(name, "" if name == "log_tail" else None) for name in _OF_PART}
    values |= {"generation": after.generation, "state": after.state.value, "code": after.code}
    values |= {"message": after.message, "pid": after.pid}
    if after is before:  # what it says now changes nothing: the log of its end stays
        values = {name: values[name] for name in ("memory", "card_memory", "cpu")}
    elif after.state is not before.state:
        values["state_since"] = from_unix(after.since)
    changed = {name: value for name, value in values.items() if getattr(part, name) != value}
    if changed:
        ReplicaPart.objects.filter(pk=part.pk).update(**changed)
    for name, value in changed.items():
        setattr(part, name, value)


def _write_stand(
    row: Replica, held: Sequence[ReplicaPart], views: Sequence[PartView], leader: Mapping[str, Any], now: float
) -> bool:
    """How the replica stands, in its row. True if that is new.

    Its memory is that of the node that has most: what is reserved is of each node. The room of a part that has stopped for good is
    free, however long the others take.
    """
    found = rules.stand(views, run=row.run, generation=row.generation, begun=row.attempt > 0)
    values: dict[str, Any] = {name: leader[name] for name in _OF_LEADER if name in leader}
    values |= {"state": found.state.value, "code": found.code, "message": found.message}
    values["log_tail"] = held[found.by].log_tail if found.by is not None else ""
    for name in ("memory", "card_memory", "cpu"):
        values[name] = max((getattr(part, name) for part in held if getattr(part, name) is not None), default=None)
    begun = found.state not in (ReplicaState.PENDING, ReplicaState.FETCHING)
    values["attempt"] = max(row.attempt, int(begun and row.run))
    if found.state is ReplicaState.READY:
        values["proven"] = values["attempt"]
    if not row.run:
        over = {part.node_id for part, view in zip(held, views, strict=True) if view.over}
        values["shares"] = [share for share in row.shares if share["node_id"] not in over] or row.shares
    changed = {name: value for name, value in values.items() if getattr(row, name) != value}
    if not changed:
        return False
    news = bool(changed.keys() & {"state", "code", "message", "shares"})
    if "state" in changed:
        changed["state_since"] = from_unix(now)
        _tell(row, held, found)
    Replica.objects.filter(pk=row.pk).update(**changed)
    for name, value in changed.items():
        setattr(row, name, value)
    return news


def _tell(row: Replica, held: Sequence[ReplicaPart], found: Stand) -> None:
    """An event about a replica that became ready or failed."""
    if found.state not in (ReplicaState.READY, ReplicaState.BACKOFF, ReplicaState.FAILED):
        return
    ready = found.state is ReplicaState.READY
    failed = "failed" if row.state == ReplicaState.READY else "failed to start"
    by = held[found.by or 0].node
    events.append(
        actor=f"node:{by.name}",
        kind=f"replica_{'ready' if ready else 'failed'}",
        subject_kind="replica",
        subject_id=row.id,
        about=row.model_id,
        message=f"a replica {'is ready' if ready else failed} on nodes {', '.join(part.node.name for part in held)}",
        before={"state": row.state},
        after={"state": found.state.value, "code": found.code},
        why=found.message,
    )
