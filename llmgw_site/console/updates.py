"""The buttons of a model's card that are about its weights: ask for newer ones, update, go back, say where they come from; and measure it."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from catalog import selectors as catalog
from catalog.services import actors, origins, tracing
from cluster.selectors.kept import weights_sizes
from cluster.services import updates
from llmgw_site.console import access, models
from llmgw_site.console.theme import MAY_SEE_MODEL, MAY_UPDATE_MODELS
from llmgw_site.lib.errors import Kind, Refused

JOBS = ("update", "rollback", "bench")
ORIGIN = ("repository", "commit")
NAMED = {"revision": "commit"}
"""Fields of the form of an origin, and what refusals call otherwise."""
FORMS = {"origin": NAMED, "bench": {}}
"""Of these there are fields."""


@access.page(*MAY_SEE_MODEL, *MAY_UPDATE_MODELS)
@require_http_methods(["GET", "HEAD", "POST"])
def act(request: HttpRequest, model_id: str, verb: str) -> HttpResponse:
    """One of the buttons; a job leads to its page, a refusal is shown on the card, of a form in it as it was filled in."""
    if request.method != "POST":
        return redirect("console:model", model_id)
    model = catalog.models_with_profiles().select_related("version", "previous").filter(id=model_id).first()
    if model is None:
        raise Http404("There is no model with this id.")
    actor = actors.of_request(request)
    try:
        if verb == "check":
            found = origins.look(model)
            count = len(found.files)
            files = "1 file" if count == 1 else f"{count} files"
            text = f"{files} of {model.name} changed" if found else f"{model.name} is up to date"
            messages.success(request, f"{text}, at {found.commit[:12]}.")
        elif verb == "origin":
            messages.success(request, origin_set(request, model, weights_sizes(model)))
        elif verb in JOBS:
            job = updates.begin(
                kind=verb, model=model, args=_objective(request) if verb == "bench" else {}, actor=actor
            )
            return redirect("console:job", job.pk)
        else:
            raise Http404("There is no such button.")
    except Refused as refusal:
        if verb in FORMS:
            return models.refused_card(request, model_id, verb, refusal, FORMS[verb])
        messages.error(request, f"{refusal.message} ({refusal.code})")
    return redirect("console:model", model_id)


def origin_set(request: HttpRequest, of: origins.Subject, sizes: Mapping[str, int | None] | None = None) -> str:
    """As a form says: a repository that is named, or one that is looked for; in words. Raises Refused."""
    repository, commit = (request.POST.get(name, "").strip()[:200].replace("\x00", "") for name in ORIGIN)
    actor = actors.of_request(request)
    if repository:
        known = origins.give(actor=actor, of=of, repository=repository, commit=commit, sizes=sizes)
    else:
        known = tracing.trace(actor=actor, of=of, sizes=sizes)
    return f"{of.name} comes from {known.repository} at {known.commit[:12]}."


def _objective(request: HttpRequest) -> dict[str, float]:
    text = request.POST.get("ttft", "").strip().removesuffix("s")
    if not text:
        return {}
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= 600:
        raise Refused(
            Kind.INVALID,
            "invalid_value",
            "seconds until the first token: write a number from 0.01 to 600.",
            param="ttft",
        )
    return {"ttft": value}
