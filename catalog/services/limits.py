"""Limits of the endpoint, at organisations, teams, projects and keys: set, removed, listed."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction
from django.db.models import QuerySet

from catalog import selectors
from catalog.models import ApiKey, Limit, Organisation, Project, Team
from catalog.services import rows
from llmgw_site.lib.errors import Kind, Refused

Limited = Organisation | Team | Project | ApiKey
FIGURES = ("requests_per_minute", "tokens_per_minute", "parallel")


@dataclass(frozen=True, kw_only=True)
class LimitRow:
    """A limit as it is shown. `path`: names from the organisation down."""

    limit: Limit
    kind: str
    id: str
    name: str
    path: tuple[str, ...]


def put(
    *,
    actor: str,
    of: Limited,
    requests_per_minute: int | None = None,
    tokens_per_minute: int | None = None,
    parallel: int | None = None,
    why: str = "",
) -> Limit:
    """The limit of a scope or a key, in place of the one it may have. What is left out is not limited. Raises Refused."""
    figures = dict(zip(FIGURES, (requests_per_minute, tokens_per_minute, parallel), strict=True))
    if all(value is None for value in figures.values()):
        text = "a limit needs requests_per_minute, tokens_per_minute or parallel; remove it to have none"
        raise Refused(Kind.INVALID, "invalid_value", f"requests_per_minute: {text}.", param="requests_per_minute")
    noun = rows.noun(of)
    with transaction.atomic():
        rows.lock(of)
        row = of_whom(of)
        if row is None:
            return rows.add(
                Limit(**{_column(of): of}, **figures), actor=actor, message=f"limit of the {noun} {of.name} set"
            )
        return rows.change(row, figures, actor=actor, message=f"limit of the {noun} {of.name} changed", why=why)


def remove(*, actor: str, of: Limited) -> None:
    """Limit it no longer. Raises Refused."""
    row = of_whom(of)
    if row is None:
        raise Refused(Kind.NOT_FOUND, "not_found", f"The {rows.noun(of)} {of.name} has no limit.")
    rows.remove(row, actor=actor, message=f"limit of the {rows.noun(of)} {of.name} removed")


def of_whom(of: Limited) -> Limit | None:
    return Limit.objects.filter(**{_column(of): of}).first()


def find(ref: str) -> Limited:
    """The organisation, team, project or key that is not revoked, by id, by name, or by `team:NAME`. Raises Refused."""
    kind, colon, name = ref.partition(":")
    keys: QuerySet[ApiKey] = selectors.keys().filter(revoked_at__isnull=True)
    if colon and kind == "key":
        return selectors.find(keys, name, noun="key")
    key = None if "\x00" in ref else keys.filter(pk=ref).first()
    if key is not None:
        return key
    try:
        scope: Limited = selectors.find_scope(ref)
        return scope
    except Refused as refused:
        if refused.kind is not Kind.NOT_FOUND or colon:
            raise
    try:
        return selectors.find(keys, ref, noun="key")
    except Refused as refused:
        if refused.kind is not Kind.NOT_FOUND:
            raise
        text = f"There is no organisation, team, project or key {ref[:128]!r}."
        raise Refused(Kind.NOT_FOUND, "not_found", text) from None


def shown(rows_: QuerySet[Limit] | None = None) -> tuple[LimitRow, ...]:
    """Every limit, in the order of the tree; those of revoked keys are of no use any more and left out. One query."""
    found = (Limit.objects.all() if rows_ is None else rows_).exclude(key__revoked_at__isnull=False)
    every = found.select_related(
        "organisation", "team__organisation", "project__team__organisation", "key__project__team__organisation"
    )
    return tuple(sorted((_row(item) for item in every), key=lambda row: (row.path, row.id)))


def show(of: Limited) -> LimitRow:
    """The limit of one. Raises Refused."""
    row = of_whom(of)
    if row is None:
        raise Refused(Kind.NOT_FOUND, "not_found", f"The {rows.noun(of)} {of.name} has no limit.")
    return _row(row)


def paths() -> tuple[tuple[str, str], ...]:
    """Id and path of everything that could have a limit, in the order of the tree. Four queries."""
    every: list[Limited] = [*selectors.organisations(), *selectors.teams(), *selectors.projects()]
    every += selectors.keys().filter(revoked_at__isnull=True)
    return tuple(sorted(((of.pk, " / ".join(path(of))) for of in every), key=lambda pair: (pair[1], pair[0])))


def kind(of: Limited) -> str:
    """organisation, team, project or key."""
    return rows.noun(of)


def path(of: Limited) -> tuple[str, ...]:
    """Names from the organisation down."""
    if isinstance(of, ApiKey):
        return (*path(of.project), of.name)
    if isinstance(of, Project):
        return (*path(of.team), of.name)
    if isinstance(of, Team):
        return (of.organisation.name, of.name)
    return (of.name,)


def _row(limit: Limit) -> LimitRow:
    of = limit.of
    return LimitRow(limit=limit, kind=kind(of), id=of.pk, name=of.name, path=path(of))


def _column(of: Limited) -> str:
    return "key" if isinstance(of, ApiKey) else str(of._meta.model_name)
