"""The nodes page: every machine with what runs there, maintenance, and taking one out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from catalog.services import actors
from cluster.services import maintenance
from cluster.services import nodes as service
from llmgw_site.console import access, forms, selectors
from llmgw_site.console.theme import (
    MAY_ADD_JOIN_TOKENS,
    MAY_CHANGE_NODES,
    MAY_REMOVE_NODES,
    MAY_SEE_JOIN_TOKENS,
    MAY_SEE_NODES,
)
from llmgw_site.lib.errors import Kind, Refused

PER_PAGE = 20
FILTERS = (
    ("", "All"),
    ("online", "Online"),
    ("stale", "Stale"),
    ("offline", "Offline"),
    ("maintenance", "Maintenance"),
)
FORMS = {"maintain": ("reason", "card", "verb"), "remove": ("reason",)}
NAMED = {"why": "reason"}
"""Fields of the forms, the one to look at first in front; and what refusals call otherwise."""
VERBS = {"cordon": maintenance.cordon, "drain": maintenance.drain}


@access.page(*MAY_SEE_NODES)
def index(request: HttpRequest) -> HttpResponse:
    """All nodes by name; `?state=` and `?name=` narrow them, `?page=` turns pages. With `?parts` what changes alone."""
    context = _context(request, request.GET)
    if "parts" in request.GET:
        return access.fragment(request, "console/nodes_live.html", **context)
    return access.show(request, "console/nodes.html", "Nodes", **context)


def _context(request: HttpRequest, query: Mapping[str, str]) -> dict[str, Any]:
    only = query.get("state", "")
    if only not in dict(FILTERS):
        only = ""
    name = query.get("name", "").strip()[:100]
    number = query.get("page", "1")
    page = max(1, int(number)) if number.isdecimal() and len(number) < 7 else 1
    found = selectors.machines(only=only, name=name, offset=(page - 1) * PER_PAGE, limit=PER_PAGE)
    may, path = request.user.has_perms, reverse("console:nodes")  # type: ignore[union-attr]
    return {
        "machines": found.machines,
        "total": found.total,
        "every": found.counts[""],
        "filters": [
            (label, found.counts[value], path + _query(value, name), value == only) for value, label in FILTERS
        ],
        "only": only,
        "name": name,
        "first": (page - 1) * PER_PAGE + 1,
        "last": (page - 1) * PER_PAGE + len(found.machines),
        "before": path + _query(only, name, page - 1) if page > 1 else None,
        "after": path + _query(only, name, page + 1) if page * PER_PAGE < found.total else None,
        "here": _query(only, name, page),
        "live": path + _query(only, name, page, parts=True),
        "may_change": may(MAY_CHANGE_NODES),
        "may_remove": may(MAY_REMOVE_NODES),
        "may_add": may((*MAY_SEE_JOIN_TOKENS, *MAY_ADD_JOIN_TOKENS)),
        "may_replicas": may(("cluster.view_replica",)),
    }


def _query(only: str, name: str, page: int = 1, *, parts: bool = False) -> str:
    pairs = {"state": only, "name": name, "page": page if page > 1 else "", "parts": 1 if parts else ""}
    return "?" + urlencode({key: value for key, value in pairs.items() if value})


def _back(request: HttpRequest) -> HttpResponse:
    """To the list as the form was sent from it."""
    query = request.POST.get("back", "")
    return redirect(reverse("console:nodes") + (query if query.startswith("?") else ""))


def _refused(request: HttpRequest, node_id: str, refused: Refused, form: str) -> HttpResponse:
    """The list as the form was sent from it, with the form as it was filled in; a message, where the node is not on it any more or
    nothing was filled in."""
    context = _context(request, QueryDict(request.POST.get("back", "").removeprefix("?")))
    node = next((item.node for item in context["machines"] if item.node.id == node_id), None)
    if node is None or form not in FORMS:
        messages.error(request, f"{refused.message} ({refused.code})")
        return _back(request)
    typed = forms.typed(request, FORMS[form])
    context |= {"asked": node, "typed": typed, "refused": forms.refusal(refused, form=form, fields=typed, named=NAMED)}
    return access.show(request, "console/nodes.html", "Nodes", **context)


def _reason(request: HttpRequest) -> str:
    """As much of it as the admin API takes."""
    return request.POST.get("reason", "").strip()[:1000].replace("\x00", "\ufffd")


@access.page(*MAY_SEE_NODES, *MAY_CHANGE_NODES)
@require_http_methods(["GET", "HEAD", "POST"])
def maintain(request: HttpRequest, node_id: str) -> HttpResponse:
    """Cordon, drain or uncordon a node, or one card of it; a refusal is shown in the form as it was filled in. Who comes here without a
    form is led to the list."""
    if request.method != "POST":
        return redirect("console:nodes")
    verb, card, who = request.POST.get("verb", ""), request.POST.get("card", ""), actors.of_request(request)
    what = f"The card {card}" if card else "The node"
    try:
        if verb == "uncordon":
            maintenance.uncordon(actor=who, node_id=node_id, card=card)
            messages.success(request, f"{what} takes replicas again.")
        elif verb in VERBS:
            VERBS[verb](actor=who, node_id=node_id, why=_reason(request), card=card)
            done = "nothing new is placed there" if verb == "cordon" else "its replicas move first, then it is empty"
            messages.success(request, f"{what} is {'cordoned' if verb == 'cordon' else 'drained'}: {done}.")
        else:
            raise Refused(Kind.INVALID, "invalid_value", "verb: choose cordon or drain.", param="verb")
    except Refused as refused:
        return _refused(request, node_id, refused, verb if verb == "uncordon" else "maintain")
    return _back(request)


@access.page(*MAY_SEE_NODES, *MAY_REMOVE_NODES)
@require_http_methods(["GET", "HEAD", "POST"])
def remove(request: HttpRequest, node_id: str) -> HttpResponse:
    """Take a node out of the cluster; as `maintain`."""
    if request.method != "POST":
        return redirect("console:nodes")
    try:
        node = service.remove(node_id=node_id, actor=actors.of_request(request), why=_reason(request))
        messages.success(request, f"{node.name} is out of the cluster. Its next call is refused.")
    except Refused as refused:
        return _refused(request, node_id, refused, "remove")
    return _back(request)
