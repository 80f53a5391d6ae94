"""Models of the catalogue: add, change, enable, disable, remove.

`add_model` looks at the weights where they are on this machine, before any transaction: a file that is no model is
refused here, one that is elsewhere is looked at by the node that runs it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

from django.db import transaction

from catalog.domain.facts import ModelFacts, facts_from_dict
from catalog.domain.repository import Format
from catalog.models import Model, Organisation, Origin, Profile, Project, Provider, Team, Version
from catalog.models.names import MODEL_NAME
from catalog.models.served import MAX_FALLBACKS
from catalog.services import aliases, profiles, rows, weights
from catalog.signals import model_changing
from llmgw_site.lib.errors import Kind, Refused

FIELDS = frozenset(
    {
        "name",
        "description",
        "enabled",
        "replicas",
        "max_replicas",
        "rest_after",
        "priority_class",
        "weights_path",
        "weights_size",
        "weights_sha256",
        "version",
        "previous",
        "embeddings",
        "first_byte_timeout",
        "idle_timeout",
        "queue_length",
        "queue_wait",
        "fallbacks",
        "price_input",
        "price_cached",
        "price_output",
        "provider",
        "provider_model",
        "project",
        "team",
        "organisation",
    }
)
"""What callers may change."""
ENGINE = {Format.GGUF: "llama.cpp", Format.SAFETENSORS: "vllm"}
"""What runs fetched weights where nobody names an engine."""
LOCAL = ("weights_path", "weights_size", "weights_sha256", "version", "replicas", "max_replicas", "rest_after", "priority_class",
         "queue_length", "queue_wait", "profile", "further", "facts")  # fmt: skip
"""What only a model that engines of the cluster run has."""
ZERO_SAYS = frozenset({"queue_length", "queue_wait"})
"""Of these, where 0 is another word than none."""
OWNERS = ("project", "team", "organisation")
"""Fields of which one names a model's owner."""


def add_model(
    *,
    actor: str,
    name: str,
    weights_path: str = "",
    description: str = "",
    enabled: bool = True,
    replicas: int | None = None,
    max_replicas: int | None = None,
    rest_after: float | None = None,
    priority_class: str = "",
    weights_size: int | None = None,
    weights_sha256: str = "",
    version: Version | None = None,
    facts: ModelFacts | None = None,
    embeddings: bool | None = None,
    first_byte_timeout: float | None = None,
    idle_timeout: float | None = None,
    queue_length: int | None = None,
    queue_wait: float | None = None,
    fallbacks: Sequence[str] = (),
    price_input: Decimal | None = None,
    price_cached: Decimal | None = None,
    price_output: Decimal | None = None,
    provider: Provider | None = None,
    provider_model: str = "",
    project: Project | None = None,
    team: Team | None = None,
    organisation: Organisation | None = None,
    profile: Mapping[str, Any] | None = None,
    further: Sequence[Mapping[str, Any]] = (),
) -> Model:
    """A model and its first profile (and `further` ones), all or none; or an external one, which has a provider and nothing else.

    With a `version` the cluster fetches its weights, and there is no path. `facts`, `weights_size`: found out here if they are
    not given; `embeddings` None: as the facts say;
    `replicas` None: one, or none of an external model; `max_replicas` None: no more than these; `profile`: fields of the profile, `{}` or None for llama.cpp
    with every default.
    """
    plain: dict[str, Any] = {"name": name, "description": description, "enabled": enabled, "project": project, "team": team,
                             "organisation": organisation, "first_byte_timeout": first_byte_timeout,
                             "idle_timeout": idle_timeout, "price_input": price_input, "price_cached": price_cached,
                             "price_output": price_output, "queue_length": queue_length, "queue_wait": queue_wait,
                             "fallbacks": checked_fallbacks(name, fallbacks)}  # fmt: skip
    if provider is not None:
        local = {"weights_path": weights_path, "weights_size": weights_size, "weights_sha256": weights_sha256,
                 "version": version, "replicas": replicas, "max_replicas": max_replicas, "profile": profile, "further": further,
                 "facts": facts, "rest_after": rest_after, "priority_class": priority_class, "queue_length": queue_length,
                 "queue_wait": queue_wait}  # fmt: skip
        only_external(name, local)
        model = Model(
            **plain, replicas=0, embeddings=bool(embeddings), provider=provider, provider_model=provider_model
        )
        return rows.add(model, actor=actor, message=f"model {name} of provider {provider.name} added")
    if provider_model:
        raise _mixed("provider_model", "name its provider too")
    if version is not None:
        _only_version({"weights_path": weights_path, "weights_sha256": weights_sha256})
    wanted = {**({"engine": ENGINE[Format(version.format)]} if version else {}), **(profile or {})}
    engine = wanted.get("engine", "llama.cpp")
    path, size, facts = _shape(weights_path, version, engine=engine, facts=facts, size=weights_size)
    model = Model(
        **plain,
        weights_path=path,
        weights_size=size,
        weights_sha256=weights_sha256,
        version=version,
        facts=facts.as_dict() if facts else {},
        embeddings=bool(facts and facts.embeddings) if embeddings is None else embeddings,
        replicas=1 if replicas is None else replicas,
        max_replicas=max_replicas,
        rest_after=rest_after,
        priority_class=priority_class,
    )
    _vet_maximum(model)
    with transaction.atomic():
        rows.add(model, actor=actor, message=f"model {name} added", tell=False)  # its profile tells
        for fields in (wanted, *further):
            profiles.add(actor=actor, model=model, **fields)
    return model


def _shape(
    weights_path: str, version: Version | None, *, engine: str, facts: ModelFacts | None, size: int | None
) -> tuple[str, int | None, ModelFacts | None]:
    """Path, size and facts of a model's weights: what is not given is looked at, of a version as it was fetched."""
    if version is not None:
        return "", version.size, facts or facts_from_dict(version.facts)
    path = checked_path(weights_path)
    if facts is not None:
        return path, size, facts
    facts, there = examine(path) if engine == "llama.cpp" else examine_folder(path)
    return path, there if size is None else size, facts


def update(*, actor: str, model: Model, why: str = "", **changes: Any) -> Model:
    """Change fields of a model. Another weights_path is looked at like a new one; what was known of the old one goes. Another
    version brings its own shape and size.

    Raises Refused, also what the floors above have against it (`signals.model_changing`).
    """
    rows.known(changes, FIELDS, noun="model")
    if model.external:
        only_external(model.name, changes)
        if "provider" in changes and changes["provider"] is None:
            raise _mixed("provider", "an external model stays one; add a new model for weights of your own")
    elif changes.get("provider") or changes.get("provider_model"):
        raise _mixed("provider", "a model with weights keeps them; add a new model for the provider's")
    changes = _one_owner(changes)
    others = False
    if changes.get("version") is not None:
        _only_version(changes)
        fetched: Version = changes["version"]
        others = fetched.pk != model.version_id
        changes |= {"weights_path": "", "weights_sha256": "", "weights_size": fetched.size, "facts": fetched.facts}
    elif "weights_path" in changes and changes["weights_path"] != model.weights_path:
        changes |= {"version": None, "previous": None}
        others = True
        changes["weights_path"] = checked_path(changes["weights_path"])
        facts, size = (examine if _uses_gguf(model) else examine_folder)(changes["weights_path"])
        changes.setdefault("weights_size", size)
        changes.setdefault("weights_sha256", "")
        changes["facts"] = facts.as_dict() if facts else {}
    if "fallbacks" in changes:
        changes["fallbacks"] = checked_fallbacks(changes.get("name", model.name), changes["fallbacks"])
    asked = copy(model)
    for name, value in changes.items():
        setattr(asked, name, value)
    _vet_maximum(asked)
    rows.check(asked)
    model_changing.send(sender=Model, model=model, asked=asked)
    changed = rows.change(model, changes, actor=actor, message=f"model {model.name} changed", why=why)
    if others:  # where the old weights came from says nothing of these
        Origin.objects.filter(model_id=model.pk).delete()
    return changed


def _vet_maximum(model: Model) -> None:
    """The table's constraint says the same, without the figures."""
    least, most = model.replicas, model.max_replicas
    if isinstance(least, int) and isinstance(most, int) and most < least:
        text = f"max_replicas: a maximum of {most} is below those that shall run, {least}: raise the one or lower the other."
        raise Refused(Kind.INVALID, "invalid_value", text, param="max_replicas")


def enable(*, actor: str, model: Model, why: str = "") -> Model:
    """Have it running again; the reconciler starts its replicas."""
    message = f"model {model.name} enabled"
    return rows.change(model, {"enabled": True}, actor=actor, kind="model_enabled", message=message, why=why)


def disable(*, actor: str, model: Model, why: str = "") -> Model:
    """Refuse new requests at once, let running ones finish, then stop its replicas."""
    message = f"model {model.name} disabled"
    return rows.change(model, {"enabled": False}, actor=actor, kind="model_disabled", message=message, why=why)


def remove(*, actor: str, model: Model) -> None:
    """Delete a model with its profiles. Its replicas are drained and stopped; its weights stay on the disk. Refused while an
    alias stands for it or for an adapter of it."""
    aliases.release(model)
    rows.remove(model, actor=actor, message=f"model {model.name} removed")


def _only_version(fields: Mapping[str, Any]) -> None:
    for field in ("weights_path", "weights_sha256"):
        if fields.get(field):
            text = f"{field}: a model has a file on the nodes, or weights that are fetched for it, not both."
            raise Refused(Kind.INVALID, "invalid_value", text, param=field)


def only_external(name: str, fields: Mapping[str, Any]) -> None:
    """Refuse what only a model with weights of its own has: what would be kept and never looked at."""
    for field in LOCAL:
        given = fields.get(field)
        if given or (given is not None and field in ZERO_SAYS):
            raise _mixed(
                field, f"the provider of {name} answers for it, so it has no weights, replicas, profiles or queue"
            )


def _one_owner(changes: dict[str, Any]) -> dict[str, Any]:
    """A new owner takes the place of the one there was."""
    named = [item for item in OWNERS if changes.get(item)]
    if len(named) > 1:
        text = f"{named[1]}: a model has one owner, an organisation, a team or a project: name one of them."
        raise Refused(Kind.INVALID, "invalid_value", text, param=named[1])
    return {**dict.fromkeys(OWNERS), **changes} if named else changes


def _mixed(field: str, why: str) -> Refused:
    return Refused(
        Kind.INVALID,
        "invalid_value",
        f"{field}: a model has weights, or a provider and the provider's name for it, not both: {why}.",
        param=field,
    )


def checked_name(name: str) -> str:
    """A name that a model may have, before there is a row for it. Raises Refused."""
    if not re.search(MODEL_NAME, name):
        text = "name: it begins with a letter or digit and has at most 128 of A-Z a-z 0-9 . _ : / @ -"
        raise Refused(Kind.INVALID, "invalid_value", text, param="name")
    return name


def checked_fallbacks(name: str, fallbacks: Sequence[str]) -> list[str]:
    """Models that may answer for the one of this name, each once. Raises Refused."""
    if not isinstance(fallbacks, list | tuple) or not all(isinstance(item, str) for item in fallbacks):
        text = "fallbacks: a list of names of models is needed."
        raise Refused(Kind.INVALID, "invalid_value", text, param="fallbacks")
    names = list(dict.fromkeys(fallbacks))
    known = set(Model.objects.filter(name__in=names).values_list("name", flat=True))
    wrong = next((item for item in names if item not in known), None)
    if len(names) > MAX_FALLBACKS:
        text = f"fallbacks: {MAX_FALLBACKS} models at most, not {len(names)}."
    elif name in names:
        text = f"fallbacks: {name} cannot answer instead of itself: name other models."
    elif wrong is not None:
        text = f"fallbacks: there is no model named {wrong[:128]}: name models of the catalogue, by their names."
    else:
        return names
    raise Refused(Kind.INVALID, "invalid_value", text, param="fallbacks")


def checked_path(path: str) -> str:
    """A path that means one file on every node. Raises Refused."""
    pure = PurePosixPath(path)
    if not path or not pure.is_absolute() or ".." in pure.parts or any(ord(char) < 32 for char in path):
        raise Refused(
            Kind.INVALID,
            "invalid_value",
            "weights_path: an absolute path without `..` is needed, such as /srv/models/name.gguf.",
            param="weights_path",
        )
    return str(pure)


def examine(path: str) -> tuple[ModelFacts | None, int | None]:
    """Facts and size of GGUF weights, where they are on this machine; nothing where they are not. Raises Refused."""
    path = checked_path(path)
    if not weights.is_here(path):
        return None, None
    found = weights.look(path)
    return found.facts, found.size


def examine_folder(path: str) -> tuple[ModelFacts | None, int | None]:
    """The same of a folder with config.json, as vLLM takes it; nothing of a single file. Raises Refused."""
    path = checked_path(path)
    if not Path(path).is_dir():
        return None, None
    found = weights.look_folder(path)
    return found.facts, found.size


def examine_any(path: str) -> tuple[ModelFacts | None, int | None]:
    """Where it is not said yet which engine takes the weights: a folder as a folder, else GGUF. Raises Refused."""
    return (examine_folder if Path(checked_path(path)).is_dir() else examine)(path)


def _uses_gguf(model: Model) -> bool:
    engines = set(Profile.objects.filter(model=model).values_list("engine", flat=True))
    return not engines or "llama.cpp" in engines
