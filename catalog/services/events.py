"""The one writer of events. Called inside the transaction of the change itself: no change without its event."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Count, Q

from catalog.models import Event

SECRETS = frozenset({"sha256", "former_sha256", "password", "sealed_private_key", "sealed_ca_key", "sealed_key"})
"""Columns that never stand in an event, whatever a caller passes."""

DECISIONS = 2_000
"""Events of decisions about one model, and as many of its replicas, that are kept however often something is decided."""


def append(
    *,
    actor: str,
    kind: str,
    subject_kind: str,
    subject_id: str,
    about: str = "",
    message: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    why: str = "",
) -> Event:
    """Record that `actor` did `kind` to a subject; `before` and `after` hold the fields that changed.

    `about`: id of the model whose replica the subject is, so that its decisions are found when the replica is gone.
    """
    return Event.objects.create(
        actor=actor[:200],
        kind=kind,
        subject_kind=subject_kind,
        subject_id=subject_id,
        about=about,
        message=message,
        before=plain(before),
        after=plain(after),
        why=why,
    )


def prune(*, before: datetime, limit: int) -> int:
    """Forget events of before this time, the oldest first, at most `limit`. Returns how many; the only way they go."""
    oldest = Event.objects.filter(at__lt=before).order_by("at", "id").values_list("pk", flat=True)[:limit]
    return Event.objects.filter(pk__in=list(oldest)).delete()[0]


def prune_decisions(*, limit: int) -> int:
    """Forget what was decided and seen of one model beyond the newest DECISIONS, at most `limit` of it. Returns how many.

    What people did stays, whatever else happened.
    """
    decided = Event.objects.filter(Q(actor="reconciler") | Q(actor__startswith="node:"))
    of_model = {"about": decided.exclude(about=""), "subject_id": decided.filter(subject_kind="model")}
    for column, rows in of_model.items():
        counts = rows.order_by().values_list(column).annotate(count=Count("pk"))
        for model_id, count in counts.filter(count__gt=DECISIONS):
            oldest = rows.filter(**{column: model_id}).order_by("at", "id").values_list("pk", flat=True)
            return Event.objects.filter(pk__in=list(oldest[: min(limit, count - DECISIONS)])).delete()[0]
    return 0


def plain(fields: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Fields as JSON keeps them: times as ISO text, rows by their id, secrets left out."""
    if fields is None:
        return None
    return {name: _plain(value) for name, value in fields.items() if name not in SECRETS}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(getattr(value, "pk", value))
