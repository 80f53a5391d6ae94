"""Letting machines in: the page that makes a join token, shows its command once, and lists the open ones."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from catalog.services import actors
from cluster.services import joining
from llmgw_site.console import access, forms, selectors
from llmgw_site.console.theme import MAY_ADD_JOIN_TOKENS, MAY_REVOKE_JOIN_TOKENS, MAY_SEE_JOIN_TOKENS
from llmgw_site.lib.addresses import unreachable_controller
from llmgw_site.lib.errors import Refused

LIVES = ((1.0, "1 hour"), (24.0, "24 hours"), (168.0, "7 days"))
"""How long a join token may live, in hours: what the page offers."""


@access.page(*MAY_SEE_JOIN_TOKENS, *MAY_ADD_JOIN_TOKENS)
@require_http_methods(["GET", "HEAD", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    """How a machine joins; a POST makes a token, and its answer is the only page that ever shows it."""
    context: dict[str, Any] = {
        "tokens": selectors.open_tokens,
        "may_revoke": request.user.has_perms(MAY_REVOKE_JOIN_TOKENS),  # type: ignore[union-attr]
    }
    if "parts" in request.GET:
        return access.fragment(request, "console/node_add_parts.html", **context)
    context |= {"lives": [(f"{hours:g}", words) for hours, words in LIVES], "most": joining.MAX_USES}
    context["typed"] = {"uses": "1", "hours": "24"}
    if request.method == "POST":
        try:
            issued = joining.issue(actor=actors.of_request(request), **_wishes(request))
            context |= {
                "command": issued.command,
                "made": issued.token,
                "unreachable": unreachable_controller(issued.command),
            }
        except Refused as refusal:
            typed = forms.typed(request, ("uses", "hours"))
            context |= {"typed": typed, "refused": forms.refusal(refusal, form="token", fields=typed)}
    return access.show(request, "console/node_add.html", "Add a node", **context)


def _wishes(request: HttpRequest) -> dict[str, Any]:
    """`uses` and `hours` of the form; what is no number is left to the service to refuse."""
    uses, hours = request.POST.get("uses", ""), request.POST.get("hours", "")
    lives = {f"{value:g}": value for value, _ in LIVES}
    return {"uses": int(uses) if uses.isdecimal() and len(uses) < 7 else 0, "hours": lives.get(hours, 0.0)}


@access.page(*MAY_SEE_JOIN_TOKENS, *MAY_REVOKE_JOIN_TOKENS)
@require_POST
def revoke(request: HttpRequest, token_id: str) -> HttpResponse:
    """Make a join token worthless."""
    try:
        joining.revoke(actor=actors.of_request(request), token_id=token_id)
        messages.success(request, "The join token is worth nothing from now on.")
    except Refused as refusal:
        messages.error(request, f"{refusal.message} ({refusal.code})")
    return redirect("console:node-add")
