"""Usage records: to read, never to write."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from catalog import selectors as catalog
from catalog.services import access
from llmgw_site.lib.units import format_seconds
from routing import selectors
from routing.domain.endpoints import ENDPOINTS
from routing.models import UsageRecord


class _Endpoint(admin.SimpleListFilter):
    """Of those there are: asking which the records have would read them all."""

    title, parameter_name = "endpoint", "endpoint"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in ENDPOINTS]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset.filter(endpoint=self.value()) if self.value() else queryset


class _Model(admin.SimpleListFilter):
    """As it was asked for, of those in the catalogue that the user may see."""

    title, parameter_name = "model", "model_asked"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        seen = access.reach(request.user, "catalog.view_model").of_rows(catalog.model_rows(), access.IN_SCOPE)
        return [(name, name) for name in seen.order_by("name").values_list("name", flat=True)]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset.filter(model_asked=self.value()) if self.value() else queryset


@admin.register(UsageRecord)
class UsagePages(ModelAdmin):  # type: ignore[misc]
    """Newest first; a dash is what is not known."""

    list_display = [
        "started_at", "model_asked", "endpoint", "outcome", "finish_reason", "status", "tokens_in", "tokens_out",
        "first_token", "total", "key_prefix", "request_id",
    ]  # fmt: skip
    list_filter = ["started_at", "outcome", _Endpoint, _Model]
    search_fields = ["request_id"]  # what is looked for in which column: get_search_results
    search_help_text = "The id of a request, a record or a project; a key by its id, its name or its first characters."
    paginator = selectors.Pages
    show_full_result_count = False
    list_fullwidth = True

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The theme offers to show all where that is not what is shown; what all are is not counted."""
        found = super().get_changelist_instance(request)
        if not (found.query or found.has_active_filters):
            found.full_result_count = found.result_count
        return found

    @admin.display(description="Tokens in", ordering="prompt_tokens")
    def tokens_in(self, row: UsageRecord) -> str | None:
        return _counted(row.prompt_tokens, estimated=row.estimated and row.completion_tokens is None)

    @admin.display(description="Tokens out", ordering="completion_tokens")
    def tokens_out(self, row: UsageRecord) -> str | None:
        return _counted(row.completion_tokens, estimated=row.estimated)

    @admin.display(description="First token", ordering="first_token_s")
    def first_token(self, row: UsageRecord) -> str | None:
        return None if row.first_token_s is None else format_seconds(row.first_token_s)

    @admin.display(description="Total", ordering="total_s")
    def total(self, row: UsageRecord) -> str | None:
        return None if row.total_s is None else format_seconds(row.total_s)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Whole ids only: there are indexes for these, and for parts of them there are none."""
        text = search_term.strip()
        if not text:
            return queryset, False
        keys = catalog.keys_called(text)
        ids = Q(pk=text) | Q(request_id=text) | Q(key_id=text) | Q(project_id=text) | Q(key_id__in=keys)
        return queryset.filter(ids), False

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


def _counted(tokens: int | None, *, estimated: bool) -> str | None:
    return f"{tokens} (estimated)" if estimated and tokens is not None else None if tokens is None else str(tokens)
