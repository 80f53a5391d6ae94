"""LoRA adapters of models: add and remove. A file is read before it is taken, so that no engine fails over it."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from catalog.domain.adapters import AdapterFacts, vet
from catalog.domain.facts import ModelFacts, facts_from_dict
from catalog.domain.repository import Format
from catalog.domain.sources import NEWEST
from catalog.models import Adapter, Model, Profile
from catalog.services import adapter_files, aliases, rows, versions, weights
from catalog.services.served import checked_path
from llmgw_site.lib.errors import Kind, Refused

MOST = 64
"""Adapters of one model: each is loaded by every replica."""
FORMATS = {"llama.cpp": Format.GGUF, "vllm": Format.SAFETENSORS}
"""What engines read adapters of."""


def add(
    *,
    actor: str,
    model: Model,
    name: str,
    path: str = "",
    repository: str = "",
    revision: str = "",
    file: str = "",
    scale: float = 1.0,
) -> Adapter:
    """A new adapter of `model`: a file that lies on its nodes and on this machine, or one of a repository, which is fetched.

    The model's replicas are replaced by ones that have loaded it; until then it is not ready, and nothing else changes. Raises
    Refused:

    1. `model_is_external`, `adapters_full`   the model takes none
    2. `invalid_value`                        neither a path nor a repository, or both
    3. what the file is refused for           see `catalog.domain.adapters`, `catalog.services.adapter_files`
    4. `name_taken`                           a model, an adapter or an alias has the name
    """
    if model.external:  # 1
        text = f"The model {model.name} is answered by a provider: no engine of this cluster could load an adapter"
        raise Refused(Kind.CONFLICT, "model_is_external", text)
    if Adapter.objects.filter(model=model).count() >= MOST:
        text = f"The model {model.name} has {MOST} adapters, which is the most that its replicas load: remove one first"
        raise Refused(Kind.CONFLICT, "adapters_full", text)
    if bool(path) == bool(repository):  # 2
        text = "name the adapter's path on the nodes, or its repository: one of the two"
        raise Refused(Kind.INVALID, "invalid_value", text, param="path")
    row = Adapter(model=model, name=name, scale=scale)
    readers, about = engines(model), facts_from_dict(model.facts)
    if path:
        row.path = checked_path(path)
        facts, row.size = _look(row.path)
        vet(facts, about, engines=readers, scale=scale, what=row.path, name=model.name)  # 3
        row.facts = facts.as_dict()
    else:
        formats = list(dict.fromkeys(FORMATS[engine] for engine in readers if engine in FORMATS))
        seen, chosen, facts = adapter_files.find(repository, revision, file=file, formats=formats)
        what = f"{chosen.first.path} of {seen.card.id}"
        vet(facts, about, engines=readers, scale=scale, what=what, name=model.name)
        row.size, row.facts = chosen.size, facts.as_dict()
        with transaction.atomic():  # an adapter that is refused (4) leaves no version to be fetched
            row.version = versions.make(seen, chosen, as_version(facts, chosen.size), actor=actor)
            if revision in NEWEST:  # its origin was asked just now
                row.newest, row.checked_at = seen.card.commit, timezone.now()
            return _add(row, actor)
    return _add(row, actor)


def _add(row: Adapter, actor: str) -> Adapter:
    return rows.add(row, actor=actor, message=f"adapter {row.name} of {row.model.name} added")


def remove(*, actor: str, adapter: Adapter) -> None:
    """Delete an adapter: it is refused at once, and the model's replicas are replaced by ones without it. Refused while an alias
    stands for it."""
    aliases.release(adapter)
    rows.remove(adapter, actor=actor, message=f"adapter {adapter.name} of {adapter.model.name} removed")


def _look(path: str) -> tuple[AdapterFacts, int]:
    adapter_files.no_comma(path, "path")
    if not weights.is_here(path):
        text = f"There is no file {path} on this machine: an adapter is read before it is taken, so put it here as on the nodes, or name a repository."
        raise Refused(Kind.INVALID, "weights_missing", text, param="path")
    try:
        return adapter_files.look(path)
    except Refused as refused:
        refused.param = "path"
        raise


def engines(model: Model) -> list[str]:
    """That may run the model; of one without profiles the engine that its weights are for."""
    found = sorted(set(Profile.objects.filter(model=model, enabled=True).values_list("engine", flat=True)))
    if found:
        return found
    gguf = model.version.format == Format.GGUF if model.version is not None else model.weights_path.endswith(".gguf")
    return ["llama.cpp" if gguf else "vllm"]


def as_version(facts: AdapterFacts, size: int) -> ModelFacts:
    """What stands in the version of an adapter's file."""
    return ModelFacts(kind="adapter", architecture=facts.architecture, name=facts.name, bytes=size)
