"""The record of changes: to read, never to write."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin

from catalog.models import Event


@admin.register(Event)
class EventPages(ModelAdmin):  # type: ignore[misc]
    """Newest first; a click shows what was and what is."""

    list_display = ["when", "message", "why", "actor", "kind"]
    list_filter = ["subject_kind", "kind"]
    search_fields = ["actor", "subject_id", "about", "message"]
    date_hierarchy = "at"
    list_fullwidth = True

    @admin.display(description="at", ordering="at")
    def when(self, row: Event) -> SafeString:
        return format_html('<span style="white-space: nowrap">{}</span>', f"{row.at:%Y-%m-%d %H:%M:%S}")

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False
