"""Whether the files of adapters changed where they come from, and what follows them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from catalog.domain.adapters import WEIGHTS, AdapterFacts, vet
from catalog.domain.changes import Change, carried
from catalog.domain.facts import ModelFacts, facts_from_dict
from catalog.domain.manifests import manifest_from_dict
from catalog.domain.repository import FileSet, Format
from catalog.models import Adapter, Version
from catalog.services import adapter_files, adapters, origins
from catalog.services.origins import Known
from catalog.services.registry import Seen
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)
AWAY = ("registry_limited", "registry_unreachable", "registry_failed")


@dataclass(frozen=True, kw_only=True)
class Next:
    """What follows an adapter's file. `changed`: files of it that are others now; `facts`: what the new one says of itself."""

    seen: Seen
    files: FileSet
    facts: AdapterFacts
    as_version: ModelFacts
    changed: tuple[str, ...]


def needed(adapter: Adapter) -> Known:
    """Where an adapter comes from. Raises Refused `origin_unknown`."""
    found = origins.known(adapter)
    if found is None:
        text = f"nobody knows where the adapter {adapter.name} comes from: it is a file on the nodes; `llmgw model origin {adapter.name}` looks for it"
        raise Refused(Kind.CONFLICT, "origin_unknown", text)
    return found


def look(adapter: Adapter) -> Change:
    """Ask the registry whether an adapter's files changed there, and keep the answer. Raises Refused `origin_unknown`, or as the registry
    refuses; the refusal is kept too."""
    return origins.asked(needed(adapter), note=partial(_note, adapter))


def _note(adapter: Adapter, **values: Any) -> None:
    Adapter.objects.filter(pk=adapter.pk).update(**values, checked_at=Now())


def settled(adapter: Adapter, version: Version | None) -> None:
    """It is about to be this version: of the last look stays what it still tells, as `origins.settled`."""
    told, left = None, adapter.version
    if left is not None and version is not None and adapter.checked_at is not None and not adapter.code:
        told = carried(manifest_from_dict(version.manifest), adapter.newest, manifest_from_dict(left.manifest))
    values = {"checked_at": None, "newest": ""} if told is None else {}
    Adapter.objects.filter(pk=adapter.pk).update(**values, changed=list(told or ()), code="", message="")


def check_all(*, older_than: float, most: int = 20) -> tuple[str, ...]:
    """Ask for the adapters that were asked for longer ago than so many seconds; the names of those that changed. As
    `origins.check_all`."""
    before = timezone.now() - timedelta(seconds=older_than)
    rows = Adapter.objects.filter(Q(checked_at=None) | Q(checked_at__lt=before), model__enabled=True)
    changed: list[str] = []
    told = Q(version__registry__gt="") | Q(origin__repository__gt="")
    for row in rows.filter(told).select_related("version").order_by("name")[:most]:
        try:
            changed += [row.name] if look(row) else []
        except Refused as refused:
            event(
                log,
                "update_check_failed",
                level=logging.WARNING,
                adapter=row.name,
                code=refused.code,
                reason=refused.message,
            )
            if refused.code in AWAY:
                break
    return tuple(changed)


def standings(model_ids: Sequence[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """How each adapter stands to its origin, by model and name; of all models, or these only. One query."""
    rows = Adapter.objects.select_related("version__origin", "previous", "origin").order_by("name")
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows.filter(model__in=model_ids) if model_ids else rows:
        found.setdefault(row.model_id, []).append({
            "id": row.pk, "name": row.name, **origins.come_from(row), "checked_at": row.checked_at, "newest": row.newest,
            "changed": row.changed, "code": row.code, "message": row.message,
            "previous": row.previous.name if row.previous else "",
        })  # fmt: skip
    return found


def follow(adapter: Adapter, revision: str = "") -> Next | None:
    """What takes the place of an adapter's file, at a commit or the newest, read and found to be an adapter for its model; None: it is there
    as it is here. Raises Refused: as `look`, `adapter_files.find` and `catalog.domain.adapters.vet`."""
    found, origin = look(adapter), needed(adapter)
    if not found:
        return None
    format = origin.manifest.format
    named = origin.manifest.first if format is Format.GGUF else WEIGHTS
    seen, chosen, facts = adapter_files.find(origin.repository, revision or found.commit, file=named, formats=[format])
    model = adapter.model
    what = f"{chosen.first.path} of {seen.card.id} at {seen.card.commit[:12]}"
    vet(
        facts, facts_from_dict(model.facts), engines=adapters.engines(model), scale=adapter.scale, what=what, name=model.name
    )  # fmt: skip
    as_version = adapters.as_version(facts, chosen.size)
    return Next(seen=seen, files=chosen, facts=facts, as_version=as_version, changed=found.files)
