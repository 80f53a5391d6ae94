"""Writes of routing: the published snapshot, what of it a node is given, and usage records."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Model

from catalog import selectors as catalog
from catalog.domain.budgets import Span, Standing, moved, span, standing
from catalog.models import Budget
from catalog.services import budgets, holders, keys, providers
from catalog.services.access import EVERYWHERE, Reach
from cluster import selectors as cluster
from cluster.domain.explain import ModelStatus
from cluster.domain.modules import Module, ModuleState
from cluster.domain.types import World
from cluster.models import Node
from cluster.services import identity, setup
from cluster.services.locks import plan_lock
from cluster.wire import WireError, from_dict, to_dict
from llmgw_site.lib.logs import event
from llmgw_site.lib.sealing import WrongSecret, seal
from routing import selectors
from routing.domain import costs, rollups
from routing.domain.records import Outcome, UsageRecord
from routing.domain.snapshot import ProviderEntry
from routing.models import PublishedSnapshot, UsageDay, UsageQuarter
from routing.models import UsageRecord as Row
from routing.selectors import Mark

log = logging.getLogger(__name__)

MAX_BATCH = 500
"""Records in one call."""
TRIES = 3
"""Looks of one publisher before it keeps the others out."""
_OUTCOMES = frozenset(Outcome)


@dataclass(frozen=True)
class Look:
    """What somebody has read and decided anyway, for the snapshot of that moment. `mark`: what was published before."""

    mark: Mark | None
    now: float
    world: World
    statuses: Mapping[str, ModelStatus]


def look() -> Look:
    """The present one. It costs a plan: no lock may be held meanwhile."""
    mark, now = selectors.published_mark(), cluster.database_now()
    world = cluster.world(now)
    return Look(mark, now, world, cluster.statuses(world, now)[1])


def publish(seen: Look | None = None) -> str:
    """Compile the snapshot and publish it if its content is new. Returns the version that is current now.

    `seen`: a look that was made for something else. A version is written under the plan lock, and only if none was since
    the look began; else there is another look. So of two publishers the one that saw older rows can never have the higher
    counter, and nobody waits for a lock while models are planned. Who loses often in a row looks under the lock.
    """
    for _ in range(TRIES):
        version = _published(seen or look())
        if version:
            return version
        seen = None
    with plan_lock():
        return _published(look(), locked=True) or selectors.published_version()


def _published(seen: Look, *, locked: bool = False) -> str:
    """The version that has what was seen; empty where another was published, or the store renamed, meanwhile."""
    epoch = identity.ensure_identity().epoch
    snapshot = selectors.compile_snapshot(now=seen.now, world=seen.world, statuses=seen.statuses)
    fresh = selectors.digest(snapshot)
    current = selectors.published_mark()
    if current is not None and (current.epoch, current.digest) == (epoch, fresh):
        return current.version
    if current != seen.mark:
        return ""
    with nullcontext() if locked else plan_lock():
        if selectors.published_mark() != seen.mark or identity.ensure_identity().epoch != epoch:
            return ""
        counter = seen.mark.counter + 1 if seen.mark is not None and seen.mark.epoch == epoch else 1
        version = f"{epoch}:{counter}"
        told = to_dict(dataclasses.replace(snapshot, version=version))
        del told["providers"]  # for some nodes only: see payload_for
        PublishedSnapshot.objects.update_or_create(
            id=PublishedSnapshot.ONLY,
            defaults={
                "epoch": epoch,
                "counter": counter,
                "digest": fresh,
                "payload": orjson.dumps(told).decode(),
                "made_at": datetime.fromtimestamp(seen.now, tz=UTC),
            },
        )
    return version


def version_for(node: Node | None) -> str:
    """Version of the snapshot that this node should hold; empty before the first.

    A node that runs the cloud module is given more, and sealed to it: so its version is another, and it asks anew when
    the module starts, or when the node has joined with a new key.
    """
    version = selectors.published_version()
    return version + _mark(node) if version and node is not None and reads_providers(node) else version


def payload_for(*, node: Node, key: bytes) -> bytes:
    """The published snapshot as this node is given it; `key`: the pairwise key of the node and the controllers.

    The providers are put behind the rest without reading it: a snapshot may have megabytes.
    """
    row = selectors.published()
    if row is None:
        publish()
        row = selectors.published()
    payload = row.payload.encode() if row else b""
    if row is None or not reads_providers(node):
        return payload
    named = payload.replace(row.version.encode(), (row.version + _mark(node)).encode(), 1)
    return named[:-1] + b',"providers":' + orjson.dumps([to_dict(item) for item in _sealed_to(key)]) + b"}"


def reads_providers(node: Node) -> bool:
    """Whether this node may have the providers' keys: it runs the cloud module, and the cluster setup agrees."""
    if not any(item.get("name") == Module.CLOUD and item.get("state") == ModuleState.RUNNING for item in node.modules):
        return False
    roles = setup.roles_for(node)
    return roles is None or Module.CLOUD in roles


def _sealed_to(key: bytes) -> list[ProviderEntry]:
    """The providers, each with its key sealed anew, for the one node that shares `key` with the controllers."""
    kept, entries = catalog.sealed_keys(), []
    for entry in selectors.providers():
        sealed = kept.get(entry.provider_id)
        try:
            text = providers.unsealed(entry.provider_id, sealed) if sealed else ""
        except WrongSecret:
            event(log, "provider_key_sealed", level=logging.ERROR, provider=entry.name, cure="set the key anew")
            text = ""
        fresh = seal(text, secret=key, about=entry.provider_id) if text else ""
        entries.append(dataclasses.replace(entry, sealed_key=fresh))
    return entries


def _mark(node: Node) -> str:
    return "." + hashlib.sha256(f"{node.id} {node.public_key}".encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Stored:
    """Ids that are committed now, and what could not be read: a record like that must not hold up the others."""

    ids: list[str]
    refused: list[dict[str, str]]


def store_usage(*, node_id: str, records: Sequence[dict[str, Any]]) -> Stored:
    """Store closed records, each once by its `record_id`; one that is known already counts as stored.

    Raises WireError for more than MAX_BATCH records.
    """
    if len(records) > MAX_BATCH:
        raise WireError(f"UsageBatch.records: at most {MAX_BATCH} records a call, not {len(records)}")
    rows: dict[str, Row] = {}
    refused: list[dict[str, str]] = []
    for number, item in enumerate(records):
        try:
            row = _row(from_dict(UsageRecord, item, f"records[{number}]"), node_id)
        except WireError as error:
            refused.append({"record_id": str(item.get("record_id", ""))[:64], "reason": str(error)})
        else:
            rows.setdefault(row.record_id, row)
    if rows:
        prefixes = catalog.key_prefixes({row.key_id for row in rows.values() if row.key_id})
        for row in rows.values():
            row.key_prefix = prefixes.get(row.key_id, "")
        with transaction.atomic():
            _roll_up(_insert(rows))
            used: dict[str, datetime] = {}
            for row in rows.values():
                if row.key_id:
                    used[row.key_id] = max(row.started_at, used.get(row.key_id, row.started_at))
            keys.touch(used=used)
    for wrong in refused:
        event(log, "usage_record_refused", level=logging.ERROR, node_id=node_id, **wrong)
    return Stored(list(rows), refused)


def _insert(rows: Mapping[str, Row]) -> list[Row]:
    """Store those that are not there yet, and say which these were: only they may count in the roll-ups.

    One that another batch stores at this moment is seen as soon as that is committed; then it is looked again.
    """
    for attempt in range(TRIES, 0, -1):
        known = set(Row.objects.filter(pk__in=rows).values_list("pk", flat=True))
        fresh = [rows[record_id] for record_id in sorted(rows.keys() - known)]
        try:
            with transaction.atomic():
                Row.objects.bulk_create(fresh)
        except IntegrityError:
            if attempt == 1:
                raise
        else:
            return fresh
    raise AssertionError  # the loop returns or raises


def _roll_up(fresh: Sequence[Row]) -> None:
    """Add new records to the sums, in the transaction that stores them."""
    days, quarters = rollups.by_day(fresh), rollups.by_quarter(fresh)
    on_day, on_time = connection.ops.adapt_datefield_value, connection.ops.adapt_datetimefield_value
    _add(
        UsageDay, rollups.Day._fields, rollups.SUMS, [(on_day(key.day), *key[1:], *sums) for key, sums in days.items()]
    )
    spent = [(on_time(key.start), *key[1:], cost) for key, cost in quarters.items()]
    _add(UsageQuarter, rollups.Quarter._fields, ("cost",), spent)


def _add(table: type[Model], keys: Sequence[str], sums: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Add these rows' sums to those of the same keys. One statement: the ORM has none that adds."""
    if not rows:
        return
    name, columns = table._meta.db_table, (*keys, *sums)
    marks = ", ".join([f"({', '.join(['%s'] * len(columns))})"] * len(rows))
    more = ", ".join(f"{column} = {name}.{column} + excluded.{column}" for column in sums)
    into = f"INSERT INTO {name} ({', '.join(columns)}) VALUES {marks}"  # noqa: S608 - names of our own columns
    with connection.cursor() as cursor:
        cursor.execute(
            f"{into} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {more}", [value for row in rows for value in row]
        )


@dataclass(frozen=True)
class BudgetNow:
    """A budget, and how it stands in the period that it is now; `spent` in millionths."""

    row: Budget
    span: Span
    spent: int
    standing: Standing

    @property
    def spent_units(self) -> Decimal:
        return Decimal(self.spent).scaleb(-6)


def budgets_now(now: datetime, held: Reach = EVERYWHERE) -> list[BudgetNow]:
    """Every budget in reach, in the order of the tree. Two queries, and two for each begin of a period, however many there are."""
    every = budgets.every(held)
    if not every:
        return []
    spans = {(row.period, row.zone): span(row.period, row.tz, now) for row in every}
    above = selectors.scopes_above()
    totals: dict[datetime, dict[str, int]] = {}
    for start in {item.start for item in spans.values()}:
        total = totals[start] = {}
        for (project_id, key_id), cost in selectors.spent(start, now).items():
            for holder in (key_id, project_id, *above.get(project_id, ())):
                total[holder] = total.get(holder, 0) + cost
    found = []
    for row in every:
        period = spans[row.period, row.zone]
        spent = totals[period.start].get(row.of_id, 0)
        found.append(BudgetNow(row, period, spent, standing(spent, row.micro, row.warn_at)))
    return found


def look_at_budgets(now: datetime) -> int:
    """Note of every budget how it stands where that is news: for nodes to be told, and as an event. Returns of how many."""
    noted = 0
    for item in budgets_now(now):
        row = item.row
        if item.standing != row.standing or row.since != item.span.start or moved(row.spent, item.spent, row.micro):
            words = _standing_words(row, item.standing, item.spent)
            budgets.note(row, standing=item.standing, spent=item.spent, span=item.span, words=words)
            noted += 1
    return noted


def _standing_words(row: Budget, fresh: Standing, spent: int) -> str:
    what = f"budget of the {holders.kind(row.of)} {row.of.name} a {row.period}"
    figures = f"{costs.told(spent, settings.CONFIG.currency)} of {costs.told(row.micro, settings.CONFIG.currency)}"
    word = {Standing.OK: "has room again", Standing.WARNED: "is nearly spent", Standing.SPENT: "is spent"}[fresh]
    return f"{what} {word}: {figures}"


def prune_rollups(*, before: datetime, limit: int) -> int:
    """Forget sums of days before this one, at most `limit`. Returns how many."""
    oldest = UsageDay.objects.filter(day__lt=before.date()).order_by("day").values_list("pk", flat=True)[:limit]
    return UsageDay.objects.filter(pk__in=list(oldest)).delete()[0]


def prune_quarters(*, before: datetime, limit: int) -> int:
    """Forget what was spent in quarters before this moment, at most `limit`. Returns how many."""
    oldest = UsageQuarter.objects.filter(start__lt=before).order_by("start").values_list("pk", flat=True)[:limit]
    return UsageQuarter.objects.filter(pk__in=list(oldest)).delete()[0]


def prune_usage(*, before: datetime, limit: int) -> int:
    """Forget records of requests before this time, the oldest first, at most `limit`. Returns how many.

    One that came later than that stays as long as any other: its node's clock may have been wrong.
    """
    old = Row.objects.filter(started_at__lt=before, stored_at__lt=before)
    oldest = old.order_by("started_at", "record_id").values_list("pk", flat=True)[:limit]
    return Row.objects.filter(pk__in=list(oldest)).delete()[0]


def _row(record: UsageRecord, node_id: str) -> Row:
    """A record as a row; texts and figures that are too long for their columns are cut to what these hold."""
    if not record.record_id:
        raise WireError("record_id: empty")
    values: dict[str, Any] = {name: getattr(record, name) for name in _FIELDS}
    for name, value in values.items():
        if isinstance(value, str):
            values[name] = value[: _LENGTH[name]]
        elif isinstance(value, int) and not isinstance(value, bool):
            values[name] = min(max(0, value), _MOST.get(name, 2**63 - 1))
    if record.outcome not in _OUTCOMES:  # of a newer node
        values["outcome"] = Outcome.FAILED.value
    try:
        values["started_at"] = datetime.fromtimestamp(record.started_at, tz=UTC)
    except (ValueError, OverflowError, OSError):
        raise WireError(f"started_at: {record.started_at!r} is no time") from None
    return Row(reported_by=node_id, **values)


MOST_COUNTED = 1 << 40
"""Tokens, and millionths of the currency, that one request can count for: sums of millions of them are still numbers."""
_MOST = {"status": 999, **dict.fromkeys(rollups.SUMS, MOST_COUNTED)}
_FIELDS = tuple(field.name for field in dataclasses.fields(UsageRecord))
_LENGTH = {field.name: field.max_length for field in Row._meta.concrete_fields}
