"""Reads of routing: the snapshot compiled from the floors below, and usage."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import orjson
from django.db.models import Count, Q, QuerySet, Sum

from catalog import selectors as catalog
from catalog.domain.types import ModelView
from cluster import selectors as cluster
from cluster.domain.explain import ModelStatus
from cluster.models import Replica
from cluster.wire import to_dict
from routing.domain.snapshot import KeyEntry, ModelEntry, Snapshot
from routing.models import PublishedSnapshot, UsageRecord


def published() -> PublishedSnapshot | None:
    return PublishedSnapshot.objects.filter(id=PublishedSnapshot.ONLY).first()


def published_version() -> str:
    """Version of the snapshot that nodes should hold; empty before the first."""
    row = PublishedSnapshot.objects.filter(id=PublishedSnapshot.ONLY).values_list("epoch", "counter").first()
    return f"{row[0]}:{row[1]}" if row else ""


def compile_snapshot(*, now: float) -> Snapshot:
    """The present view of keys and models, without its version. Nine queries, however many rows there are."""
    picture = cluster.world(now)
    _, statuses = cluster.statuses(picture, now)
    replicas: dict[str, list[str]] = {}
    contexts: dict[str, int] = {}
    running = Replica.objects.filter(run=True).order_by("id").values_list("model_id", "id", "context")
    for model_id, replica_id, context in running:
        replicas.setdefault(model_id, []).append(replica_id)
        if context:
            contexts[model_id] = min(context, contexts.get(model_id, context))
    return Snapshot(
        version="",
        made_at=now,
        keys=tuple(
            KeyEntry(
                key_id=key.key_id,
                sha256=key.sha256,
                prefix=key.prefix,
                project_id=key.project_id,
                models=key.models,
                expires_at=key.expires_at,
            )
            for key in catalog.key_views(now=datetime.fromtimestamp(now, tz=UTC))
        ),
        models=tuple(
            _model(item, statuses[item.model_id], replicas.get(item.model_id, []), contexts.get(item.model_id))
            for item in catalog.model_views()
            if item.model_id in statuses
        ),
    )


def _model(model: ModelView, status: ModelStatus, replicas: list[str], context: int | None) -> ModelEntry:
    return ModelEntry(
        name=model.name,
        created=int(model.created_at),
        owned_by=model.owner or "llmgw",
        enabled=model.enabled,
        code=status.code,
        reason=status.reason,
        replicas=tuple(replicas) if model.enabled else (),
        context=context,
        embeddings=model.embeddings,
    )


def digest(snapshot: Snapshot) -> str:
    """Of everything that nodes act on: not the version, not the time."""
    told: dict[str, Any] = to_dict(snapshot)
    del told["version"], told["made_at"]
    return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()


def usage() -> QuerySet[UsageRecord]:
    return UsageRecord.objects.all()


def summary(records: QuerySet[UsageRecord], by: str) -> list[dict[str, Any]]:
    """Requests and tokens of these records, by one of their columns, the busiest first."""
    rows = (
        records.order_by()
        .values(by)
        .annotate(
            requests=Count("record_id"),
            failed=Count("record_id", filter=Q(outcome="failed")),
            prompt_tokens=Sum("prompt_tokens"),
            completion_tokens=Sum("completion_tokens"),
        )
    )
    return [{"value": row.pop(by), **row} for row in rows.order_by("-requests", by)]
