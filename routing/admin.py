"""Usage records: to read, never to write."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from catalog.services import access
from llmgw_site.lib.units import format_seconds
from routing.models import UsageRecord


@admin.register(UsageRecord)
class UsagePages(ModelAdmin):  # type: ignore[misc]
    """Newest first; a dash is what is not known."""

    list_display = [
        "started_at", "model_asked", "endpoint", "outcome", "finish_reason", "status", "tokens_in", "tokens_out",
        "first_token", "total", "key_prefix", "request_id",
    ]  # fmt: skip
    list_filter = ["outcome", "endpoint", "model_asked"]
    search_fields = ["record_id", "request_id", "key_id", "key_prefix", "project_id"]
    date_hierarchy = "started_at"
    show_full_result_count = False
    list_fullwidth = True

    @admin.display(description="Tokens in", ordering="prompt_tokens")
    def tokens_in(self, row: UsageRecord) -> int | None:
        return row.prompt_tokens

    @admin.display(description="Tokens out", ordering="completion_tokens")
    def tokens_out(self, row: UsageRecord) -> str | None:
        if row.completion_tokens is None:
            return None
        return f"{row.completion_tokens} (estimated)" if row.estimated else str(row.completion_tokens)

    @admin.display(description="First token", ordering="first_token_s")
    def first_token(self, row: UsageRecord) -> str | None:
        return None if row.first_token_s is None else format_seconds(row.first_token_s)

    @admin.display(description="Total", ordering="total_s")
    def total(self, row: UsageRecord) -> str | None:
        return None if row.total_s is None else format_seconds(row.total_s)

    def get_queryset(self, request: HttpRequest) -> Any:
        """Records of the projects that the user may see."""
        projects = access.project_ids(access.reach(request.user, "routing.view_usagerecord"))
        rows = super().get_queryset(request)
        return rows if projects is None else rows.filter(project_id__in=projects)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return access.anywhere(request.user, ["routing.view_usagerecord"])

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
