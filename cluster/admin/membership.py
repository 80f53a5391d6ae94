"""Join tokens, without their secrets, and the cluster setup. New tokens and changes are made on the console's own pages."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from unfold.decorators import action, display

from cluster.admin.pages import ReadPages
from cluster.models import ClusterSetup, JoinToken, Node
from cluster.services import joining


@admin.register(JoinToken)
class JoinTokenPages(ReadPages):
    """What lets machines in. The secret proves itself and is never shown."""

    list_display = ["id", "state", "uses", "uses_allowed", "created_by", "created_at", "expires_at", "revoked_at"]
    search_fields = ["id", "created_by"]
    actions = ["revoke_selected"]
    fields = ["id", "state", "uses", "uses_allowed", "created_by", "created_at", "expires_at", "revoked_at"]
    readonly_fields = fields

    @display(
        description="state", label={"open": "success", "revoked": "danger", "expired": "warning", "used up": "info"}
    )  # type: ignore[untyped-decorator]
    def state(self, token: JoinToken) -> str:
        if token.revoked_at:
            return "revoked"
        if token.uses >= token.uses_allowed:
            return "used up"
        return "expired" if token.expires_at <= timezone.now() else "open"

    @action(description="Revoke selected", permissions=["revoke"])  # type: ignore[untyped-decorator]
    def revoke_selected(self, request: HttpRequest, queryset: Any) -> None:
        self.each(request, queryset, lambda row, actor: joining.revoke(actor=actor, token_id=row.pk), "revoked")

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("cluster.delete_jointoken"))


@admin.register(ClusterSetup)
class ClusterSetupPages(ReadPages):
    """The one setup, to read: it is checked as a whole where it is changed."""

    list_display = ["version", "controller_tier", "updated_at", "updated_by"]
    fields = ["version", "controller_tier", "roles", "updated_at", "updated_by"]
    readonly_fields = fields

    @display(description="nodes")  # type: ignore[untyped-decorator]
    def roles(self, setup: ClusterSetup) -> str:
        names = dict(Node.objects.filter(id__in=setup.nodes).values_list("id", "name"))
        lines = (f"{names.get(node_id, node_id)}: {', '.join(roles) or '–'}" for node_id, roles in setup.nodes.items())
        return "; ".join(sorted(lines)) or "–"
