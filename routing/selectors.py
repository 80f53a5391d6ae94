"""Reads of routing: the snapshot compiled from the floors below, and usage."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import Now

from catalog.models import ApiKey, Model
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
    """The present view of keys and models, without its version. Eight queries, however many rows there are."""
    picture = cluster.world(now)
    _, statuses = cluster.statuses(picture, now)
    replicas: dict[str, list[str]] = {}
    contexts: dict[str, int] = {}
    running = (
        Replica.objects.filter(run=True).order_by("id").values_list("model_id", "id", "context", "profile__context")
    )
    for model_id, replica_id, seen, asked in running:
        replicas.setdefault(model_id, []).append(replica_id)
        context = seen or asked
        if context:
            contexts[model_id] = min(context, contexts.get(model_id, context))
    return Snapshot(
        version="",
        made_at=now,
        keys=tuple(_key(row) for row in _valid_keys()),
        models=tuple(
            _model(row, statuses.get(row.id), tuple(replicas.get(row.id, ())), contexts.get(row.id))
            for row in Model.objects.order_by("name")
        ),
    )


def _valid_keys() -> QuerySet[ApiKey]:
    return ApiKey.objects.filter(
        Q(expires_at__isnull=True) | Q(expires_at__gt=Now()), revoked_at__isnull=True
    ).order_by("id")


def _key(row: ApiKey) -> KeyEntry:
    return KeyEntry(
        key_id=row.id,
        sha256=row.sha256,
        prefix=row.prefix,
        project_id=row.project_id,
        models=tuple(row.models) if row.models is not None else None,
        expires_at=row.expires_at.timestamp() if row.expires_at else None,
    )


def _model(row: Model, status: ModelStatus | None, replicas: tuple[str, ...], context: int | None) -> ModelEntry:
    return ModelEntry(
        name=row.name,
        created=int(row.created_at.timestamp()),
        enabled=row.enabled,
        code=status.code if status else "",
        reason=status.reason if status else "",
        replicas=replicas if row.enabled else (),
        context=context,
        embeddings=row.embeddings,
    )


def digest(snapshot: Snapshot) -> str:
    """Of everything that nodes act on: not the version, not the time."""
    told: dict[str, Any] = to_dict(snapshot)
    del told["version"], told["made_at"]
    return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()


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
