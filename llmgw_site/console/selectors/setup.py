"""The cluster setup against what the nodes run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cluster.domain.modules import ModuleReport, ModuleState
from cluster.domain.setup import Setup, roles_after, roles_of
from cluster.domain.states import NodeState
from cluster.models import ClusterSetup, Node
from cluster.selectors import clock, node_state_of, setup_node


@dataclass(frozen=True, kw_only=True)
class SetupRow:
    """A node in the setup. `assigned` is None where the setup has no list for it."""

    id: str
    name: str
    state: NodeState
    own: tuple[str, ...]  # roles that it goes by where the setup does not name it
    assigned: tuple[str, ...] | None
    named: bool  # by its list, or as a controller where there is a tier
    after: tuple[str, ...]  # what it shall run, all in all
    modules: tuple[ModuleReport, ...]  # what it said last that it runs

    @property
    def due(self) -> tuple[str, ...]:
        """Modules that it shall run and says nothing of yet; none of one that says nothing at all."""
        if self.state is NodeState.OFFLINE:
            return ()
        there = {item.name for item in self.modules}
        return tuple(name for name in self.after if name not in there) if there else ()

    @property
    def leaving(self) -> tuple[str, ...]:
        """Modules that run and shall not; none where the setup does not name the node, for it may switch its own."""
        if not self.named:
            return ()
        return tuple(
            item.name for item in self.modules if item.state == ModuleState.RUNNING and item.name not in self.after
        )


@dataclass(frozen=True, kw_only=True)
class SetupPage:
    """`version` 0: nobody has set anything yet."""

    version: int
    tier: tuple[str, ...]
    rows: tuple[SetupRow, ...]
    updated_at: datetime | None
    updated_by: str


def setup() -> SetupPage:
    """The setup and all nodes by name: four queries."""
    listening, now = clock()
    kept = ClusterSetup.objects.filter(id=ClusterSetup.ONLY).first()
    tier = tuple(kept.controller_tier) if kept else ()
    lists = {node_id: tuple(roles) for node_id, roles in kept.nodes.items()} if kept else {}
    whole = Setup(controller_tier=tier, nodes=lists)
    rows = []
    nodes = Node.objects.filter(removed_at__isnull=True).order_by("name", "id")
    for row in nodes.only("id", "name", "last_seen_at", "roles", "modules"):
        state = node_state_of(row, listening, now)
        node = setup_node(row, offline=state is NodeState.OFFLINE)
        rows.append(
            SetupRow(
                id=row.id,
                name=row.name,
                state=state,
                own=node.own_roles,
                assigned=lists.get(row.id),
                named=roles_of(whole, node) is not None,
                after=roles_after(whole, node),
                modules=node.modules,
            )
        )
    return SetupPage(
        version=kept.version if kept else 0,
        tier=tier,
        rows=tuple(rows),
        updated_at=kept.updated_at if kept else None,
        updated_by=kept.updated_by if kept else "",
    )
