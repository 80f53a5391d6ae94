"""Reads of the catalogue, each with a fixed number of queries, however many rows there are."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, TypeVar

from django.contrib.auth import get_user_model
from django.db import models
from django.db.models import Count, Prefetch, Q, QuerySet

from catalog.domain import keys as secrets
from catalog.domain.budgets import Standing
from catalog.domain.types import (
    AdapterView,
    AdminView,
    AliasView,
    KeyView,
    LimitView,
    ModelView,
    PriceView,
    ProfileView,
    ProviderView,
    QuotaView,
    ScopeView,
)
from catalog.models import (
    Adapter,
    AdminToken,
    Alias,
    AliasTarget,
    ApiKey,
    Budget,
    Event,
    Limit,
    Model,
    Organisation,
    Profile,
    Project,
    Provider,
    Quota,
    RoleGrant,
    Team,
    Version,
)
from llmgw_site.lib.errors import Kind, Refused

Row = TypeVar("Row", bound=models.Model)
MICRO = 1_000_000
"""Millionths of a unit of the currency, in one."""

# --- views for the floors above


def key_views(*, now: datetime) -> tuple[KeyView, ...]:
    """Every text of a key that is neither revoked nor expired, and not of a user who was put out. One query.

    A key that was rotated has two texts until the former one ends, which is no later than the key itself.
    """
    rows = ApiKey.objects.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now), revoked_at__isnull=True)
    rows = rows.exclude(user__is_active=False).select_related("limit").order_by("pk")
    found: list[KeyView] = []
    for row in rows:
        view = KeyView(
            key_id=row.pk,
            sha256=row.sha256,
            prefix=row.prefix,
            project_id=row.project_id,
            models=None if row.models is None else tuple(row.models),
            expires_at=row.expires_at.timestamp() if row.expires_at else None,
            user_id="" if row.user_id is None else str(row.user_id),
            priority=row.priority,
            limit=_limit_view(row),
            name=row.name,
        )
        found.append(view)
        if row.former_sha256 and row.former_until and row.former_until > now:
            ends = min(item for item in (row.former_until.timestamp(), view.expires_at) if item is not None)
            former = dataclasses.replace(view, sha256=row.former_sha256, prefix=row.former_prefix, expires_at=ends)
            found.append(former)
    return tuple(found)


def tenancy_views() -> tuple[ScopeView, ...]:
    """Every project, and the teams and organisations above one. One query."""
    found: dict[str, ScopeView] = {}
    every = Project.objects.select_related("team__organisation__limit", "team__limit", "limit")
    for project in every.order_by("pk"):
        team, organisation = project.team, project.team.organisation
        found[project.pk] = _scope_view(project, team.pk)
        if team.pk not in found:
            found[team.pk] = _scope_view(team, organisation.pk)
        if organisation.pk not in found:
            found[organisation.pk] = _scope_view(organisation, "")
    return tuple(found.values())


def _scope_view(row: Organisation | Team | Project, parent: str) -> ScopeView:
    return ScopeView(
        scope_id=row.pk,
        kind=str(row._meta.model_name),
        name=row.name,
        parent=parent,
        models=None if row.allowed_models is None else tuple(row.allowed_models),
        limit=_limit_view(row),
        priority_class=row.priority_class,
    )


def _limit_view(row: Organisation | Team | Project | ApiKey) -> LimitView | None:
    found: Limit | None = getattr(row, "limit", None)
    if found is None:
        return None
    return LimitView(
        requests_per_minute=found.requests_per_minute,
        tokens_per_minute=found.tokens_per_minute,
        parallel=found.parallel,
    )


def key_prefixes(ids: Collection[str]) -> dict[str, str]:
    """The first characters of these keys, by id. One query."""
    return dict(ApiKey.objects.filter(pk__in=ids).values_list("pk", "prefix"))


def key_names(ids: Collection[str]) -> dict[str, str]:
    """What people call these keys, by id. One query."""
    return dict(ApiKey.objects.filter(pk__in=ids).values_list("pk", "name"))


def keys_called(text: str) -> QuerySet[ApiKey, str]:
    """Ids of the keys that have this name, or begin like that, now or before they were rotated; the revoked ones, too."""
    called = Q(name=text) | Q(prefix=text[: secrets.SHOWN]) | Q(former_prefix=text[: secrets.SHOWN])
    return ApiKey.objects.filter(called).order_by().values_list("pk", flat=True)


def user_names(ids: Collection[str]) -> dict[str, str]:
    """What these users sign in as, by id as records have it. One query, where an id could be one."""
    known = [int(id) for id in ids if id.isdecimal() and len(id) < 19]
    if not known:
        return {}
    return {str(pk): name for pk, name in get_user_model().objects.filter(pk__in=known).values_list("pk", "username")}


def projects_by_id(ids: Collection[str]) -> QuerySet[Project]:
    return Project.objects.select_related("team__organisation").filter(pk__in=ids)


def pressing_budgets() -> QuerySet[Budget]:
    """Those of which so much was spent, when it was noted last, that something follows."""
    return Budget.objects.exclude(standing=Standing.OK.value).order_by("pk")


def _price_view(row: Model) -> PriceView | None:
    if row.price_input is None or row.price_output is None:
        return None
    return PriceView(
        input=int(row.price_input * MICRO),
        output=int(row.price_output * MICRO),
        cached=None if row.price_cached is None else int(row.price_cached * MICRO),
    )


def model_views() -> tuple[ModelView, ...]:
    """Every model, enabled or not, with its enabled profiles and its adapters. Three queries."""
    profiles = Prefetch(
        "profiles", Profile.objects.filter(enabled=True).order_by("-priority", "name"), to_attr="usable_profiles"
    )
    return tuple(
        ModelView(
            model_id=row.pk,
            name=row.name,
            enabled=row.enabled,
            replicas=row.replicas,
            max_replicas=row.max_replicas,
            rest_after=row.rest_after,
            priority_class=row.priority_class,
            scope_id=row.project_id or row.team_id or row.organisation_id or "",
            created_at=row.created_at.timestamp(),
            updated_at=row.updated_at.timestamp(),
            weights_path=row.weights_path,
            weights_size=row.weights_size,
            weights_sha256=row.weights_sha256,
            embeddings=row.embeddings,
            first_byte_timeout=row.first_byte_timeout,
            idle_timeout=row.idle_timeout,
            queue_length=row.queue_length,
            queue_wait=row.queue_wait,
            fallbacks=tuple(row.fallbacks),
            price=_price_view(row),
            provider_id=row.provider_id or "",
            provider_model=row.provider_model,
            provider_enabled=row.provider is None or row.provider.enabled,
            owner=row.project.name if row.project else "",
            facts=row.facts,
            profiles=tuple(profile_view(profile) for profile in row.usable_profiles),
            version_id=row.version_id or "",
            first=row.version.first if row.version else "",
            projector=row.version.projector if row.version else "",
            adapters=tuple(_adapter_view(adapter) for adapter in row.adapters.all()),
        )
        for row in Model.objects.select_related("project", "provider", "version")
        .defer("version__manifest", "version__facts")
        .prefetch_related(profiles, Prefetch("adapters", adapters()))
        .order_by("name")
    )


def _adapter_view(row: Adapter) -> AdapterView:
    return AdapterView(
        name=row.name,
        created_at=row.created_at.timestamp(),
        path=row.version.first if row.version else row.path,
        version_id=row.version_id or "",
        former_id=row.previous_id or "",
        former_path=row.previous.first if row.previous else row.former_path,
        size=row.size,
        scale=row.scale,
        rank=row.facts.get("rank") or 0,
        format=row.facts.get("format", ""),
    )


def profile_view(row: Profile) -> ProfileView:
    """A profile as it is, or would be."""
    return ProfileView(
        profile_id=row.pk,
        name=row.name,
        engine=row.engine,
        priority=row.priority,
        context=row.context,
        slots=row.slots,
        threads=row.threads,
        memory=row.memory,
        args=tuple(row.args),
        env=row.env,
        start_timeout=row.start_timeout,
        drain_timeout=row.drain_timeout,
        nodes=tuple(row.nodes),
        labels=row.labels,
        gpus_per_node=row.gpus_per_node,
        tp=row.tp,
        pp=row.pp,
        card_classes=tuple(row.card_classes),
        card_memory=row.card_memory,
        measured_tps=row.measured_tps,
        measured_concurrency=row.measured_concurrency,
    )


def alias_views() -> tuple[AliasView, ...]:
    """Every alias with what it stands for, all by name: targets that are made within a millisecond have no other order. One
    query."""
    rows = AliasTarget.objects.values_list("alias__name", "alias__created_at", "model__name", "adapter__name", "weight")
    found: dict[str, AliasView] = {}
    for name, created_at, model, adapter, weight in sorted(rows, key=lambda row: (row[0], row[2] or row[3])):
        view = found.get(name) or AliasView(name=name, created_at=created_at.timestamp(), targets=())
        found[name] = dataclasses.replace(view, targets=(*view.targets, (model or adapter, weight)))
    return tuple(found.values())


def scope_views() -> tuple[QuotaView, ...]:
    """The whole tenancy tree with its quotas; none of it where no quota is set. At most four queries."""
    quotas = {item.project_id or item.team_id or item.organisation_id: item for item in Quota.objects.all()}
    if not quotas:
        return ()
    rows: list[tuple[Organisation | Team | Project, str, str]] = [
        *((row, "organisation", "") for row in Organisation.objects.all()),
        *((row, "team", row.organisation_id) for row in Team.objects.all()),
        *((row, "project", row.team_id) for row in Project.objects.all()),
    ]
    return tuple(
        QuotaView(
            scope_id=row.pk,
            kind=kind,
            name=row.name,
            parent_id=parent,
            guarantee=quotas[row.pk].guarantee if row.pk in quotas else {},
            limit=quotas[row.pk].limit if row.pk in quotas else {},
        )
        for row, kind, parent in rows
    )


def provider_views() -> tuple[ProviderView, ...]:
    """Every provider that is enabled, without its key. One query."""
    return tuple(
        ProviderView(
            provider_id=row.pk, name=row.name, url=row.url, api_key_file=row.api_key_file, key_digest=row.key_digest
        )
        for row in Provider.objects.filter(enabled=True).defer("sealed_key").order_by("pk")
    )


def sealed_keys() -> dict[str, str]:
    """Keys of the enabled providers that have one, as they are sealed at rest, by the provider's id. One query."""
    rows = Provider.objects.filter(enabled=True).exclude(sealed_key="")
    return dict(rows.values_list("pk", "sealed_key"))


def admin_views(*, now: datetime) -> tuple[AdminView, ...]:
    """Tokens of active superusers that are neither revoked nor expired. One query."""
    rows = AdminToken.objects.filter(
        revoked_at__isnull=True, expires_at__gt=now, user__is_active=True, user__is_superuser=True
    )
    return tuple(
        AdminView(
            token_id=row.pk, sha256=row.sha256, user=row.user.get_username(), expires_at=row.expires_at.timestamp()
        )
        for row in rows.select_related("user").order_by("pk")
    )


# --- lists: what their rows show comes with them


def organisations() -> QuerySet[Organisation]:
    return Organisation.objects.annotate(team_count=Count("teams")).order_by("name")


def teams() -> QuerySet[Team]:
    return (
        Team.objects.select_related("organisation")
        .annotate(project_count=Count("projects"))
        .order_by("organisation__name", "name")
    )


def projects() -> QuerySet[Project]:
    live = Count("keys", filter=Q(keys__revoked_at__isnull=True))
    return (
        Project.objects.select_related("team__organisation")
        .annotate(key_count=live)
        .order_by("team__name", "name", "id")
    )


def keys() -> QuerySet[ApiKey]:
    return ApiKey.objects.select_related("project__team__organisation", "user")


def role_grants() -> QuerySet[RoleGrant]:
    return RoleGrant.objects.select_related("user", "organisation", "team", "project")


def admin_tokens() -> QuerySet[AdminToken]:
    return AdminToken.objects.select_related("user")


def model_rows() -> QuerySet[Model]:
    return Model.objects.order_by("name")


def models_with_profiles() -> QuerySet[Model]:
    rows = Model.objects.select_related("project", "team", "organisation", "provider", "version", "previous")
    unread = [f"{version}__{column}" for version in ("version", "previous") for column in ("manifest", "facts")]
    return rows.defer(*unread).prefetch_related("profiles")


def adapters() -> QuerySet[Adapter]:
    rows = Adapter.objects.select_related("model", "version", "previous").order_by("name")
    unread = [f"{version}__{column}" for version in ("version", "previous") for column in ("manifest", "facts")]
    return rows.defer(*unread)


def aliases() -> QuerySet[Alias]:
    """With what they stand for, the largest share first."""
    targets = AliasTarget.objects.select_related("model", "adapter__model").defer(
        "model__facts", "adapter__model__facts"
    )
    return Alias.objects.prefetch_related(Prefetch("targets", targets.order_by("-weight", "id")))


def profiles() -> QuerySet[Profile]:
    return Profile.objects.select_related("model")


def versions() -> QuerySet[Version]:
    """Weights that the cluster fetches; their lists of files only where they are looked at."""
    return Version.objects.defer("manifest")


def held_repositories(names: Iterable[str]) -> frozenset[str]:
    """Those of these repositories of which the cluster has a version, of whichever commit."""
    rows = Version.objects.filter(repository__in=list(names))
    return frozenset(rows.values_list("repository", flat=True).distinct())


def providers() -> QuerySet[Provider]:
    return Provider.objects.annotate(model_count=Count("models")).order_by("name")


def events() -> QuerySet[Event]:
    return Event.objects.all()


def events_about(model_id: str) -> QuerySet[Event]:
    """What was decided and changed of a model and its replicas, newest first."""
    return Event.objects.filter(Q(subject_kind="model", subject_id=model_id) | Q(about=model_id))


# --- one row by id or name


def find(rows: QuerySet[Row], ref: str, *, noun: str, by: str = "name") -> Row:
    """The row whose id is `ref`, else the one whose name it is; of teams and projects (`ABOVE`) else the one whose path it is, or
    the path's end, as `search/web`. Raises Refused NOT_FOUND, or CONFLICT for several."""
    found = [] if "\x00" in ref else list(rows.filter(Q(pk=ref) | Q(**{by: ref}))[:3])
    columns, names = ("name", *getattr(rows.model, "ABOVE", ())), [name.strip() for name in ref.split("/")][::-1]
    if not found and "\x00" not in ref and 1 < len(names) <= len(columns):
        found = list(rows.filter(**dict(zip(columns, names, strict=False)))[:3])
    exact = [row for row in found if row.pk == ref] or found
    if not exact:
        raise Refused(Kind.NOT_FOUND, "not_found", f"There is no {noun} {ref[:128]!r}.")
    if len(exact) > 1:
        more = (
            f", or write {columns[1].partition('__')[0].upper()}/{ref}" if len(columns) > 1 and "/" not in ref else ""
        )
        raise Refused(Kind.CONFLICT, "ambiguous_name", f"Several {noun}s are named {ref!r}: give the id{more}.")
    return exact[0]


def find_user(name: str) -> Any:
    """The active user of this name. Raises Refused."""
    user = get_user_model().objects.filter(username=name.replace("\x00", "\ufffd"), is_active=True).first()
    if user is None:
        text = f"user: there is no active user {name[:150]!r}: add them on the console's page Users, or have them sign in there."
        raise Refused(Kind.INVALID, "invalid_value", text, param="user")
    return user


def only_project(projects: QuerySet[Project] | None = None) -> Project:
    """The project to take where none was named: the only one of these, or the only one named `default` (`llmgw up` makes it).

    Raises Refused where it has to be named.
    """
    projects = Project.objects.all() if projects is None else projects
    rows = list(projects[:2])
    if len(rows) > 1:
        rows = list(projects.filter(name="default")[:2]) or rows
    if len(rows) != 1:
        problem = "there are several" if rows else "there is none yet"
        raise Refused(
            Kind.INVALID, "project_needed", f"No project was named, and {problem}: name one.", param="project"
        )
    return rows[0]
