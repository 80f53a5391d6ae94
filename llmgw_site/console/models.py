"""The card of one model: how it stands, room for more, and the forms that scale, size, class, restart and retry it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from catalog.choices import CLASSES
from catalog.services import actors, holders, served
from cluster.services import standing
from llmgw_site.console import access, forms, selectors
from llmgw_site.console.selectors import ModelRow
from llmgw_site.console.theme import MAY_CHANGE_MODEL, MAY_FIND_MODELS, MAY_SEE_MODEL, MAY_UPDATE_MODELS
from llmgw_site.lib.errors import Kind, Refused


@access.page(*MAY_SEE_MODEL)
@require_http_methods(["GET", "HEAD"])
def card(request: HttpRequest, model_id: str) -> HttpResponse:
    """One model. With `?parts` what changes alone."""
    return _card(request, model_id)


@access.page(*MAY_SEE_MODEL, *MAY_CHANGE_MODEL)
@require_http_methods(["GET", "HEAD", "POST"])
def order(request: HttpRequest, model_id: str, verb: str) -> HttpResponse:
    """One of the card's forms; a refusal is shown in it as it was filled in. Who comes here without a form is led to the card."""
    if request.method != "POST":
        return redirect("console:model", model_id)
    row = selectors.model_row(model_id)
    if row is None:
        raise Http404("There is no model with this id.")
    try:
        messages.success(request, ORDERS[verb](request, row, actors.of_request(request)))
    except Refused as refusal:
        return refused_card(request, model_id, verb, refusal, NAMED.get(verb, forms.NONE))
    return redirect("console:model", model_id)


def refused_card(
    request: HttpRequest, model_id: str, form: str, refused: Refused, named: Mapping[str, str] = forms.NONE, **more: Any
) -> HttpResponse:
    """The card with one of its forms as it was filled in, and why it was refused. For the forms of other files too; `more`: what else
    these show."""
    return _card(request, model_id, form, refused, named, **more)


def _card(
    request: HttpRequest,
    model_id: str,
    form: str = "",
    refused: Refused | None = None,
    named: Mapping[str, str] = forms.NONE,
    **more: Any,
) -> HttpResponse:
    found = selectors.model_card(model_id)
    if found is None:
        raise Http404("There is no model with this id.")
    fields, user = _fields(found.row), request.user
    context: dict[str, Any] = {
        "card": found,
        "model": found.row,
        "may_change": user.has_perms(MAY_CHANGE_MODEL),  # type: ignore[union-attr]
        "may_find": user.has_perms(MAY_FIND_MODELS),  # type: ignore[union-attr]
        "may_add_adapters": not found.row.external and user.has_perms(("catalog.add_adapter",)),  # type: ignore[union-attr]
        "may_remove_adapters": user.has_perms(("catalog.delete_adapter",)),  # type: ignore[union-attr]
        "may_update_adapters": user.has_perms(("catalog.change_adapter", "cluster.add_job")),  # type: ignore[union-attr]
        "adapters": selectors.ModelAdapters(model_id),
        "weights": selectors.ModelWeights(model_id, found.row.name),
        "may_update": user.has_perms(MAY_UPDATE_MODELS),  # type: ignore[union-attr]
        "classes": [name for name, _ in CLASSES],
        "scopes": selectors.scopes,  # asked where there is a form
        "fields": fields,
        "usual": {name: getattr(settings.CONFIG, name) for name in ("queue_length", "queue_wait")},
        **more,
    }
    if "parts" in request.GET:
        return access.fragment(request, "console/model_parts.html", **context)
    if refused is not None:
        of_form = fields.setdefault(form, {})
        of_form |= forms.typed(request, of_form)
        context["refused"] = forms.refusal(refused, form=form, fields=of_form, named=named)
    return access.show(request, "console/model.html", f"Model {found.row.name}", **context)


def _fields(row: ModelRow) -> dict[str, dict[str, Any]]:
    """What the fields of each form have in them, the one to look at first in front."""
    return {
        "scale": {"replicas": row.replicas, "max_replicas": row.max_replicas, "rest_after": row.rest_after, "why": ""},
        "target": {"tps": ""},
        "class": {"class": row.priority_class},
        "owner": {"scope": row.project_id or row.team_id or row.organisation_id or ""},
        "queue": {
            "fallbacks": "\n".join(row.fallbacks),
            "queue_length": "" if row.queue_length is None else row.queue_length,
            "queue_wait": "" if row.queue_wait is None else f"{row.queue_wait:g}",
            "why": "",
        },
        "restart": {"in_place": "", "why": ""},
        "adapter": {"source": "", "file": "", "name": "", "scale": ""},
        "origin": {"repository": "", "commit": ""},
        "adapter_origin": {"repository": "", "commit": ""},
        "bench": {"ttft": ""},
    }


def _scale(request: HttpRequest, row: ModelRow, actor: str) -> str:
    changes: dict[str, Any] = {
        "replicas": _number(request, "replicas"),
        "max_replicas": _number(request, "max_replicas"),
        "rest_after": _number(request, "rest_after"),
    }
    if changes["replicas"] is None:
        raise Refused(Kind.INVALID, "invalid_value", "replicas: write how many shall always run.", param="replicas")
    standing.scale(actor=actor, model=row, why=_why(request), **changes)
    return f"The scaling of {row.name} is set."


def _class(request: HttpRequest, row: ModelRow, actor: str) -> str:
    served.update(actor=actor, model=row, why=_why(request), priority_class=request.POST.get("class", ""))
    return f"The class of {row.name} is set."


def _target(request: HttpRequest, row: ModelRow, actor: str) -> str:
    tps = _number(request, "tps")
    if not tps:
        raise Refused(Kind.INVALID, "invalid_value", "tokens/s: write a number above 0.", param="tps")
    sized = standing.target(actor=actor, model=row, tps=float(tps), why=_why(request))
    return f"{row.name} has {selectors.replicas_words(sized.replicas)} for {tps:g} tokens/s, each measured to give {sized.each:g}."


def _restart(request: HttpRequest, row: ModelRow, actor: str) -> str:
    count = standing.restart(actor=actor, model=row, in_place="in_place" in request.POST, why=_why(request))
    if count == 1:
        return f"The replica of {row.name} is replaced."
    return f"{count} replicas of {row.name} are replaced, one after the other."


def _retry(request: HttpRequest, row: ModelRow, actor: str) -> str:
    standing.retry(actor=actor, model=row, why=_why(request))
    return f"{row.name} is tried again."


def _owner(request: HttpRequest, row: ModelRow, actor: str) -> str:
    ref = request.POST.get("scope", "")
    if not ref:
        served.update(actor=actor, model=row, why=_why(request), **dict.fromkeys(served.OWNERS))
        return f"{row.name} belongs to nobody."
    scope = holders.scope(ref)
    kind = str(scope._meta.model_name)
    served.update(actor=actor, model=row, why=_why(request), **{kind: scope})
    return f"{row.name} belongs to the {kind} {scope.name}."


def _queue(request: HttpRequest, row: ModelRow, actor: str) -> str:
    """Of an external model a provider says how many it takes."""
    names = re.split(r"[\n,]", request.POST.get("fallbacks", ""))
    changes: dict[str, Any] = {"fallbacks": [name for name in (item.strip() for item in names) if name]}
    if not row.external:
        changes |= {name: _number(request, name) for name in ("queue_length", "queue_wait")}
    served.update(actor=actor, model=row, why=_why(request), **changes)
    return f"What becomes of requests that {row.name} has no room for is set."


ORDERS = {
    "queue": _queue,
    "owner": _owner,
    "scale": _scale,
    "class": _class,
    "target": _target,
    "restart": _restart,
    "retry": _retry,
}


NAMED = {"class": {"priority_class": "class"}, "owner": dict.fromkeys(("", *served.OWNERS), "scope")}
"""Fields that refusals call otherwise."""
FRACTIONS = ("rest_after", "tps", "queue_wait")
"""Fields of numbers that need not be whole."""


def _why(request: HttpRequest) -> str:
    return request.POST.get("why", "").strip()[:1000].replace("\x00", "\ufffd")


def _number(request: HttpRequest, name: str) -> float | int | None:
    """What a field of a form says; None where it is empty. Raises Refused."""
    text = request.POST.get(name, "").strip()
    if not text:
        return None
    if text.isdecimal() and len(text) < 10:
        return int(text)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if name not in FRACTIONS or not 0 < value < 1e10:
        what = "a number above 0" if name in FRACTIONS else "a whole number from 0 on"
        raise Refused(Kind.INVALID, "invalid_value", f"{name}: {what} is needed.", param=name)
    return value
