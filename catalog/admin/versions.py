"""Weights that the cluster fetches and keeps: to read. Jobs make them, `llmgw mirror` adds and removes them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin

from catalog import selectors
from catalog.models import Version
from llmgw_site.lib.units import format_bytes


@admin.register(Version)
class VersionPages(ModelAdmin):  # type: ignore[misc]
    """Newest first; a click shows its files."""

    list_display = ["origin", "short", "quantization", "format", "bytes", "models", "created_at"]
    list_filter = ["format"]
    search_fields = ["id", "repository", "commit"]
    fields = ["origin", "registry", "commit", "format", "quantization", "bytes", "projector", "models", "files", "facts", "id", "created_at"]  # fmt: skip
    readonly_fields = fields
    list_fullwidth = True

    def get_queryset(self, request: HttpRequest) -> Any:
        return selectors.versions().prefetch_related("models", "former_models")

    @admin.display(ordering="repository")
    def origin(self, row: Version) -> str:
        return row.repository or "plain addresses"

    @admin.display(description="commit", ordering="commit")
    def short(self, row: Version) -> str:
        return row.commit[:8] or "-"

    @admin.display(description="size", ordering="size")
    def bytes(self, row: Version) -> str:
        return format_bytes(row.size)

    def models(self, row: Version) -> str:
        """What serves it, and what could go back to it."""
        former = [f"{model.name} (before its last update)" for model in row.former_models.all()]
        return ", ".join([*(model.name for model in row.models.all()), *former]) or "-"

    def files(self, row: Version) -> SafeString:
        told = (
            (item["path"], format_bytes(item["size"]), item["sha256"] or item["blob"]) for item in row.manifest["files"]
        )
        return format_html_join("", '<div style="overflow-wrap: anywhere">{}, {} <code>{}</code></div>', told)

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False
