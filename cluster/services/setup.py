"""The cluster setup: which node runs what. One row; a change is checked as a whole and recorded with who made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from django.db import transaction
from django.db.models import F

from catalog.services import events
from cluster import selectors, signals
from cluster.domain import setup as domain
from cluster.domain.setup import Setup
from cluster.models import ClusterSetup, Node
from cluster.services.locks import plan_lock
from llmgw_site.lib.errors import Kind, Refused


@dataclass(frozen=True, kw_only=True)
class SetupView:
    """`nodes`: node name -> its roles. `version` 0: nobody has set anything yet."""

    controller_tier: tuple[str, ...]
    nodes: Mapping[str, tuple[str, ...]]
    version: int
    updated_at: datetime | None = None
    updated_by: str = ""


def get() -> SetupView:
    """The setup as it stands, with nodes by name; those that were removed since are left out."""
    row = ClusterSetup.objects.filter(id=ClusterSetup.ONLY).first()
    if row is None:
        return SetupView(controller_tier=(), nodes={}, version=0)
    names = dict(Node.objects.filter(removed_at__isnull=True, id__in=row.nodes).values_list("id", "name"))
    named = {names[node_id]: tuple(roles) for node_id, roles in row.nodes.items() if node_id in names}
    return SetupView(
        controller_tier=tuple(row.controller_tier),
        nodes=dict(sorted(named.items())),
        version=row.version,
        updated_at=row.updated_at,
        updated_by=row.updated_by,
    )


def roles_for(node: Node) -> tuple[str, ...] | None:
    """The roles that the setup gives this node, for the answer to its heartbeat; None: it does not name it. One query."""
    return domain.roles_of(selectors.cluster_setup(), selectors.setup_node(node))


def roles_by(mark: str, node: Node) -> tuple[str, ...] | None:
    """`roles_for` without a query where the setup was read before. `mark` changes with it; empty: there is none."""
    return domain.roles_of(_remembered(mark), selectors.setup_node(node)) if mark else None


@lru_cache(maxsize=2)
def _remembered(mark: str) -> domain.Setup:
    return selectors.cluster_setup()


def put(
    *,
    actor: str,
    controller_tier: Sequence[str],
    nodes: Mapping[str, Sequence[str]],
    version: int | None = None,
    why: str = "",
) -> SetupView:
    """Replace the setup; nodes by id or name. Empty: every node goes by its own roles again.

    Raises Refused for what `cluster.domain.setup.check` refuses, and `setup_changed` if `version` is not the present one
    or somebody else was faster. Refused input changes nothing.
    """
    with plan_lock():  # no controller is taken out meanwhile
        row, _ = ClusterSetup.objects.get_or_create(id=ClusterSetup.ONLY, defaults={"version": 0, "updated_by": ""})
        if version is not None and version != row.version:
            raise _changed(row)
        there = selectors.setup_nodes()
        wanted = Setup(
            controller_tier=tuple(controller_tier),
            nodes=_by_id({ref: tuple(roles) for ref, roles in nodes.items()}, there),
        )
        domain.check(wanted, there)
        fields = {
            "controller_tier": list(domain.in_order(wanted.controller_tier)),
            "nodes": {node_id: list(domain.in_order(roles)) for node_id, roles in sorted(wanted.nodes.items())},
        }
        before = get()
        same = ClusterSetup.objects.filter(id=row.id, version=row.version)
        if not same.update(**fields, version=F("version") + 1, updated_by=actor[:200], updated_at=_now()):
            raise _changed(row)
        after = get()
        events.append(
            actor=actor,
            kind="cluster_setup_changed",
            subject_kind="cluster_setup",
            subject_id=row.id,
            message="the cluster setup was cleared" if wanted.empty else "the cluster setup was changed",
            before=_told(before),
            after=_told(after),
            why=why,
        )
        transaction.on_commit(lambda: signals.setup_changed.send_robust(sender=ClusterSetup))
    return after


def _by_id(nodes: Mapping[str, tuple[str, ...]], there: Sequence[domain.SetupNode]) -> dict[str, tuple[str, ...]]:
    ids, names = {node.id for node in there}, {node.name: node.id for node in there}
    found: dict[str, tuple[str, ...]] = {}
    for ref, roles in nodes.items():
        node_id = ref if ref in ids else names.get(ref)
        if node_id is None:
            raise domain.unknown_node(ref)
        if node_id in found:
            text = f"the node {ref[:100]!r} stands twice, by name and by id: name it once"
            raise Refused(Kind.INVALID, "invalid_value", text, param="nodes")
        found[node_id] = roles
    return found


def _changed(row: ClusterSetup) -> Refused:
    text = (
        f"somebody else has changed the cluster setup, it is at version {row.version} now: look at it, then try again"
    )
    return Refused(Kind.CONFLICT, "setup_changed", text, param="version", extra={"version": row.version})


def _told(view: SetupView) -> dict[str, object]:
    return {"controller_tier": view.controller_tier, "nodes": view.nodes, "version": view.version}


def _now() -> datetime:
    return selectors.from_unix(selectors.database_now())
