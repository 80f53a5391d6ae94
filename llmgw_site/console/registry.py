"""The pages *Find a model*: search the registry, and see how the files of a repository would run on this cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from catalog.selectors import held_repositories
from catalog.services import registry
from cluster import selectors
from cluster.domain.board import Board
from cluster.domain.offers import plan, variant
from cluster.selectors.speeds import speeds
from llmgw_site.console import access, serving
from llmgw_site.console.theme import MAY_FIND_MODELS, MAY_SERVE_MODELS
from llmgw_site.lib.errors import Refused

FORMATS = (("gguf", "GGUF"), ("safetensors", "safetensors"), ("", "any format"))


@access.page(*MAY_FIND_MODELS)
@require_http_methods(["GET", "HEAD"])
def index(request: HttpRequest) -> HttpResponse:
    """The search, `?search=&file_format=&adapters_of=&after=`. Nothing is asked before there are words."""
    words = {name: request.GET.get(name, "")[:2000] for name in ("search", "file_format", "adapters_of", "after")}
    context: dict[str, Any] = {"words": words, "formats": FORMATS, "asked": any(words.values()), "page": None}
    try:
        if context["asked"]:
            page = registry.search(
                text=words["search"],
                format=words["file_format"],
                adapters_of=words["adapters_of"],
                after=words["after"],
            )
            context["held"] = held_repositories(card.id for card in page.repositories)
            context |= {"page": page, "next": urlencode({**words, "after": page.after}) if page.after else ""}
    except Refused as refused:
        context |= {"refusal": refused, "said": refused.message.rstrip(".")}
    return access.show(request, "console/registry.html", "Find a model", **context)


@access.page(*MAY_FIND_MODELS)
@require_http_methods(["GET", "HEAD", "POST"])
def repository(request: HttpRequest, ref: str) -> HttpResponse:
    """One repository, and how each of its models would run; a POST is one of its forms *Serve* and leads to the job. What
    cannot be planned is still described, and a form that is refused is shown as it was filled in."""
    may_serve = request.user.has_perms(MAY_SERVE_MODELS)  # type: ignore[union-attr]
    context: dict[str, Any] = {"ref": ref, "card": None, "plans": (), "may_serve": may_serve}
    if request.method == "POST":
        if not may_serve:
            raise PermissionDenied(f"This needs the permission {' and '.join(MAY_SERVE_MODELS)}.")
        try:
            return redirect("console:job", serving.open_job(request, ref))
        except Refused as refused:
            context |= serving.refused(request, refused)
    try:
        context |= {"card": registry.look(ref).card}
        seen, shapes = registry.shapes(ref)
        board = Board(selectors.world(selectors.database_now()))
        variants = [variant(item, facts, seen.projectors) for item, facts in shapes]
        names = {room.node.id: room.node.name for room in board.by_index}
        plans = [
            (
                found,
                [(offer, [names[share.node_id] for share in offer.shares]) for offer in found.offers],
                serving.form(seen.card.id, found, seen.projectors),
            )
            for found in plan(board, variants, speeds=speeds(seen.card.id))
        ]
        context |= {"seen": seen, "plans": plans, "facts": shapes[0][1] if shapes else None}
    except Refused as refused:
        context |= {"refusal": refused, "said": refused.message.rstrip(".")}
    told = context.get("refused")
    if told is not None and told.form not in [order["file"] for *_, order in context["plans"] if order["ways"]]:
        context["elsewhere"] = replace(told, form="elsewhere", at="")  # there is no form to show it in
    return access.show(request, "console/registry_model.html", f"Repository {ref}", **context)
