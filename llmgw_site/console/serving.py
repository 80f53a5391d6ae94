"""The form *Serve* of a repository's page: it opens the job that `llmgw model serve` opens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest

from catalog.domain.repository import Format, RepoFile
from catalog.domain.sources import FromRepository, source
from catalog.services import actors, served
from cluster.domain.offers import Plan
from cluster.domain.serving import default_name, way_name
from cluster.services import jobs
from llmgw_site.console import forms
from llmgw_site.lib.errors import Kind, Refused

LONGEST = 500


def form(ref: str, plan: Plan, projectors: Sequence[RepoFile] = ()) -> dict[str, Any]:
    """What a form for one file has in it: the file, a name, the ways that can be started, and the files that let it see or hear,
    the best first."""
    ways = [way_name(offer.way) for offer in plan.offers]
    sees = [item.path for item in projectors] if plan.variant.format is Format.GGUF else []
    return {
        "file": plan.variant.name,
        "name": default_name(FromRepository(repository=ref)),
        "ways": ways,
        "projectors": sees,
    }


def open_job(request: HttpRequest, ref: str) -> str:
    """The id of the job that a filled-in form asks for. Raises Refused."""
    given = {key: request.POST.get(key, "").strip()[:LONGEST] for key in ("file", "name", "way", "commit", "projector")}
    words = f"{ref}@{given['commit']}" if given["commit"] else ref
    found = source([words])
    if not isinstance(found, FromRepository):
        raise Refused(Kind.INVALID, "source_refused", f"{ref[:200]} is no repository", param="source")
    args: dict[str, Any] = {"name": served.checked_name(given["name"]), "source": [words]}
    args |= {key: given[key] for key in ("file", "way", "projector") if given[key]}
    args |= {key: True for key in ("on_demand", "fallbacks") if key in request.POST}
    return str(jobs.open(kind="serve", subject=given["name"], args=args, actor=actors.of_request(request)).pk)


def refused(request: HttpRequest, refusal: Refused) -> dict[str, Any]:
    """What stood in the form that was refused, and why it was. The form goes by its file."""
    fields = forms.typed(request, ("name", "way", "projector"))
    marks = {key: key in request.POST for key in ("on_demand", "fallbacks")}
    file = forms.typed(request, ("file",))["file"]
    return {"typed": {**fields, **marks}, "refused": forms.refusal(refusal, form=file, fields=fields)}
