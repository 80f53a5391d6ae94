"""The aliases page: each split drawn as it is set and as it was answered. Added and changed by the catalogue's forms."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, timedelta
from typing import Any

from django.contrib import messages
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from catalog import selectors as catalog
from catalog.services import actors
from catalog.services import aliases as service
from llmgw_site.console import access
from llmgw_site.console.theme import MAY_SEE_ALIASES, MAY_SEE_USAGE
from llmgw_site.lib.errors import Refused
from routing import selectors as routing

DAYS = 7
"""Of UTC, today included: what was answered of an alias."""
HUES = 6
"""Colours of the parts of a bar."""


@access.page(*MAY_SEE_ALIASES)
@require_http_methods(["GET", "HEAD"])
def index(request: HttpRequest) -> HttpResponse:
    """All aliases, by name."""
    rows = list(catalog.aliases())
    user: Any = request.user
    answered = _answered([row.name for row in rows]) if user.has_perms(MAY_SEE_USAGE) else None
    context = {
        "rows": [_row(row, None if answered is None else answered.get(row.name, {})) for row in rows],
        "counted": answered is not None,
        "days": DAYS,
        "may_add": user.has_perm("catalog.add_alias"),
        "may_change": user.has_perm("catalog.change_alias"),
        "may_remove": user.has_perm("catalog.delete_alias"),
    }
    return access.show(request, "console/aliases.html", "Aliases", **context)


@access.page(*MAY_SEE_ALIASES, "catalog.delete_alias")
@require_POST
def remove(request: HttpRequest, alias_id: str) -> HttpResponse:
    """Delete one."""
    try:
        alias = catalog.find(catalog.aliases(), alias_id, noun="alias")
        service.remove(actor=actors.of_request(request), alias=alias)
        messages.success(request, f"{alias.name} is removed.")
    except Refused as refusal:
        messages.error(request, f"{refusal.message} ({refusal.code})")
    return redirect("console:aliases")


def _row(alias: Any, answered: Mapping[str, int] | None) -> dict[str, Any]:
    """`split`: as it is set; `parts`: who answered, by the same colours; a fallback, or a target of before, has none."""
    targets = service.shown(alias)
    hues: dict[str, str] = {}
    for number, target in enumerate(targets):
        hues.setdefault(target.served, f"hue-{number % HUES}")
    total = sum((answered or {}).values())
    return {
        "alias": alias,
        "split": [
            {"target": target, **_share(target.share), "hue": f"hue-{number % HUES}"}
            for number, target in enumerate(targets)
        ],
        "total": total,
        "parts": [
            {"name": name, **_share(count / total), "count": count, "hue": hues.get(name, "others")}
            for name, count in sorted((answered or {}).items(), key=lambda item: -item[1])
        ],
    }


def _share(share: float) -> dict[str, Any]:
    """A share of 1, for a bar and in words."""
    told = f"{100 * share:.1f}".removesuffix(".0")
    return {
        "percent": 100 * share,
        "words": "under 0.1\N{NO-BREAK SPACE}%" if told == "0" else f"{told}\N{NO-BREAK SPACE}%",
    }


def _answered(names: Collection[str]) -> dict[str, dict[str, int]]:
    """Requests of the last days by alias and by the model that served. One query."""
    since = timezone.now().astimezone(UTC).date() - timedelta(days=DAYS - 1)
    rows = routing.days().filter(day__gte=since, model_asked__in=list(names)).order_by()
    found: dict[str, dict[str, int]] = {}
    for asked, served, count in rows.values_list("model_asked", "model_served").annotate(Sum("requests")):
        found.setdefault(asked, {})[served] = count
    return found
