"""The record of changes: to read, never to write."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from unfold.admin import ModelAdmin

from catalog.models import Event


@admin.register(Event)
class EventPages(ModelAdmin):  # type: ignore[misc]
    """Newest first; a click shows what was and what is."""

    list_display = ["at", "actor", "kind", "subject_kind", "subject_id", "message"]
    list_filter = ["subject_kind", "kind"]
    search_fields = ["actor", "subject_id", "message"]
    date_hierarchy = "at"
    show_full_result_count = False
    list_fullwidth = True

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False
