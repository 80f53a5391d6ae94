"""The page *Mirror*: the weights that the cluster keeps, one row per version; added and removed by forms, and told where they come from."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from catalog import selectors as catalog
from catalog.services import actors, mirror
from cluster.selectors.kept import kept
from cluster.services import weights
from llmgw_site.console import access, forms, updates
from llmgw_site.console.theme import MAY_ADD_WEIGHTS, MAY_CHANGE_WEIGHTS, MAY_REMOVE_WEIGHTS, MAY_SEE_WEIGHTS
from llmgw_site.lib.errors import Refused

FIELDS = ("source", "quantization", "checksums")
NAMED = {"sha256": "checksums", "repository": "source", "revision": "source"}
"""Fields that refusals call otherwise."""


@access.page(*MAY_SEE_WEIGHTS)
@require_http_methods(["GET", "HEAD"])
def index(request: HttpRequest) -> HttpResponse:
    """All versions, the newest first. With `?parts` what changes alone."""
    return _page(request)


@access.page(*MAY_SEE_WEIGHTS, *MAY_ADD_WEIGHTS)
@require_http_methods(["GET", "HEAD", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    """Have one model's files fetched. A refusal is shown in the form as it was filled in."""
    if request.method != "POST":
        return redirect("console:mirror")
    words = forms.typed(request, FIELDS)
    try:
        row = mirror.add(
            actor=actors.of_request(request), source=words["source"].split(), checksums=words["checksums"].split(),
            quantization=words["quantization"].strip(),
        )  # fmt: skip
    except Refused as refusal:
        return _page(request, words=words, refused=forms.refusal(refusal, form="add", fields=FIELDS, named=NAMED))
    messages.success(request, f"{row.name} is fetched and kept.")
    return redirect("console:mirror")


@access.page(*MAY_SEE_WEIGHTS, *MAY_REMOVE_WEIGHTS)
@require_POST
def remove(request: HttpRequest, version_id: str) -> HttpResponse:
    """Keep a version no longer; refused while a model needs it."""
    row = catalog.versions().filter(id=version_id).first()
    if row is None:
        messages.success(request, "It was removed already.")
        return redirect("console:mirror")
    name = row.name
    try:
        weights.remove(actor=actors.of_request(request), version=row)
        messages.success(request, f"{name} is kept no longer.")
    except Refused as refusal:
        messages.error(request, f"{refusal.message} ({refusal.code})")
    return redirect("console:mirror")


@access.page(*MAY_SEE_WEIGHTS, *MAY_CHANGE_WEIGHTS)
@require_http_methods(["GET", "HEAD", "POST"])
def origin(request: HttpRequest, version_id: str) -> HttpResponse:
    """Say where weights from plain addresses come from, or have it looked for. A refusal is shown in the form as it was filled in."""
    if request.method != "POST":
        return redirect("console:mirror")
    row = catalog.versions().filter(id=version_id).first()
    if row is None:
        raise Http404("There is no version with this id.")
    try:
        messages.success(request, updates.origin_set(request, row))
    except Refused as refusal:
        refused = forms.refusal(refusal, form="origin", fields=updates.ORIGIN, named=updates.NAMED)
        asked = {"name": row.name, "action": reverse("console:mirror-origin", args=[row.pk])}
        return _page(request, refused=refused, asked=asked, typed=forms.typed(request, updates.ORIGIN))
    return redirect("console:mirror")


def _page(request: HttpRequest, **told: Any) -> HttpResponse:
    """`told`: of a form that was refused."""
    rows = kept()
    context: dict[str, Any] = {
        "versions": rows,
        "total": sum(row.size for row in rows),
        "may_add": request.user.has_perms(MAY_ADD_WEIGHTS),  # type: ignore[union-attr]
        "may_remove": request.user.has_perms(MAY_REMOVE_WEIGHTS),  # type: ignore[union-attr]
        "may_change": request.user.has_perms(MAY_CHANGE_WEIGHTS),  # type: ignore[union-attr]
        **told,
    }
    if "parts" in request.GET and not told:
        return access.fragment(request, "console/mirror_parts.html", **context)
    return access.show(request, "console/mirror.html", "Mirror", **context)
