"""A serve job whose model is in the catalogue already: it goes on with it as it is, or is told what differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog import selectors as catalog
from cluster.domain import differing


def agrees(args: Mapping[str, Any], *, planned: int = 0) -> None:
    """Raises Refused `model_differs` where a model of that name has not what was asked for. `planned`: as `differing.refuse`."""
    model = catalog.models_with_profiles().filter(name=args["name"]).first()
    if model is None:
        return
    rows = sorted(model.profiles.all(), key=lambda row: (not row.enabled, -row.priority, row.name))
    have = differing.Have(
        name=model.name,
        replicas=model.replicas,
        max_replicas=model.max_replicas,
        description=model.description,
        profiles=[{field.name: getattr(row, field.name) for field in row._meta.concrete_fields} for row in rows],
        trained=int((model.facts or {}).get("context") or 0),
    )
    differing.refuse(args, have, planned=planned)
