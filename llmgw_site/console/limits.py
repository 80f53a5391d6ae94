"""The limits page: what keys, projects, teams and organisations may use of the endpoint; set and removed by forms."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from catalog.services import access as scoped
from catalog.services import actors
from catalog.services import limits as service
from llmgw_site.console import access
from llmgw_site.console.theme import MAY_CHANGE_LIMITS, MAY_SEE_LIMITS
from llmgw_site.lib.errors import Kind, Refused

FIELDS = (
    ("requests_per_minute", "Requests a minute", "60"),
    ("tokens_per_minute", "Tokens a minute", "100000"),
    ("parallel", "Requests at a time", "8"),
)


@access.page(*MAY_SEE_LIMITS, in_scopes=True)
@require_http_methods(["GET", "HEAD"])
def index(request: HttpRequest) -> HttpResponse:
    """All in reach that has a limit, in the order of the tree."""
    rows = service.shown(scoped.reach(request.user, MAY_SEE_LIMITS[0]))
    changes = scoped.reach(request.user, MAY_CHANGE_LIMITS[1])
    places = service.paths(changes)
    ids = {place for place, _ in places}
    context = {
        "rows": [
            {"row": row, "depth": len(row.path) - 1, "path": " / ".join(row.path), "may_change": row.id in ids}
            for row in rows
        ],
        "places": places,
        "may_change": changes.anywhere,
    }
    return access.show(request, "console/limits.html", "Limits", **context)


@access.page(*MAY_SEE_LIMITS, *MAY_CHANGE_LIMITS, in_scopes=True)
@require_http_methods(["GET", "HEAD", "POST"])
def change(request: HttpRequest) -> HttpResponse:
    """The form of one, `?of=`; a refusal is shown above the form as it was filled in."""
    try:
        of = _found(request)
    except Refused as refusal:
        messages.error(request, f"{refusal.message} ({refusal.code})")
        return redirect("console:limits")
    refused = None
    if request.method == "POST":
        try:
            figures = {name: _number(request, name, title) for name, title, _ in FIELDS}
            service.put(actor=actors.of_request(request), of=of, **figures, why=request.POST.get("why", "")[:1000])
            messages.success(request, f"The limit of {of.name} is set.")
            return redirect("console:limits")
        except Refused as refusal:
            refused = refusal
    row = service.of_whom(of)
    context: dict[str, Any] = {
        "of": of,
        "kind": service.kind(of),
        "path": " / ".join(service.path(of)),
        "fields": [
            {
                "name": name,
                "title": title,
                "example": example,
                "value": request.POST.get(name, "") if refused else _shown(getattr(row, name, None)),
            }
            for name, title, example in FIELDS
        ],
        "refusal": refused,
        "said": refused.message.rstrip(".") if refused else "",
        "why": request.POST.get("why", ""),
    }
    answer = access.show(request, "console/limit_form.html", f"Limit of {of.name}", **context)
    if refused is not None:
        answer.status_code = 409
    return answer


@access.page(*MAY_SEE_LIMITS, *MAY_CHANGE_LIMITS, in_scopes=True)
@require_POST
def remove(request: HttpRequest) -> HttpResponse:
    """Limit it no longer."""
    try:
        of = _found(request)
        service.remove(actor=actors.of_request(request), of=of)
        messages.success(request, f"{of.name} has no limit any more.")
    except Refused as refusal:
        messages.error(request, f"{refusal.message} ({refusal.code})")
    return redirect("console:limits")


def _found(request: HttpRequest) -> service.Limited:
    return service.find_for(request.user, request.GET.get("of", ""), see=MAY_SEE_LIMITS[0], change=MAY_CHANGE_LIMITS)


def _shown(value: int | None) -> str:
    return "" if value is None else str(value)


def _number(request: HttpRequest, name: str, title: str) -> int | None:
    """An empty field: not limited. Raises Refused."""
    text = str(request.POST.get(name, "")).strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > 16:
        raise Refused(
            Kind.INVALID, "invalid_value", f"{title}: {text[:32]!r} is no whole number from 0 on.", param=name
        )
    return int(text)
