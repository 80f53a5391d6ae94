"""The cluster setup page: which node runs which modules, as a table of nodes and roles, saved as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from catalog.services import actors
from cluster.domain.modules import Module
from cluster.services import setup as service
from llmgw_site.console import access, forms, selectors
from llmgw_site.console.theme import MAY_CHANGE_SETUP, MAY_SEE_SETUP
from llmgw_site.lib.errors import Refused

ROLES: tuple[tuple[str, str], ...] = (
    (Module.CONTROLLER, "database, console, admin API and jobs"),
    (Module.EDGE, "the entry for clients: checks keys, hands chats to a router"),
    (Module.ROUTER, "chooses the node that answers"),
    (Module.INFERENCE, "runs engines on the node's own cores and cards"),
    (Module.CLOUD, "forwards to external providers"),
    (Module.DATA, "keeps weights and gives them to other nodes"),
)
"""Every role with what its module does, in the order of the columns."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of the table: a node and the boxes beside it. `listed`: the setup has a list for it."""

    node: selectors.SetupRow
    listed: bool
    boxes: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a form asks for. A node that is not in `nodes` shall go by its own roles."""

    tier: tuple[str, ...]
    nodes: Mapping[str, tuple[str, ...]]
    version: int | None


@access.page(*MAY_SEE_SETUP)
@require_http_methods(["GET", "HEAD"])
def page(request: HttpRequest) -> HttpResponse:
    """The setup as it stands. With `?parts` what nodes run now alone."""
    now = selectors.setup()
    if "parts" in request.GET:
        return access.fragment(request, "console/setup_parts.html", setup=now, shown=request.GET.get("shown", ""))
    return _show(request, now)


@access.page(*MAY_SEE_SETUP, *MAY_CHANGE_SETUP)
@require_POST
def save(request: HttpRequest) -> HttpResponse:
    """Keep what the form says; a refusal is shown in the form as it was filled in."""
    wish = _wish(request)
    try:
        service.put(actor=actors.of_request(request), controller_tier=wish.tier, nodes=wish.nodes, version=wish.version)
    except Refused as refusal:
        return _show(request, selectors.setup(), wish, refusal)
    messages.success(request, "Saved. Each node follows with its next heartbeat.")
    return redirect("console:setup")


@access.page(*MAY_SEE_SETUP, *MAY_CHANGE_SETUP)
@require_POST
def clear(request: HttpRequest) -> HttpResponse:
    """Forget the setup: every node goes by its own roles again."""
    try:
        service.put(actor=actors.of_request(request), controller_tier=(), nodes={})
        messages.success(request, "The setup is empty. Every node goes by its own roles.")
    except Refused as refusal:
        messages.error(request, f"{refusal.message} ({refusal.code})")
    return redirect("console:setup")


def _wish(request: HttpRequest) -> Wish:
    version = request.POST.get("version", "")
    return Wish(
        tier=tuple(request.POST.getlist("tier")),
        nodes={node_id: tuple(request.POST.getlist(f"roles-{node_id}")) for node_id in request.POST.getlist("listed")},
        version=int(version) if version.isdecimal() and len(version) < 10 else None,
    )


def _show(
    request: HttpRequest, now: selectors.SetupPage, wish: Wish | None = None, refusal: Refused | None = None
) -> HttpResponse:
    tier = now.tier if wish is None else wish.tier
    context = {
        "setup": now,
        "roles": ROLES,
        "tier": _boxes(tier),
        "lines": [_line(row, wish) for row in now.rows],
        "refused": refusal and forms.refusal(refusal, form="setup", fields=("controller_tier",)),
        "may_change": request.user.has_perms(MAY_CHANGE_SETUP),  # type: ignore[union-attr]
        "shown": len(now.rows),
    }
    return access.show(request, "console/setup.html", "Cluster setup", **context)


def _line(row: selectors.SetupRow, wish: Wish | None) -> Line:
    """A node's boxes: as the form had them, else as the setup has them, else its own roles to begin from."""
    listed: Sequence[str] | None = row.assigned if wish is None else wish.nodes.get(row.id)
    return Line(node=row, listed=listed is not None, boxes=_boxes(row.own if listed is None else listed))


def _boxes(roles: Iterable[str]) -> tuple[tuple[str, bool], ...]:
    there = set(roles)
    return tuple((name, name in there) for name, _ in ROLES)
