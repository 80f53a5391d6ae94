"""What the chat page offers, and the keys it lives on."""

from __future__ import annotations

from typing import Any

from catalog import selectors as catalog
from catalog.models import Adapter, ApiKey, Project
from llmgw_site.console.selectors.cluster import cluster


def first_project() -> Project | None:
    """The project that the console's own keys belong to: the oldest, which the first start made."""
    return Project.objects.order_by("created_at", "id").first()


def live_keys(*, name: str, created_by: str) -> list[ApiKey]:
    """Keys of this name that this actor issued and nobody revoked."""
    return list(ApiKey.objects.filter(name=name, created_by=created_by, revoked_at__isnull=True))


def chat_models() -> list[dict[str, Any]]:
    """Models that could be chatted with, their adapters, and aliases, those that answer now first: name, ready, state, why, facts."""
    found: list[dict[str, Any]] = []
    named: dict[str, list[str]] = {}
    for model_id, name in Adapter.objects.order_by("name").values_list("model_id", "name"):
        named.setdefault(model_id, []).append(name)
    for model in cluster().models:
        answers = model.state == "external" or model.status.ready > 0
        ready = answers and model.status.enabled and not model.embeddings
        facts = [model.engine, f"context {model.context:,} tokens" if model.context else ""]
        entry = {
            "name": model.name,
            "ready": ready,
            "state": "embeddings only" if model.embeddings else model.state,
            "why": "it answers /v1/embeddings, not chats" if model.embeddings else model.status.reason,
            "facts": " · ".join(fact for fact in facts if fact),
        }
        found.append(entry)
        for name in named.get(model.id, ()):
            found.append(
                {**entry, "name": name, "facts": " · ".join(filter(None, [f"adapter of {model.name}", *facts]))}
            )
    entries = {entry["name"]: entry for entry in found}
    for alias in catalog.alias_views():
        targets = [entries[name] for name, _ in alias.targets if name in entries]
        if targets:  # else what it stands for was made since the picture was
            best = next((entry for entry in targets if entry["ready"]), targets[0])
            told = ", ".join(entry["name"] for entry in targets)
            found.append({**best, "name": alias.name, "facts": f"stands for {told}"})
    return sorted(found, key=lambda item: (not item["ready"], item["name"]))
