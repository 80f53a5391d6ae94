"""Nodes: what the machines are, and taking one out. Maintenance asks for a reason and is the console's Nodes page."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Value
from django.http import HttpRequest

from cluster import selectors
from cluster.admin.pages import ReadPages, size
from cluster.domain.health import Listening
from cluster.domain.modules import ModuleState
from cluster.models import Node
from cluster.services import nodes


@admin.register(Node)
class NodePages(ReadPages):
    """State is that of the last heartbeat, by the database's clock."""

    list_display = ["name", "state", "last_seen_at", "runs", "maintenance", "cores", "memory", "version", "trouble"]
    search_fields = ["name", "id", "address"]
    actions = ["take_out"]
    fields = [
        "id", "name", "state", "address", "enrolled_at", "removed_at", "last_seen_at", "version", "boot_id", "runs",
        "modules", "roles", "labels", "fabric", "maintenance", "maintenance_why", "maintenance_by", "maintenance_at", "cards_maintenance",
        "cores", "memory", "engines", "problems", "hardware", "snapshot_version", "map_version", "spool_records",
        "public_key",
    ]  # fmt: skip
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> Any:
        """Rows carry the clock they are looked at by; it is read once for a page."""
        listening, now = selectors.clock()
        since = listening.since if listening.since is not None else -1.0
        at = listening.at if listening.at is not None else -1.0
        clock = {"clock_since": Value(since), "clock_at": Value(at), "clock_now": Value(now)}
        return super().get_queryset(request).annotate(**clock)

    @admin.display(description="state")
    def state(self, node: Any) -> str:
        if node.removed_at:
            return "removed"
        heard = node.clock_at >= 0
        listening = Listening(node.clock_since, node.clock_at) if heard else Listening()
        return selectors.node_state_of(node, listening, node.clock_now).value

    @admin.display(description="runs")
    def runs(self, node: Node) -> str:
        return ", ".join(item.name for item in selectors.modules_of(node) if item.state == ModuleState.RUNNING) or "–"

    @admin.display(description="cores")
    def cores(self, node: Node) -> str:
        return str(node.hardware.get("cores") or "–")

    @admin.display(description="memory, free of total")
    def memory(self, node: Node) -> str:
        return f"{size(node.hardware.get('memory_available'))} of {size(node.hardware.get('memory_total'))}"

    @admin.display(description="problems")
    def trouble(self, node: Node) -> str:
        broken = [f"{item['kind']}: {item['problem']}" for item in node.engines if item.get("problem")]
        return "; ".join([*node.problems, *broken]) or "–"

    @admin.action(description="Take out of the cluster", permissions=["take_out"])
    def take_out(self, request: HttpRequest, queryset: Any) -> None:
        self.each(
            request,
            queryset,
            lambda node, actor: nodes.remove(node_id=node.pk, actor=actor),
            "taken out of the cluster",
        )

    def has_take_out_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("cluster.delete_node"))
