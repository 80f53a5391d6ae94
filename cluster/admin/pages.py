"""What the cluster's admin pages share: rows are written by the reconciler and by agents, people read them."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from catalog.services import actors
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.units import format_bytes


class ReadPages(ModelAdmin):  # type: ignore[misc]
    """Lists and pages to read; what can be done is done by actions, each one service call."""

    list_fullwidth = True

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def each(self, request: HttpRequest, rows: Any, act: Any, done: str) -> None:
        """Do `act(row, actor)` for each row; a refusal becomes a message and stops nothing else."""
        good = 0
        for row in rows:
            try:
                act(row, actors.of(user=request.user))
                good += 1
            except Refused as refused:
                messages.error(request, refused.message)
        if good:
            messages.success(request, f"{good} {done}")


def size(count: int | None) -> str:
    """Bytes for people; a dash for what is not known."""
    return "–" if count is None else format_bytes(count)
