"""Where the weights of models, versions and adapters come from, and whether models changed there: given by hand, and asked now and then.
Traced: `tracing`; whether adapters changed: `adapter_updates`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from catalog.domain.adapters import CONFIG, WEIGHTS
from catalog.domain.cards import RepoCard
from catalog.domain.changes import Change, carried, change, successor
from catalog.domain.columns import known_fields
from catalog.domain.facts import ModelFacts
from catalog.domain.manifests import Manifest, ManifestFile, manifest_from_dict
from catalog.domain.repository import FileSet, Format, RepoFile, quantization
from catalog.domain.tracing import checked, names
from catalog.models import Adapter, AdapterOrigin, Model, Origin, Version, VersionOrigin
from catalog.services import events, registry, sources
from catalog.services.registry import Seen
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)
Subject = Model | Version | Adapter
TABLES: Mapping[str, type[Origin | VersionOrigin | AdapterOrigin]] = {
    "model": Origin,
    "version": VersionOrigin,
    "adapter": AdapterOrigin,
}
NOBODY = "ver_0000000000"
"""Stands for the id of files that are no version."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """Where weights come from. `manifest`: its files as they were there; `given_by`: "version", who named it, or "" where it
    was traced."""

    repository: str
    commit: str
    manifest: Manifest
    given_by: str


def table(of: Subject) -> Any:
    """The table that has origins of its kind, by the same primary key."""
    return TABLES[str(of._meta.model_name)]


def version_of(of: Subject) -> Version | None:
    return of if isinstance(of, Version) else of.version


def known(of: Subject) -> Known | None:
    """The origin of a model, a version or an adapter: of its version, as it was found, or as it was of its version; None: nobody knows."""
    return _known(of, version_of(of))


def _known(of: Subject, version: Version | None) -> Known | None:
    """As `known`, if it were of this version; None: its own files."""
    if version is not None and version.registry:
        manifest = manifest_from_dict(version.manifest)
        return Known(repository=version.repository, commit=version.commit, manifest=manifest, given_by="version")
    row = table(of).objects.filter(pk=of.pk).first()
    if row is None or not row.repository or not row.files:
        return None if version is None or version is of else known(version)
    files = tuple(ManifestFile(**known_fields(ManifestFile, item)) for item in row.files)
    manifest = Manifest(
        id=NOBODY,
        format=_format(files[0].path),
        files=files,
        first=files[0].path,
        repository=row.repository,
        commit=row.commit,
    )
    return Known(repository=row.repository, commit=row.commit, manifest=manifest, given_by=row.given_by)


def give(
    *, actor: str, of: Subject, repository: str, commit: str = "", sizes: Mapping[str, int | None] | None = None
) -> Known:
    """Say where the weights of a model, a version or an adapter come from; every file must be there at the same size. `sizes`: bytes of
    its files by name, as nodes report them; None: what this machine or the catalogue knows. Raises Refused: `origin_known`,
    `origin_differs`, `origin_unproven`, or as the registry refuses."""
    without(of)
    card = registry.look(repository, commit or "main").card
    paths = checked(card, sizes or sizes_of(of), digests_of(of))
    return keep(of, card, paths, actor=actor, given_by=actor, newest=not commit)


def sizes_of(of: Subject) -> dict[str, int | None]:
    """Its files by name with their bytes, as far as this machine or the catalogue knows; None where they do not."""
    version = version_of(of)
    if version is not None:
        return {Path(item["path"]).name: item["size"] for item in version.manifest["files"]}
    path = path_of(of)
    found = names(path)
    if isinstance(of, Adapter):  # its size is known since it was read
        return {found[0]: of.size} if found else {WEIGHTS: of.size, CONFIG: None}
    assert isinstance(of, Model)
    files: dict[str, int | None] = dict.fromkeys(found)
    for name in files:
        try:
            files[name] = (Path(path).parent / name).stat().st_size
        except OSError:
            files[name] = of.weights_size if len(files) == 1 else None
    return files


def path_of(of: Subject) -> str:
    """The path that tells something of its origin: on the nodes, else of the first of its files."""
    path = of.weights_path if isinstance(of, Model) else of.path if isinstance(of, Adapter) else ""
    version = version_of(of)
    return path or str((version.manifest.get("files") or [{"path": ""}])[0]["path"] if version is not None else "")


def digests_of(of: Subject) -> dict[str, str]:
    """SHA-256 of its files by name, as far as it is known."""
    version = version_of(of)
    if version is not None:
        return {Path(item["path"]).name: item["sha256"] for item in version.manifest["files"] if item["sha256"]}
    found = names(path_of(of))
    sha256 = of.weights_sha256 if isinstance(of, Model) else ""
    return {found[0]: sha256} if len(found) == 1 and sha256 else {}


def without(of: Subject) -> None:
    """Raises Refused `model_is_external`, `origin_known` where the origin is no question."""
    if isinstance(of, Model) and of.external:
        raise _external(of)
    version = version_of(of)
    if version is not None and version.registry:
        text = f"the origin of {of.name} is known, it came from there: {version.repository} at {version.commit[:12]}"
        raise Refused(Kind.CONFLICT, "origin_known", text)


def _external(model: Model) -> Refused:
    text = f"{model.name} is answered by a provider: it has no weights here"
    return Refused(Kind.CONFLICT, "model_is_external", text)


def keep(of: Subject, card: RepoCard, paths: Sequence[str], *, actor: str, given_by: str, newest: bool) -> Known:
    """Write an origin down. `given_by`: "" where it was traced; `newest`: the repository is at that commit now, so nothing there is newer."""
    by_path = {file.path: file for file in card.files}
    files = [
        {"path": path, "size": by_path[path].size, "sha256": by_path[path].sha256, "blob": by_path[path].blob}
        for path in paths
    ]
    told: dict[str, Any] = {
        "checked_at": Now() if newest else None, "newest": card.commit if newest else "",
        "changed": [], "code": "", "message": "",
    }  # fmt: skip
    values = {
        "repository": card.id, "commit": card.commit, "files": files, "given_by": given_by, **told, "trace_code": "", "trace_message": "",
        **({} if given_by else {"traced_at": timezone.now()}),
    }  # fmt: skip
    table(of).objects.update_or_create(pk=of.pk, defaults=values)
    if isinstance(of, Adapter):  # whose last look stands with it
        Adapter.objects.filter(pk=of.pk).update(**told)
    kind = str(of._meta.model_name)
    what = {"version": f"the weights {of.name} come", "adapter": f"the adapter {of.name} comes"}
    text = f"{what.get(kind, f'the weights of {of.name} come')} from {card.id} at {card.commit[:12]}"
    events.append(
        actor=actor,
        kind=f"{kind}_origin",
        subject_kind=kind,
        subject_id=of.pk,
        message=text,
        why="traced" if not given_by else "",
    )
    found = known(of)
    assert found is not None  # it was written just now
    return found


def _format(path: str) -> Format:
    return Format.GGUF if path.endswith(".gguf") else Format.SAFETENSORS


def look(model: Model) -> Change:
    """Ask the registry whether the files of a model changed there, and keep the answer. Raises Refused `origin_unknown`, or as the registry
    refuses; the refusal is kept too."""
    return asked(needed(model), note=partial(_note, model))


def asked(origin: Known, *, note: Callable[..., None]) -> Change:
    """What the registry says of an origin now; `note` keeps it. Raises Refused, which is kept too."""
    try:
        found = change(origin.manifest, registry.look(origin.repository).card)
    except Refused as refused:
        note(code=refused.code, message=refused.message)
        raise
    note(newest=found.commit, changed=list(found.files), code="", message="")
    return found


def _note(model: Model, **values: Any) -> None:
    Origin.objects.update_or_create(model_id=model.pk, defaults={**values, "checked_at": Now()})


MOST_AT_ONCE = 20
"""Models that are asked for in one go; the others have their turn minutes later."""


def check_all(*, older_than: float) -> tuple[str, ...]:
    """Ask for every model whose origin is known and was asked longer ago than so many seconds; the names of those that changed. A registry
    that limits us, or is away, is asked no more in this round."""
    before = timezone.now() - timedelta(seconds=older_than)
    asked = Origin.objects.filter(checked_at__gte=before).values("model_id")
    models = Model.objects.filter(provider__isnull=True, enabled=True).exclude(id__in=asked)
    changed: list[str] = []
    count = 0
    for model in models.select_related("version__origin").order_by("name"):
        if known(model) is None:
            continue
        count += 1
        try:
            changed += [model.name] if look(model) else []
        except Refused as refused:
            event(
                log,
                "update_check_failed",
                level=logging.WARNING,
                model=model.name,
                code=refused.code,
                reason=refused.message,
            )
            if refused.code in ("registry_limited", "registry_unreachable", "registry_failed"):
                break
        if count >= MOST_AT_ONCE:
            break
    return tuple(changed)


def standings(model_id: str = "") -> list[dict[str, Any]]:
    """How each model with weights stands to its origin, by name; or only this one."""
    rows = Model.objects.filter(provider__isnull=True, **({"id": model_id} if model_id else {}))
    return [_standing(row) for row in rows.select_related("version__origin", "previous", "origin").order_by("name")]


def _standing(model: Model) -> dict[str, Any]:
    row: Origin | None = getattr(model, "origin", None)
    return {
        "id": model.pk, "name": model.name, **come_from(model),
        "checked_at": row.checked_at if row else None, "newest": row.newest if row else "",
        "changed": row.changed if row else [], "code": row.code if row else "", "message": row.message if row else "",
        "previous": model.previous.name if model.previous else "",
    }  # fmt: skip


def come_from(of: Model | Adapter) -> dict[str, Any]:
    """The same of a row that has its version and its origin with it, in words: repository, commit, who named it, and what came of looking
    for it (`Origin.trace`), why nothing was found, and when. Empty: not known."""
    version = of.version
    nothing = {"trace": "", "trace_message": "", "traced_at": None}
    if version is not None and version.registry:
        return {"repository": version.repository, "commit": version.commit, "given_by": "version", **nothing}
    rows = [getattr(item, "origin", None) for item in (of, version) if item is not None]
    row = next((item for item in rows if item is not None and item.repository), next(filter(None, rows), None))
    if row is None:
        return {"repository": "", "commit": "", "given_by": "", **nothing}
    told = (
        {"trace": row.trace, "trace_message": row.trace_message, "traced_at": row.traced_at} if row.trace else nothing
    )
    return {"repository": row.repository, "commit": row.commit, "given_by": row.given_by, **told}


def needed(model: Model) -> Known:
    """Where a model comes from. Raises Refused `model_is_external`, `origin_unknown`: what to do first."""
    if model.external:
        raise _external(model)
    origin = known(model)
    if origin is None:
        text = (
            f"nobody knows where the weights of {model.name} come from: `llmgw model origin {model.name}` looks for it"
        )
        raise Refused(Kind.CONFLICT, "origin_unknown", text)
    return origin


def settled(model: Model, version: Version | None) -> None:
    """A model is about to serve this version, or (None) its own files, in the place of what it serves: of the last look stays what
    it still tells (`catalog.domain.changes.carried`)."""
    row, left, serves = Origin.objects.filter(model_id=model.pk).first(), known(model), _known(model, version)
    if row is None:
        return
    told = None
    if left is not None and serves is not None and row.checked_at is not None and not row.code:
        told = carried(serves.manifest, row.newest, left.manifest)
    values = {"checked_at": None, "newest": ""} if told is None else {}
    Origin.objects.filter(pk=row.pk).update(**values, changed=list(told or ()), code="", message="")


def fetched(model: Model, *, commit: str, asked_at: float) -> None:
    """A new model serves the newest files of its origin, as the registry had them when it was asked (Unix seconds), unless it was asked
    again since."""
    values = {"newest": commit, "changed": [], "checked_at": datetime.fromtimestamp(asked_at, tz=UTC)}
    Origin.objects.get_or_create(model_id=model.pk, defaults=values)


@dataclass(frozen=True, kw_only=True)
class Next:
    """What follows what a model serves. `changed`: files of it that are others now."""

    seen: Seen
    files: FileSet
    facts: ModelFacts
    projector: RepoFile | None
    changed: tuple[str, ...]


def follow(model: Model, revision: str = "") -> Next | None:
    """What takes the place of what a model serves, at a commit or the newest; None: its files are there as they are here.

    Raises Refused: `origin_unknown`, `update_gone`, `weights_incomplete`, or as the registry refuses.
    """
    found, origin = look(model), known(model)
    if not found or origin is None:
        return None
    first, format = origin.manifest.first, origin.manifest.format
    label = model.version.quantization if model.version is not None else quantization(first)
    repository, commit = origin.repository, revision or found.commit
    seen = registry.look(repository, commit)
    chosen = successor(seen.sets, format=format, first=first, quantization=label, repository=repository)
    before, projector = (model.version.projector if model.version is not None else ""), None
    if before:
        there = any(before == file.path for file in seen.projectors)
        projector = sources.projector(seen, chosen, before if there else "auto")
    named = projector.path if projector else "none"
    _, ((files, facts),) = registry.shapes(
        repository, commit, file=chosen.first.path, format=format.value, projector=named
    )
    return Next(seen=seen, files=files, facts=facts, projector=projector, changed=found.files)
