"""Replicas: what shall run where and why, and what is seen of it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html

from cluster.admin.pages import ReadPages, size
from cluster.domain.memory import warning
from cluster.models import Replica
from cluster.selectors.resources import card_trouble

_LOG = '<pre style="max-height:24rem;overflow:auto;white-space:pre-wrap">{}</pre>'


@admin.register(Replica)
class ReplicaPages(ReadPages):
    """Wanted state is the reconciler's, observed state the node's; both are to read here."""

    list_display = ["model", "on_node", "state", "run", "in_flight", "cpu_seen", "memory_seen", "message", "id"]
    list_filter = ["state", "run", "node", "model"]
    list_select_related = ["model", "node"]
    search_fields = ["id", "model__name", "node__name"]
    fieldsets = [
        (None, {"fields": ["id", "model", "profile", "node", "slot", "created_at"]}),
        ("Why here", {"fields": ["why", "run", "generation", "reserved_size", "cards", "serve"]}),
        (
            "Seen by the node",
            {
                "fields": [
                    "state", "state_since", "code", "message", "attempt", "started_at", "ready_at", "pid", "port",
                    "context", "slots", "memory_seen", "cpu_seen", "in_flight", "last_used_at", "log",
                ]
            },
        ),
    ]  # fmt: skip
    readonly_fields = ["reserved_size", "cards", "memory_seen", "cpu_seen", "log"]

    @admin.display(description="node", ordering="node__name")
    def on_node(self, replica: Replica) -> Any:
        return format_html('<span style="white-space: nowrap">{}</span>', replica.node.name)

    @admin.display(description="reserved")
    def reserved_size(self, replica: Replica) -> str:
        return size(replica.reserved)

    @admin.display(description="memory")
    def memory_seen(self, replica: Replica) -> str:
        trouble = warning(replica.reserved, replica.memory)
        return f"{size(replica.memory)}: {trouble}" if trouble else size(replica.memory)

    @admin.display(description="cores kept busy")
    def cpu_seen(self, replica: Replica) -> str:
        return "–" if replica.cpu is None else f"{replica.cpu:.2f}"

    @admin.display(description="of cards")
    def cards(self, replica: Replica) -> str:
        held = [f"{uuid}: {size(part)}" for share in replica.shares for uuid, part in share.get("cards", ())]
        trouble = card_trouble(replica) if held else ""
        return ", ".join(held) + (f": {trouble}" if trouble else "") or "–"

    @admin.display(description="last words of a failed start")
    def log(self, replica: Replica) -> Any:
        return format_html(_LOG, replica.log_tail) if replica.log_tail else "–"
