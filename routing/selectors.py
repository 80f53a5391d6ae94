"""Reads of routing: the snapshot compiled from the floors below, and usage."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import orjson
from django.conf import settings
from django.core.paginator import Paginator
from django.db import connection
from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import TruncMonth
from django.utils.functional import cached_property

from catalog import selectors as catalog
from catalog.domain.budgets import span
from catalog.domain.types import LimitView, ModelView, PriceView
from cluster import selectors as cluster
from cluster.domain.explain import ModelStatus
from cluster.domain.types import World
from cluster.models import Node, Replica
from cluster.selectors.ways import adapter_file
from cluster.wire import Weights, to_dict
from llmgw_site.lib.errors import Kind, Refused
from routing.domain import reports
from routing.domain.lines import fields_of
from routing.domain.records import UsageRecord as Record
from routing.domain.rollups import SUMS
from routing.domain.snapshot import (
    AdapterEntry,
    AdminEntry,
    AliasEntry,
    BudgetEntry,
    External,
    KeyEntry,
    LimitEntry,
    ModelEntry,
    Placed,
    PriceEntry,
    ProviderEntry,
    ScopeEntry,
    Snapshot,
    TargetEntry,
)
from routing.domain.tenancy import told as told_scopes
from routing.domain.timeline import Span, spans
from routing.models import PublishedSnapshot, UsageDay, UsageQuarter, UsageRecord


@dataclass(frozen=True)
class Mark:
    """What tells a published snapshot from others."""

    epoch: str
    counter: int
    digest: str

    @property
    def version(self) -> str:
        return f"{self.epoch}:{self.counter}"


def published() -> PublishedSnapshot | None:
    return PublishedSnapshot.objects.filter(id=PublishedSnapshot.ONLY).first()


def published_mark() -> Mark | None:
    """Of the published snapshot, without its megabytes; None before the first. One query."""
    rows = PublishedSnapshot.objects.filter(id=PublishedSnapshot.ONLY)
    return next((Mark(*row) for row in rows.values_list("epoch", "counter", "digest")), None)


def published_version() -> str:
    """Version of the published snapshot; empty before the first."""
    with connection.cursor() as cursor:  # asked for by every heartbeat, so without the ORM's work
        cursor.execute("SELECT epoch, counter FROM routing_publishedsnapshot WHERE id = %s", [PublishedSnapshot.ONLY])
        row = cursor.fetchone()
    return f"{row[0]}:{row[1]}" if row else ""


def compile_snapshot(
    *, now: float, world: World | None = None, statuses: Mapping[str, ModelStatus] | None = None
) -> Snapshot:
    """The present view of keys and models, without its version. Nine queries, however many rows there are.

    `world`, `statuses`: how models and replicas stand as of `now`, where that is known; else it is read and planned here.
    """
    if world is None or statuses is None:
        world = cluster.world(now)
        statuses = cluster.statuses(world, now)[1]
    states = {item.id: world.state(item).value for item in world.replicas}
    placed: dict[str, list[Placed]] = {}
    contexts: dict[str, int] = {}
    running = Replica.objects.filter(run=True).order_by("id")
    for model_id, replica_id, node_id, slots, context, measured in running.values_list(
        "model_id", "id", "node_id", "slots", "context", "profile__measured_concurrency"
    ):
        if replica_id not in states:
            continue  # placed since the picture was made
        entry = Placed(
            replica_id=replica_id,
            node_id=node_id,
            state=states[replica_id],
            slots=slots or 1,
            concurrency=measured or 0.0,
        )
        placed.setdefault(model_id, []).append(entry)
        if context:
            contexts[model_id] = min(context, contexts.get(model_id, context))
    moment = datetime.fromtimestamp(now, tz=UTC)
    keys = catalog.key_views(now=moment)
    purses = _purses(moment)
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
                user=key.user_id,
                priority=key.priority,
                limit=_limit(key.limit),
                name=key.name if key.limit is not None or key.key_id in purses else "",
                budgets=purses.get(key.key_id, ()),
            )
            for key in keys
        ),
        models=tuple(
            _model(item, statuses[item.model_id], placed.get(item.model_id, []), contexts.get(item.model_id))
            for item in catalog.model_views()
            if item.model_id in statuses
        ),
        admins=tuple(
            AdminEntry(token_id=item.token_id, sha256=item.sha256, user=item.user, expires_at=item.expires_at)
            for item in catalog.admin_views(now=moment)
        ),
        providers=providers(),
        scopes=_scopes({key.project_id for key in keys}, purses),
        aliases=_aliases(),
    )


def _purses(now: datetime) -> dict[str, tuple[BudgetEntry, ...]]:
    """By whose they are, the budgets that something follows from: of this period, and as they were noted last. One query."""
    found: dict[str, tuple[BudgetEntry, ...]] = {}
    for row in catalog.pressing_budgets():
        period = span(row.period, row.tz, now)
        if row.since != period.start:
            continue
        entry = BudgetEntry(
            budget_id=row.pk,
            period=row.period,
            amount=row.micro,
            spent=row.spent,
            resets_at=period.end.timestamp(),
            hard=row.hard,
            currency=settings.CONFIG.currency,
        )
        found[row.of_id] = (*found.get(row.of_id, ()), entry)
    return found


def spent(since: datetime, until: datetime) -> dict[tuple[str, str], int]:
    """What was spent from `since` until `until`, by project and key, in millionths of the currency. Two queries.

    Whole days of UTC from the sums of days, what lies beside them from those of quarters of an hour.
    """
    midnight = since.replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight if since == midnight else midnight + timedelta(days=1)
    last = until.replace(hour=0, minute=0, second=0, microsecond=0)
    beside = Q(start__gte=since, start__lte=until)
    found: dict[tuple[str, str], int] = {}
    if first < last:
        beside = Q(start__gte=since, start__lt=first) | Q(
            start__gte=last, start__lte=until
        )  # two short ranges of an index
        days = UsageDay.objects.filter(day__gte=first.date(), day__lt=last.date(), cost__gt=0)
        for row in days.values_list("project_id", "key_id").annotate(Sum("cost")):
            found[row[0], row[1]] = row[2]
    quarters = UsageQuarter.objects.filter(beside)
    for row in quarters.values_list("project_id", "key_id").annotate(Sum("cost")):
        found[row[0], row[1]] = found.get((row[0], row[1]), 0) + row[2]
    return found


def scopes_above() -> dict[str, tuple[str, str]]:
    """Team and organisation of every project, by its id. One query."""
    rows = catalog.projects().order_by().values_list("pk", "team_id", "team__organisation_id")
    return {pk: (team, organisation) for pk, team, organisation in rows}


def _scopes(projects: Collection[str], purses: Mapping[str, tuple[BudgetEntry, ...]]) -> tuple[ScopeEntry, ...]:
    """What nodes are told of the scopes that these projects are in. One query."""
    entries = (
        ScopeEntry(
            scope_id=view.scope_id,
            kind=view.kind,
            name=view.name,
            parent=view.parent,
            models=view.models,
            limit=_limit(view.limit),
            budgets=purses.get(view.scope_id, ()),
            priority_class=view.priority_class,
        )
        for view in catalog.tenancy_views()
    )
    return told_scopes(entries, projects)


def _aliases() -> tuple[AliasEntry, ...]:
    """One query."""
    return tuple(
        AliasEntry(
            name=view.name,
            created=int(view.created_at),
            targets=tuple(TargetEntry(model=name, weight=weight) for name, weight in view.targets),
        )
        for view in catalog.alias_views()
    )


def _limit(view: LimitView | None) -> LimitEntry | None:
    if view is None:
        return None
    return LimitEntry(
        requests_per_minute=view.requests_per_minute, tokens_per_minute=view.tokens_per_minute, parallel=view.parallel
    )


def providers() -> tuple[ProviderEntry, ...]:
    """The external providers, without their keys. One query."""
    return tuple(
        ProviderEntry(
            provider_id=item.provider_id,
            name=item.name,
            url=item.url,
            key_file=item.api_key_file,
            key_digest=item.key_digest,
        )
        for item in catalog.provider_views()
    )


def _price(view: PriceView | None) -> PriceEntry | None:
    if view is None:
        return None
    return PriceEntry(input=view.input, output=view.output, cached=view.cached, currency=settings.CONFIG.currency)


def _model(model: ModelView, status: ModelStatus, placed: list[Placed], context: int | None) -> ModelEntry:
    return ModelEntry(
        name=model.name,
        created=int(model.created_at),
        owned_by=model.owner or "llmgw",
        enabled=model.enabled and model.provider_enabled,
        code=status.code,
        reason=status.public,
        replicas=tuple(item.replica_id for item in placed) if model.enabled else (),
        placed=tuple(placed) if model.enabled else (),
        context=context,
        embeddings=model.embeddings,
        first_byte_timeout=model.first_byte_timeout,
        idle_timeout=model.idle_timeout,
        queue_length=model.queue_length,
        queue_wait=model.queue_wait,
        fallbacks=model.fallbacks,
        price=_price(model.price),
        weights=model.weights_path,
        on_demand=model.replicas == 0 and bool(model.max_replicas),
        external=External(provider_id=model.provider_id, model=model.provider_model) if model.external else None,
        adapters=tuple(
            AdapterEntry(
                name=item.name,
                created=int(item.created_at),
                weights=adapter_file(item).weights.name,
                scale=item.scale,
                former=Weights(path=item.former_path, version=item.former_id).name
                if item.former_id or item.former_path
                else "",
            )
            for item in model.adapters
        ),
    )


_SIZE = re.compile(r"\b\d+(\.\d+)? (B|[KMGT]iB)\b")


def digest(snapshot: Snapshot) -> str:
    """Of everything that nodes act on: not the version, not the time, and no sizes in the words of a reason: how much
    memory is free somewhere changes with each heartbeat, and must not have a whole cluster fetch the snapshot anew."""
    told: dict[str, Any] = to_dict(snapshot)
    del told["version"], told["made_at"]
    for model in told["models"]:
        model["reason"] = _SIZE.sub("?", model["reason"])
    return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()


def usage() -> QuerySet[UsageRecord]:
    return UsageRecord.objects.all()


MOST_COUNTED = 100_000
"""Records that a list counts, and turns pages of: what lies further back is found by narrower filters."""


class Pages(Paginator):  # type: ignore[type-arg]  # it is no generic class when it runs
    """Of a list of records: counting ten million records for each day would take minutes."""

    @cached_property
    def count(self) -> int:
        records = cast("QuerySet[UsageRecord]", self.object_list)
        return records.order_by()[:MOST_COUNTED].count()


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


def days() -> QuerySet[UsageDay]:
    return UsageDay.objects.all()


def report(rows: QuerySet[UsageDay], by: Sequence[str]) -> list[dict[str, Any]]:
    """These sums, folded by what `reports.COLUMNS` names; with the names of keys and scopes that are still there.

    Raises Refused where it would have more rows than MOST_ROWS. Three queries at most.
    """
    columns = sorted({reports.COLUMNS[name] for name in by})
    if "month" in by:
        rows = rows.annotate(month=TruncMonth("day"))
    sums = rows.order_by().values_list(*columns).annotate(**{f"of_{name}": Sum(name) for name in SUMS})
    found = list(sums[: reports.MOST_ROWS + 1])
    if len(found) > reports.MOST_ROWS:
        text = f"There are more than {reports.MOST_ROWS:,} rows of that: ask for fewer days, or by less."
        raise Refused(Kind.INVALID, "report_too_large", text, param="by")
    scoped = {"project", "team", "organisation"} & set(by)
    projects = _projects({row[columns.index("project_id")] for row in found}) if scoped else {}
    told = reports.fold(found, columns, by, projects)
    names: dict[str, Mapping[str, str]] = {}
    if "key" in by:
        names["key"] = catalog.key_names({row["key"] for row in told})
    if "project" in by:
        names["project"] = reports.project_names(projects)
    if "team" in by:
        names["team"] = {item.team: item.team_name for item in projects.values()}
    if "organisation" in by:
        names["organisation"] = {item.organisation: item.organisation_name for item in projects.values()}
    for row in told:
        for kind, known in names.items():
            row[f"{kind}_name"] = known.get(row[kind], "")
    return told


def projects_of(**scopes: str) -> QuerySet[Any, str]:
    """Ids of the projects in a team or an organisation, by the column that names it."""
    return catalog.projects().filter(**scopes).order_by().values_list("pk", flat=True)


def _projects(ids: Collection[str]) -> dict[str, reports.Project]:
    return {
        row.pk: reports.Project(
            name=row.name,
            team=row.team_id,
            team_name=row.team.name,
            organisation=row.team.organisation_id,
            organisation_name=row.team.organisation.name,
        )
        for row in catalog.projects_by_id(ids)
    }


MOST_OTHERS = 20
"""Records that are looked at under one request id: a client may call all its requests the same."""


@dataclass(frozen=True)
class Followed:
    """One request, and what names the ids in it. `others`: ids of more records that its client gave the same request id."""

    record: UsageRecord
    key_name: str
    project: reports.Project
    node_name: str
    user_name: str
    spans: tuple[Span, ...]
    line: dict[str, Any]
    others: tuple[str, ...]


def follow(records: QuerySet[UsageRecord], ref: str) -> Followed:
    """The request whose record, or whose request id, is `ref`; of several the newest. Raises Refused NOT_FOUND."""
    asked = ref.replace("\x00", "\ufffd")
    row = records.filter(pk=asked).first()
    same = records.filter(request_id=asked if row is None else row.request_id)
    found = list(same.order_by("-started_at", "-record_id")[:MOST_OTHERS])
    row = row or next(iter(found), None)
    if row is None:
        text = (
            f"There is no record of a request {ref[:128]!r}: records come seconds after a request's end, "
            "and there is none where no key was known."
        )
        raise Refused(Kind.NOT_FOUND, "not_found", text)
    record = Record(
        **{item.name: getattr(row, item.name) for item in dataclasses.fields(Record) if item.name != "started_at"},
        started_at=row.started_at.timestamp(),
    )
    times = {name: getattr(row, name) for name in ("queue_s", "schedule_s", "first_token_s", "total_s")}
    return Followed(
        record=row,
        key_name=catalog.key_names({row.key_id}).get(row.key_id, ""),
        project=_projects({row.project_id}).get(row.project_id, reports.Project()),
        node_name=_node_name(row.node_id),
        user_name=catalog.user_names({row.user}).get(row.user, ""),
        spans=spans(**times, forwarded=bool(row.model_served)),
        line=fields_of(
            record, method="POST", model=row.model_served or row.model_asked, key=row.key_prefix, adapter=""
        ),
        others=tuple(item.pk for item in found if item.pk != row.pk),
    )


def _node_name(node_id: str) -> str:
    return next(iter(Node.objects.filter(pk=node_id).values_list("name", flat=True)), "")
