"""The adapters on a model's card: one is added by a form, and removed by a button that asks again."""

from __future__ import annotations

import re

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from catalog import selectors as catalog
from catalog.services import actors, adapter_updates, adapters
from cluster.services import updates
from llmgw_site.console import access, models, selectors
from llmgw_site.console.theme import MAY_SEE_MODEL
from llmgw_site.console.updates import NAMED, origin_set
from llmgw_site.lib.errors import Kind, Refused

FIELDS = ("source", "name", "file", "scale")
MAY_ADD, MAY_REMOVE = ("catalog.add_adapter",), ("catalog.delete_adapter",)
MAY_UPDATE = ("catalog.change_adapter", "cluster.add_job")
JOBS = {"update": "adapter_update", "rollback": "adapter_rollback"}
"""Kinds of the jobs that a button opens."""


@access.page(*MAY_SEE_MODEL, *MAY_ADD)
@require_http_methods(["GET", "HEAD", "POST"])
def add(request: HttpRequest, model_id: str) -> HttpResponse:
    """Add one: the source is a path, or OWNER/REPOSITORY. A refusal is shown in the form as it was filled in."""
    if request.method != "POST":
        return redirect("console:model", model_id)
    row = _model(model_id)
    given = {name: request.POST.get(name, "").strip().replace("\x00", "\ufffd")[:1024] for name in FIELDS}
    source = given["source"]
    name = given["name"] or source.rpartition("/")[2].removesuffix(".gguf")
    where = {"path": source} if source.startswith("/") else {"repository": source, "file": given["file"]}
    try:
        if not source:
            text = "source: write the path of a file on the nodes, or OWNER/REPOSITORY of the registry."
            raise Refused(Kind.INVALID, "invalid_value", text, param="source")
        adapters.add(actor=actors.of_request(request), model=row, name=name, scale=_scale(given["scale"]), **where)
    except Refused as refused:
        named = {"path": "source", "repository": "source"}
        return models.refused_card(request, model_id, "adapter", refused, named)
    messages.success(request, f"{name} is loaded by every replica of {row.name} now, one after the other.")
    return redirect("console:model", model_id)


@access.page(*MAY_SEE_MODEL, *MAY_REMOVE)
@require_http_methods(["GET", "HEAD", "POST"])
def remove(request: HttpRequest, model_id: str, adapter_id: str) -> HttpResponse:
    if request.method != "POST":
        return redirect("console:model", model_id)
    found = catalog.adapters().filter(model=_model(model_id), pk=adapter_id).first()
    if found is None:
        raise Http404("The model has no adapter with this id.")
    adapters.remove(actor=actors.of_request(request), adapter=found)
    messages.success(request, f"{found.name} is removed.")
    return redirect("console:model", model_id)


@access.page(*MAY_SEE_MODEL, *MAY_UPDATE)
@require_http_methods(["GET", "HEAD", "POST"])
def order(request: HttpRequest, model_id: str, adapter_id: str, verb: str) -> HttpResponse:
    """Ask for a newer file, have it, go back, or say where it comes from; a job leads to its page, a refusal is shown on the card, of
    the form in it as it was filled in."""
    if request.method != "POST":
        return redirect("console:model", model_id)
    found = catalog.adapters().filter(model=_model(model_id), pk=adapter_id).first()
    if found is None or verb not in ("check", "origin", *JOBS):
        raise Http404("The model has no such adapter, or it has no such button.")
    try:
        if verb == "origin":
            messages.success(request, origin_set(request, found))
            return redirect("console:model", model_id)
        if verb != "check":
            job = updates.begin_adapter(kind=JOBS[verb], adapter=found, actor=actors.of_request(request))
            return redirect("console:job", job.pk)
        changed = adapter_updates.look(found)
        messages.success(
            request, f"{found.name} {'has a newer file' if changed else 'is up to date'}, at {changed.commit[:12]}."
        )
    except Refused as refusal:
        if verb == "origin":
            asked = {"name": found.name, "action": request.path}
            return models.refused_card(request, model_id, "adapter_origin", refusal, NAMED, asked=asked)
        messages.error(request, f"{refusal.message} ({refusal.code})")
    return redirect("console:model", model_id)


def _model(model_id: str) -> selectors.ModelRow:
    row = selectors.model_row(model_id)
    if row is None:
        raise Http404("There is no model with this id.")
    return row


def _scale(text: str) -> float:
    if not text:
        return 1.0
    if not re.fullmatch(r"\d{1,3}([.,]\d{1,6})?", text):
        raise Refused(Kind.INVALID, "invalid_value", "scale: a number such as 0.8 is needed.", param="scale")
    return float(text.replace(",", "."))
