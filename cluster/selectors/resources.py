"""What a model reserves, against what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog import selectors as catalog
from catalog.domain.types import ModelView as CatalogModel
from catalog.domain.types import ProfileView as CatalogProfile
from cluster.domain.memory import card_warning, warning
from cluster.models import Replica
from cluster.selectors.ways import Measured, measured, profile_view, serve_of


def resources_of(model_id: str) -> dict[str, Any]:
    """Of a model's enabled profiles what each replica is given, and where that figure comes from; of its replicas what they
    hold and what they take. Bytes. Four queries."""
    model = next((item for item in catalog.model_views() if item.model_id == model_id), None)
    sizes = measured()
    rows = Replica.objects.filter(model_id=model_id, run=True).select_related("node", "profile").order_by("slot", "id")
    return {
        "profiles": [_profile(model, item, sizes) for item in model.profiles] if model else [],
        "replicas": [
            {
                "id": row.id,
                "node": row.node.name,
                "profile": row.profile.name if row.profile else "",
                "state": row.state,
                "reserved": row.reserved,
                "memory": row.memory,
                "card_memory": row.card_memory,
                "cores": sum(share.get("cores", 0) for share in row.shares),
                "cpu": row.cpu,
                "read_at": row.node.last_seen_at,
                "cards": {uuid: size for share in row.shares for uuid, size in share.get("cards", ())},
                "warning": "; ".join(filter(None, (warning(row.reserved, row.memory), card_trouble(row)))),
            }
            for row in rows
        ],
    }


def card_trouble(row: Replica) -> str:
    """Words where a replica takes more of its cards than it holds. vLLM's memory there is never learned."""
    held = sum(size for share in row.shares for _, size in share.get("cards", ()))
    return card_warning(held, row.card_memory, learned=row.serve.get("engine") != "vllm")


def _profile(model: CatalogModel, profile: CatalogProfile, sizes: Mapping[str, Measured]) -> dict[str, Any]:
    serve = serve_of(model, profile)
    view = profile_view(model, profile, serve, sizes)
    seen, of_cards = sizes.get(view.digest, (None, None))
    as_measured = bool(of_cards) and not view.even
    return {
        "id": profile.profile_id,
        "name": profile.name,
        "engine": profile.engine,
        "cores": profile.threads,
        "memory": view.memory,
        "memory_source": _source(seen is not None, bool(profile.memory)),
        "memory_declared": profile.memory or None,
        "memory_measured": seen,
        "cards": view.cards,
        "card_memory": view.card_memory,
        "card_memory_measured": of_cards,
        "card_source": _source(as_measured, bool(profile.card_memory)) if view.cards else "",
        "layer": view.layer,
    }


def _source(as_measured: bool, declared: bool) -> str:
    return "measured" if as_measured else "declared" if declared else "estimated"
