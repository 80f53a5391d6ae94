"""Profiles: ways to run a model, vetted before they are written."""

from __future__ import annotations

import re
from typing import Any

from catalog.domain import engine_args
from catalog.models import Model, Profile
from catalog.models.fields import LABEL
from catalog.services import rows
from llmgw_site.lib.errors import Kind, Refused

FIELDS = frozenset(
    {"name", "engine", "enabled", "priority", "context", "slots", "threads", "memory", "nodes", "args", "env",
     "start_timeout", "drain_timeout"}
)  # fmt: skip
"""What callers may set."""
MAX_NODES = 1000


def add(*, actor: str, model: Model, name: str = "default", **fields: Any) -> Profile:
    """A new way to run `model`."""
    profile = build(model=model, name=name, **fields)
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
    if "nodes" in fields:
        fields["nodes"] = node_names(fields["nodes"])
    profile = Profile(model=model, name=name, **fields)
    vet(profile.engine, profile.args, profile.env)
    return profile


def update(*, actor: str, profile: Profile, why: str = "", **changes: Any) -> Profile:
    """Change fields of a profile; replicas that run by it are replaced by the reconciler."""
    known(changes)
    if "nodes" in changes:
        changes["nodes"] = node_names(changes["nodes"])
    vet(*(changes.get(name, getattr(profile, name)) for name in ("engine", "args", "env")))
    message = f"profile {profile.name} of {profile.model.name} changed"
    return rows.change(profile, changes, actor=actor, message=message, why=why)


def remove(*, actor: str, profile: Profile) -> None:
    """Delete a profile. A model without an enabled profile does not run."""
    rows.remove(profile, actor=actor, message=f"profile {profile.name} of {profile.model.name} removed")


def known(fields: dict[str, Any]) -> None:
    """Refuse a field that a profile does not have."""
    rows.known(fields, FIELDS, noun="profile")


def node_names(nodes: Any) -> list[str]:
    """A profile's list of node names, each once. A node need not be in the cluster yet. Raises Refused."""
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
