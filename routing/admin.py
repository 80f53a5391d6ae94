"""Usage records: to read, never to write."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from routing.models import UsageRecord


@admin.register(UsageRecord)
class UsagePages(ModelAdmin):  # type: ignore[misc]
    """Newest first; a dash is what is not known."""

    list_display = [
        "started_at", "model_asked", "endpoint", "outcome", "status", "prompt_tokens", "completion_tokens",
        "first_token_s", "total_s", "key_id", "request_id",
    ]  # fmt: skip
    list_filter = ["outcome", "endpoint", "model_asked"]
    search_fields = ["record_id", "request_id", "key_id", "project_id"]
    date_hierarchy = "started_at"
    show_full_result_count = False
    list_fullwidth = True

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
