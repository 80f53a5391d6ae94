"""Profiles: ways to run a model, vetted before they are written."""

from __future__ import annotations

import copy
import re
from typing import Any

from catalog.domain import engine_args, labels, needs, ways
from catalog.domain.facts import facts_from_dict
from catalog.models import Model, Profile
from catalog.models.fields import LABEL
from catalog.services import rows
from catalog.signals import profile_adding, profile_changing
from llmgw_site.lib.errors import Kind, Refused

FIELDS = frozenset(
    {"name", "engine", "enabled", "priority", "context", "slots", "threads", "memory", "nodes", "labels", "gpus_per_node",
     "tp", "pp", "card_classes", "card_memory", "args", "env", "start_timeout", "drain_timeout", "measured_tps",
     "measured_concurrency"}
)  # fmt: skip
"""What callers may set."""
MAX_NODES = 1000
MAX_CLASSES = 64
LEAST_MEMORY = 1 << 20
"""Bytes; whoever reserves fewer has left out a unit."""
_NEEDS = frozenset({"engine", "gpus_per_node", "tp", "pp", "card_classes", "card_memory", "memory"})
"""What `vet_way` and `vet_needs` look at: only who changes one of these is asked to mend them."""


MEASURED = ("measured_tps", "measured_concurrency")
_SHAPES = _NEEDS - {"memory"} | {"context", "slots", "threads", "args", "env"}
"""What changes how fast a replica is."""


def add(*, actor: str, model: Model, name: str = "default", **fields: Any) -> Profile:
    """A new way to run `model`. Raises Refused, also what the floors above have against it (`signals.profile_adding`)."""
    profile = build(model=model, name=name, **fields)
    profile_adding.send(sender=Profile, asked=profile)
    return rows.add(profile, actor=actor, message=f"profile {name} of {model.name} added")


def build(*, model: Model, name: str = "default", **fields: Any) -> Profile:
    """The row that `add` would write, vetted, not written."""
    known(fields)
    if model.external:
        raise Refused(
            Kind.CONFLICT,
            "model_is_external",
            f"The model {model.name} is answered by a provider: no engine runs it, so it has no profiles.",
        )
    vet_sizes(fields)
    profile = Profile(model=model, name=name, **lists(fields))
    vet(profile.engine, profile.args, profile.env)
    vet_way(profile, model)
    vet_needs(profile, model)
    return profile


def update(*, actor: str, profile: Profile, why: str = "", **changes: Any) -> Profile:
    """Change fields of a profile; replicas that run by it are replaced by the reconciler. What was measured of it as it
    was is forgotten with that. Raises Refused, also what the floors above have against it (`signals.profile_changing`)."""
    known(changes)
    vet_sizes(changes)
    changes = lists(changes)
    if any(changes[name] != getattr(profile, name) for name in _SHAPES & changes.keys()):
        changes = {**dict.fromkeys(MEASURED, 0.0), **changes}
    vet(*(changes.get(name, getattr(profile, name)) for name in ("engine", "args", "env")))
    wanted = copy.copy(profile)
    for name, value in changes.items():
        setattr(wanted, name, value)
    if _NEEDS & changes.keys():
        vet_way(wanted, profile.model)
        vet_needs(wanted, profile.model)
    profile_changing.send(sender=Profile, profile=profile, asked=wanted)
    message = f"profile {profile.name} of {profile.model.name} changed"
    return rows.change(profile, changes, actor=actor, message=message, why=why)


def remove(*, actor: str, profile: Profile) -> None:
    """Delete a profile. A model without an enabled profile does not run."""
    rows.remove(profile, actor=actor, message=f"profile {profile.name} of {profile.model.name} removed")


def known(fields: dict[str, Any]) -> None:
    """Refuse a field that a profile does not have."""
    rows.known(fields, FIELDS, noun="profile")


def lists(fields: dict[str, Any]) -> dict[str, Any]:
    """The same fields with their lists checked and without repetitions. Raises Refused."""
    found = dict(fields)
    if "nodes" in found:
        found["nodes"] = node_names(found["nodes"])
    if "card_classes" in found:
        found["card_classes"] = class_names(found["card_classes"])
    wrong = labels.problem(found["labels"]) if "labels" in found else ""
    if wrong:
        raise Refused(Kind.INVALID, "invalid_value", f"labels: {wrong}.", param="labels")
    return found


def vet_sizes(fields: dict[str, Any]) -> None:
    """Refuse to reserve less than any engine takes."""
    for name in ("memory", "card_memory"):
        value = fields.get(name)
        if isinstance(value, int) and 0 < value < LEAST_MEMORY:
            text = f"{name}: {value} {'byte is' if value == 1 else 'bytes are'} less than any engine takes: write the unit, such as 5GiB "
            text += f"(over the API all of the bytes, {LEAST_MEMORY:,} at least); 0: it is estimated."
            raise Refused(Kind.INVALID, "invalid_value", text, param=name)


def class_names(classes: Any) -> list[str]:
    """A profile's list of classes of cards, as their drivers name them, each once. Raises Refused."""
    listed = isinstance(classes, (list, tuple)) and len(classes) <= MAX_CLASSES
    if not listed or not all(isinstance(item, str) and re.search(LABEL, item) for item in classes):
        raise Refused(
            Kind.INVALID,
            "invalid_value",
            f"card_classes: a list of at most {MAX_CLASSES} names is needed, such as NVIDIA H100 80GB HBM3, or an empty one.",
            param="card_classes",
        )
    return list(dict.fromkeys(classes))


def vet_way(profile: Profile, model: Model) -> None:
    """Refuse a way to run the model that its engine does not know."""
    if any(not isinstance(getattr(profile, name), int) for name in ("gpus_per_node", "tp", "pp", "card_memory")):
        return  # what a column does not allow is refused with the row
    facts = facts_from_dict(model.facts)
    found = ways.problem(profile, facts)
    if found is not None:
        raise Refused(Kind.INVALID, found.code, found.message, param=found.field)


def vet_needs(profile: Profile, model: Model) -> None:
    """Refuse a profile whose memory is neither declared nor can be estimated."""
    found = needs.undeclared(profile, facts_from_dict(model.facts), model.weights_size or 0)
    if found is not None:
        raise Refused(Kind.INVALID, found.code, found.message, param=found.field)


def node_names(nodes: Any) -> list[str]:
    """A profile's list of node names, each once. Raises Refused."""
    listed = isinstance(nodes, (list, tuple)) and len(nodes) <= MAX_NODES
    if not listed or not all(isinstance(item, str) and len(item) <= 100 and re.search(LABEL, item) for item in nodes):
        raise Refused(
            Kind.INVALID,
            "invalid_value",
            f"nodes: a list of at most {MAX_NODES} names of nodes is needed, or an empty one for any node.",
            param="nodes",
        )
    return list(dict.fromkeys(nodes))


def vet(engine: Any, args: Any, env: Any) -> None:
    """Refuse what an engine may not be given. `extra` of the refusal has all of them, the message the first."""
    if not isinstance(args, (list, tuple)) or not all(isinstance(item, str) for item in args):
        raise Refused(
            Kind.INVALID, "invalid_value", 'args: a list of texts is needed, such as ["-b", "512"].', param="args"
        )
    if not isinstance(env, dict) or not all(isinstance(k, str) and isinstance(v, str) for k, v in env.items()):
        raise Refused(Kind.INVALID, "invalid_value", 'env: names with texts are needed, such as {"OMP_PLACES": "cores"}.', param="env")  # fmt: skip
    refusals = engine_args.refusals(str(engine), args, env)
    if refusals:
        first = refusals[0]
        every = [{"code": item.code, "argument": item.argument, "message": item.message} for item in refusals]
        param = "engine" if first.code == "engine_unknown" else "env" if first.code.startswith("env_") else "args"
        raise Refused(Kind.INVALID, first.code, first.message, param=param, extra={"refusals": every})
