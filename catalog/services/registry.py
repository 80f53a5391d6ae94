"""Questions to the registry as the settings name it: what there is, and what shape it has. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from catalog.domain.cards import RepoCard
from catalog.domain.facts import ModelFacts, model_facts
from catalog.domain.foreign import parsed
from catalog.domain.gguf import BadGguf, read_header
from catalog.domain.hf_config import config_facts
from catalog.domain.projectors import Projector, is_projector, takes
from catalog.domain.repository import FileSet, Format, RepoFile, choose, choose_projector, file_sets, projectors
from catalog.registry.client import Page, Registry
from catalog.registry.ranges import Files, RemoteFile
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.outgoing import Guard
from llmgw_site.lib.units import MIB

MAX_CONFIG = 4 * MIB


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A repository at a commit: the models that its files make, and the files that let one see or hear."""

    card: RepoCard
    sets: tuple[FileSet, ...]
    projectors: tuple[RepoFile, ...]


def opened() -> Registry:
    """The registry of the settings. Close it, or use it in a `with`."""
    config = settings.CONFIG
    guard = Guard(private=config.private_addresses)
    return Registry(guard=guard, endpoint=config.registry, token=config.registry_token)


def search(**words: Any) -> Page:
    """Repositories, best first; words as of `Registry.search`. Raises Refused, as the registry refuses."""
    with opened() as registry:
        return registry.search(**words)


def look(repository: str, revision: str = "") -> Seen:
    """One repository. Raises Refused."""
    with opened() as registry:
        return seen(registry.card(repository, revision or "main"))


def shapes(
    repository: str,
    revision: str = "",
    *,
    quantization: str = "",
    file: str = "",
    format: str = "",
    projector: str = "",
) -> tuple[Seen, tuple[tuple[FileSet, ModelFacts], ...]]:
    """The models of a repository that these words leave, each with its shape and what its projector takes (`projector` as of
    `choose_projector`). Raises Refused.

    All quantisations of a model have one shape: it is read from the smallest file that there is; what of it depends on the
    quantisation is each file's own.
    """
    with opened() as registry:
        card = registry.card(repository, revision or "main")
        found = seen(card)
        chosen = choose(found.sets, wanted=quantization, file=file, format=format)
        eyes = beside(found, chosen, projector)
        registry.check_access(card.id, card.commit, chosen[0].first.path)
        return found, read(registry, card, chosen, eyes)


def beside(found: Seen, chosen: Sequence[FileSet], wanted: str) -> RepoFile | None:
    """The projector of the GGUF models among these; None: they have none. Raises Refused, as `choose_projector`."""
    gguf = [item for item in chosen if item.format is Format.GGUF]
    return choose_projector(found.projectors, (gguf or chosen)[0], wanted)


def read(
    files: Files, card: RepoCard, chosen: Sequence[FileSet], projector: RepoFile | None = None
) -> tuple[tuple[FileSet, ModelFacts], ...]:
    """The shapes of these models, whose files are read from `files`; `projector` is of the GGUF ones. Raises Refused."""
    gguf = [item for item in chosen if item.format is Format.GGUF]
    folder = next((item for item in chosen if item.format is Format.SAFETENSORS), None)
    header = _header(files, card, min(gguf, key=lambda item: item.first.size)) if gguf else None
    if header is not None and projector is not None:
        found = _projector(files, card, projector)
        header = replace(header, projector=found.size, projector_compute=found.compute)
    config = _config(files, card, folder) if folder else None
    shapes = []
    for item in chosen:
        if item.format is Format.GGUF and header is not None:
            shapes.append((item, replace(header, quantization=item.quantization or header.quantization, bytes=0)))
        elif config is not None:
            shapes.append((item, config))
    return tuple(shapes)


def seen(card: RepoCard) -> Seen:
    return Seen(card=card, sets=file_sets(card.files), projectors=projectors(card.files))


def _header(registry: Files, card: RepoCard, chosen: FileSet) -> ModelFacts:
    file = chosen.first
    try:
        header = read_header(RemoteFile(registry, card.id, card.commit, file.path, size=file.size))
        facts = model_facts(header, file_name=file.name)
    except BadGguf as error:
        raise Refused(Kind.INVALID, error.code, f"{file.path} of {card.id} was refused. {error.message}") from None
    if facts.kind != "model" or not facts.architecture:
        what = f"of kind {facts.kind}" if facts.kind != "model" else "that names no architecture"
        text = f"{file.path} of {card.id} is a GGUF file {what}, which cannot answer by itself: name a model's file"
        raise Refused(Kind.INVALID, "weights_not_a_model", text, param="file")
    return facts


def _projector(registry: Files, card: RepoCard, file: RepoFile) -> Projector:
    """Raises Refused where it is none: an engine would end over it."""
    try:
        header = read_header(RemoteFile(registry, card.id, card.commit, file.path, size=file.size))
    except BadGguf as error:
        raise Refused(
            Kind.INVALID, error.code, f"{file.path} of {card.id} was refused. {error.message}", param="projector"
        ) from None
    if not is_projector(header):
        text = f"{file.path} of {card.id} is no projector, for all its name: name another, or none"
        raise Refused(Kind.INVALID, "projector_not_a_projector", text, param="projector")
    return takes(header)


def _config(registry: Files, card: RepoCard, folder: FileSet) -> ModelFacts:
    file = next(item for item in folder.beside if item.path == "config.json")
    data = RemoteFile(registry, card.id, card.commit, file.path, size=min(file.size, MAX_CONFIG)).read(0, MAX_CONFIG)
    try:
        config = parsed(data)
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise Refused(
            Kind.INVALID, "weights_incomplete", f"config.json of {card.id} is no JSON object", param="repository"
        )
    return config_facts(config, size=sum(part.size for part in folder.weights))
