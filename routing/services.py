"""Writes of routing: the published snapshot, and usage records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
from django.db import transaction

from catalog.services import keys
from cluster import selectors as cluster
from cluster.services import identity
from cluster.services.locks import plan_lock
from cluster.wire import WireError, from_dict, to_dict
from routing import selectors
from routing.domain.records import Outcome, UsageRecord
from routing.models import PublishedSnapshot
from routing.models import UsageRecord as Row

MAX_BATCH = 500
"""Records in one call."""
_OUTCOMES = frozenset(Outcome)


def publish() -> str:
    """Compile the snapshot and publish it if its content is new. Returns the version that is current now.

    The version is written under the plan lock with a fresh compilation, so that of two publishers the one that saw
    older rows can never have the higher counter.
    """
    now = cluster.database_now()
    fresh = selectors.digest(selectors.compile_snapshot(now=now))
    current = selectors.published()
    if current is not None and current.digest == fresh:
        return current.version
    epoch = identity.ensure_identity().epoch
    with plan_lock():
        snapshot = selectors.compile_snapshot(now=now)
        fresh = selectors.digest(snapshot)
        current = selectors.published()
        if current is not None and current.digest == fresh and current.epoch == epoch:
            return current.version
        counter = current.counter + 1 if current is not None and current.epoch == epoch else 1
        version = f"{epoch}:{counter}"
        payload = orjson.dumps(to_dict(dataclasses.replace(snapshot, version=version))).decode()
        PublishedSnapshot.objects.update_or_create(
            id=PublishedSnapshot.ONLY,
            defaults={
                "epoch": epoch,
                "counter": counter,
                "digest": fresh,
                "payload": payload,
                "made_at": datetime.fromtimestamp(now, tz=UTC),
            },
        )
    return version


def store_usage(*, node_id: str, records: Sequence[dict[str, Any]]) -> list[str]:
    """Store closed records, each once by its `record_id`. Returns the ids that are committed now, known ones included.

    Raises WireError for a batch with something in it that is no record: nothing of it is stored.
    """
    if len(records) > MAX_BATCH:
        raise WireError(f"UsageBatch.records: at most {MAX_BATCH} records a call, not {len(records)}")
    rows = {
        record.record_id: _row(record, node_id)
        for record in (from_dict(UsageRecord, item, f"records[{number}]") for number, item in enumerate(records))
    }
    if rows:
        with transaction.atomic():
            Row.objects.bulk_create(rows.values(), ignore_conflicts=True)
            used: dict[str, datetime] = {}
            for row in rows.values():
                if row.key_id:
                    used[row.key_id] = max(row.started_at, used.get(row.key_id, row.started_at))
            keys.touch(used=used)
    return list(rows)


def _row(record: UsageRecord, node_id: str) -> Row:
    if not record.record_id or record.outcome not in _OUTCOMES:
        raise WireError(f"record {record.record_id[:64]!r}: outcome {record.outcome!r} is not known")
    values = dataclasses.asdict(record)
    for name, value in values.items():
        if isinstance(value, str):
            limit = Row._meta.get_field(name).max_length
            values[name] = value[:limit]
        elif isinstance(value, int) and not isinstance(value, bool):
            values[name] = max(0, value)
    values["started_at"] = datetime.fromtimestamp(record.started_at, tz=UTC)
    return Row(reported_by=node_id, **values)
