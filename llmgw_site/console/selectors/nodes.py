"""The machines, a page of them at a time, and the tokens that let more in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, Q
from django.utils import timezone

from cluster.domain.maintenance import Maintenance
from cluster.domain.states import NodeState
from cluster.models import JoinToken, Node
from cluster.selectors import clock, node_state_of, waiting_to_move
from llmgw_site.console.selectors.cluster import node_of, part_of, part_rows, replica_of, replica_rows
from llmgw_site.console.views import NodeView, ReplicaView

MAINTENANCE = "maintenance"
"""A filter beside the states."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A node with the replicas on it."""

    node: NodeView
    replicas: tuple[ReplicaView, ...]
    waiting: tuple[tuple[str, str], ...]  # where it is drained: models that cannot leave yet, and why


@dataclass(frozen=True, kw_only=True)
class Machines:
    """A page of nodes. `counts`: of all nodes by state, of those in maintenance, and of all under the empty name."""

    machines: tuple[Machine, ...]
    total: int  # that match, on all pages
    counts: Mapping[str, int]


def machines(*, only: str = "", name: str = "", offset: int = 0, limit: int = 20) -> Machines:
    """Nodes by name: six queries, eight more where one of the page is drained. `only`: a state or `maintenance`; `name`: a part of the name, whatever its case.

    The state of a node is computed, so all rows are looked at; only those of the page are read whole.
    """
    listening, now = clock()
    counts = {"": 0, MAINTENANCE: 0, **{state.value: 0 for state in NodeState}}
    found: list[tuple[str, NodeState]] = []
    rows = Node.objects.filter(removed_at__isnull=True).order_by("name", "id")
    for row in rows.only("id", "name", "last_seen_at", "maintenance", "cards_maintenance"):
        state = node_state_of(row, listening, now)
        kept = bool(row.maintenance or row.cards_maintenance)
        counts[""] += 1
        counts[state.value] += 1
        counts[MAINTENANCE] += kept
        if name.lower() in row.name.lower() and (not only or only == state.value or (only == MAINTENANCE and kept)):
            found.append((row.id, state))
    states = dict(found[offset : offset + limit])
    replicas: dict[str, list[ReplicaView]] = {}
    for replica in replica_rows().filter(node_id__in=states):
        replicas.setdefault(replica.node_id, []).append(replica_of(replica, states))
    for part in part_rows().filter(node_id__in=states):
        replicas.setdefault(part.node_id, []).append(part_of(part, states))
    shown = list(rows.filter(id__in=states))
    waits = waiting_to_move() if any(_drained(row) for row in shown) else {}
    return Machines(
        machines=tuple(
            Machine(
                node=node_of(row, states[row.id], len(replicas.get(row.id, ()))),
                replicas=tuple(replicas.get(row.id, ())),
                waiting=tuple((item["model"], item["message"]) for item in waits.get(row.id, ())),
            )
            for row in shown
        ),
        total=len(found),
        counts=counts,
    )


def _drained(row: Node) -> bool:
    """Whether replicas shall leave it, or one of its cards."""
    kept = (row.maintenance, *(item["state"] for item in row.cards_maintenance.values()))
    return Maintenance.DRAINED in kept


@dataclass(frozen=True, kw_only=True)
class OpenToken:
    """A join token that still lets machines in. Its secret is not told again."""

    id: str
    uses: int
    uses_allowed: int
    created_at: datetime
    created_by: str
    expires_at: datetime


def open_tokens() -> tuple[OpenToken, ...]:
    """Join tokens that still let machines in, newest first: one query."""
    rows = JoinToken.objects.filter(
        Q(uses__lt=F("uses_allowed")), revoked_at__isnull=True, expires_at__gt=timezone.now()
    )
    return tuple(
        OpenToken(
            id=row.id,
            uses=row.uses,
            uses_allowed=row.uses_allowed,
            created_at=row.created_at,
            created_by=row.created_by,
            expires_at=row.expires_at,
        )
        for row in rows.order_by("-created_at", "id")
    )
