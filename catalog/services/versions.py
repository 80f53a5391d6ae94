"""Versions of weights: what the cluster fetches and keeps. A row is made once and never changed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import orjson
from django.conf import settings
from django.db import transaction
from django.db.models import Q

from catalog.domain.facts import ModelFacts
from catalog.domain.manifests import Manifest, ManifestFile, manifest_from_dict
from catalog.domain.repository import FileSet, Format, RepoFile
from catalog.models import Model, Version
from catalog.services import rows
from catalog.services.registry import Seen
from llmgw_site.lib.errors import Kind, Refused


def make(seen: Seen, chosen: FileSet, facts: ModelFacts, projector: RepoFile | None = None, *, actor: str) -> Version:
    """The version that these files of a repository make; the one that is there already where it is the same.

    Raises Refused `weights_unchecked` where the registry publishes no checksum of a file.
    """
    found = [*chosen.files, *([projector] if projector is not None else [])]
    return keep(
        actor=actor,
        format=chosen.format,
        files=[ManifestFile(path=item.path, size=item.size, sha256=item.sha256, blob=item.blob) for item in found],
        first=chosen.first.path if chosen.format is Format.GGUF else "",
        facts=facts,
        quantization=chosen.quantization,
        projector=projector.path if projector is not None else "",
        registry=settings.CONFIG.registry,
        repository=seen.card.id,
        commit=seen.card.commit,
    )


def keep(
    *,
    actor: str,
    format: Format,
    files: Sequence[ManifestFile],
    first: str,
    facts: ModelFacts,
    quantization: str = "",
    projector: str = "",
    registry: str = "",
    repository: str = "",
    commit: str = "",
) -> Version:
    """The version of these files, at a commit or (`registry` empty) at the addresses that they name. Raises Refused.

    Two that ask for the same at once get the same row: it is fetched once.
    """
    unchecked = next((file.path for file in files if not file.checked), "")
    if unchecked:
        text = f"no checksum of {unchecked} is known: give its SHA-256, so that what comes can be compared"
        raise Refused(Kind.INVALID, "weights_unchecked", text)
    row = Version(
        registry=registry, repository=repository, commit=commit, format=format.value, quantization=quantization,
        first=first, projector=projector,
    )  # fmt: skip
    manifest = Manifest(
        id=row.id, format=format, files=tuple(files), first=first, registry=registry, repository=repository,
        commit=commit,
    )  # fmt: skip
    manifest_from_dict(manifest.as_dict())  # vetted as the nodes will
    whole = facts if facts.bytes else replace(facts, bytes=sum(file.size for file in files if _is_weights(file)))
    row.size, row.facts, row.manifest = manifest.size, whole.as_dict(), manifest.as_dict()
    row.digest = _digest(manifest, projector)
    there = Version.objects.filter(digest=row.digest).first()
    if there is not None:
        return there
    try:
        with transaction.atomic():
            return rows.add(row, actor=actor, message=f"weights {row.name} are to be fetched")
    except Refused:
        there = Version.objects.filter(digest=row.digest).first()  # somebody else made it meanwhile
        if there is None:
            raise
        return there


def remove(*, actor: str, version: Version) -> None:
    """Forget a version: nodes with the module `data` delete its files. Raises Refused `still_in_use` while it is needed."""
    users = Model.objects.filter(Q(version=version) | Q(previous=version)).order_by("name")
    serving = [row.name if row.version_id == version.pk else f"{row.name} (for its rollback)" for row in users]
    if serving:
        text = f"weights {version.name} are needed by {', '.join(serving[:10])}: remove or update these first"
        raise Refused(Kind.CONFLICT, "still_in_use", text)
    rows.remove(version, actor=actor, message=f"weights {version.name} removed")


def manifest_of(version_id: str) -> Manifest:
    """Raises Refused `version_unknown`."""
    found = Version.objects.filter(id=version_id).values_list("manifest", flat=True).first()
    if found is None:
        raise Refused(Kind.NOT_FOUND, "version_unknown", f"there are no weights {version_id[:60]}", param="version")
    return manifest_from_dict(found)


def _is_weights(file: ManifestFile) -> bool:
    return PurePosixPath(file.path).suffix in (".gguf", ".safetensors")


def _digest(manifest: Manifest, projector: str) -> str:
    told = {**manifest.as_dict(), "id": "", "projector": projector}
    return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()
