"""The quotas page: what parts of the tenancy tree are guaranteed, may have and hold; set and removed by forms."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from catalog.services import actors
from cluster.services import quotas as service
from llmgw_site.console import access, selectors
from llmgw_site.console.theme import MAY_CHANGE_QUOTAS, MAY_SEE_QUOTAS
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import parse_bytes

PARTS = ("guarantee", "limit")
MOST = (1 << 53) - 1
"""Of anything; the API takes no more either."""


@access.page(*MAY_SEE_QUOTAS)
@require_http_methods(["GET", "HEAD"])
def index(request: HttpRequest) -> HttpResponse:
    """All scopes that have a quota. With `?parts` what changes alone."""
    context = {
        "page": selectors.quotas(),
        "may_change": request.user.has_perms(MAY_CHANGE_QUOTAS),  # type: ignore[union-attr]
    }
    if "parts" in request.GET:
        return access.fragment(request, "console/quotas_parts.html", **context)
    return access.show(request, "console/quotas.html", "Quotas", **context)


@access.page(*MAY_SEE_QUOTAS, *MAY_CHANGE_QUOTAS)
@require_http_methods(["GET", "HEAD", "POST"])
def change(request: HttpRequest) -> HttpResponse:
    """The form of one scope, `?scope=`; a refusal is shown above the form as it was filled in."""
    try:
        scope = selectors.find_scope(request.GET.get("scope", ""))
    except Refused as refusal:
        messages.error(request, f"{refusal.message} ({refusal.code})")
        return redirect("console:quotas")
    refused = None
    if request.method == "POST":
        try:
            amounts = {part: _amount(request, part) for part in PARTS}
            service.put(
                actor=actors.of_request(request), scope=scope, **amounts, why=request.POST.get("why", "")[:1000]
            )
            messages.success(request, f"The quota of {scope.name} is set.")
            return redirect("console:quotas")
        except Refused as refusal:
            refused = refusal
    context: dict[str, Any] = {
        "scope": scope,
        "kind": scope._meta.model_name,
        "fields": selectors.quota_fields(scope.pk, request.POST.dict() if refused else None),
        "refusal": refused,
        "said": refused.message.rstrip(".") if refused else "",
        "why": request.POST.get("why", ""),
    }
    answer = access.show(request, "console/quota_form.html", f"Quota of {scope.name}", **context)
    if refused is not None:
        answer.status_code = 409
    return answer


@access.page(*MAY_SEE_QUOTAS, *MAY_CHANGE_QUOTAS)
@require_POST
def remove(request: HttpRequest) -> HttpResponse:
    """Have a scope without guarantee and limit again."""
    try:
        scope = selectors.find_scope(request.GET.get("scope", ""))
        service.remove(actor=actors.of_request(request), scope=scope)
        messages.success(request, f"{scope.name} has no quota any more.")
    except Refused as refusal:
        messages.error(request, f"{refusal.message} ({refusal.code})")
    return redirect("console:quotas")


def _amount(request: HttpRequest, part: str) -> dict[str, Any]:
    """What the form names; an empty field names nothing. Raises Refused."""
    found: dict[str, Any] = {}
    for name, text in request.POST.items():
        kind, _, key = name.partition(":")
        if kind != part or not isinstance(text, str) or not text.strip():
            continue
        try:
            value = parse_bytes(text) if key == "memory" else _number(text)
            if value > MOST:
                raise ValueError("no fleet has so much")
        except ValueError as error:
            raise Refused(Kind.INVALID, "invalid_value", f"{part} of {key.removeprefix('cards:')}: {error}.") from None
        if key.startswith("cards:"):
            found.setdefault("cards", {})[key.removeprefix("cards:")] = value
        else:
            found[key] = value
    return found


def _number(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 32:
        raise ValueError(f"{text[:32]!r} is no whole number from 0 on")
    return int(text)
