"""Measured memory: what replicas were seen to take is kept, and replaces what was estimated of their like."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max

from cluster.models import Measurement, Replica

SETTLED = timedelta(seconds=60)
"""An engine that has been ready for so long, and has worked, takes what it takes."""
KEPT = timedelta(days=30)
"""For so long without a replica of its kind a measurement is kept."""


def record(now: datetime) -> int:
    """Look at all replicas; how many measurements are new or larger. Four queries at most, and one for each of these.

    Only a replica that is the only one of its model on its node counts: several share the pages of the weights' file, and
    each seems to take a part of them only. What was measured never falls: how much an engine takes depends on its work.
    """
    before = now - SETTLED
    alone = (
        Replica.objects.filter(memory__isnull=False)
        .order_by()
        .values("model_id", "node_id")
        .annotate(
            count=Count("id"), replica=Max("id"), digest=Max("digest"), memory=Max("memory"), ready=Max("ready_at"),
            used=Max("last_used_at"),
        )
        .filter(count=1, ready__lte=before, used__isnull=False, memory__gt=0)
    )  # fmt: skip
    most: dict[str, Any] = {}
    for row in alone:
        if row["digest"] not in most or row["memory"] > most[row["digest"]]["memory"]:
            most[row["digest"]] = row
    known = dict(Measurement.objects.filter(digest__in=most).values_list("digest", "memory"))
    larger = {digest: row for digest, row in most.items() if row["memory"] > known.get(digest, 0)}
    for digest, row in larger.items():
        values = {"memory": row["memory"], "replica_id": row["replica"], "measured_at": now}
        Measurement.objects.update_or_create(digest=digest, defaults=values)
    return len(larger)


def prune(now: datetime) -> int:
    """Forget what nothing runs as any more."""
    old = Measurement.objects.filter(measured_at__lt=now - KEPT)
    return int(old.exclude(digest__in=Replica.objects.values("digest")).delete()[0])
