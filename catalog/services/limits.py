"""Limits of the endpoint, at organisations, teams, projects and keys: set, removed, listed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from catalog import selectors
from catalog.models import ApiKey, Limit, Organisation, Project, Team
from catalog.services import access, rows
from catalog.services.access import EVERYWHERE, Reach
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


def find(ref: str, held: Reach = EVERYWHERE) -> Limited:
    """The organisation, team, project or key that is not revoked, by id, by name, or by `team:NAME`, of those in reach.
    Raises Refused."""
    kind, colon, name = ref.partition(":")
    scopes = {name: held.of_rows(rows, paths) for name, (rows, paths) in _scopes().items()}
    keys: QuerySet[ApiKey] = held.of_rows(selectors.keys().filter(revoked_at__isnull=True), access.IN_PROJECT)
    if colon and kind == "key":
        return selectors.find(keys, name, noun="key")
    key = None if "\x00" in ref else keys.filter(pk=ref).first()
    if key is not None:
        return key
    try:
        scope: Limited = selectors.find_scope(ref, scopes)
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


def find_for(user: Any, ref: str, *, see: str, change: Collection[str] = ()) -> Limited:
    """The same for somebody who has to hold `change` for a scope above it, or for a key's project: how much a scope may use is
    said by somebody above it. What they may neither see nor change is as if it were not there. Raises Refused."""
    held = access.reach(user, see)
    for permission in change:
        held |= access.reach(user, permission)
    of = find(ref, held)
    for permission in change:
        access.require(user, permission, of.project if isinstance(of, ApiKey) else of, below=not isinstance(of, ApiKey))
    return of


def shown(held: Reach = EVERYWHERE) -> tuple[LimitRow, ...]:
    """Every limit in reach, in the order of the tree; those of revoked keys are of no use any more and left out. One query."""
    found = held.of_rows(Limit.objects.all(), access.LIMITED).exclude(key__revoked_at__isnull=False)
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


def paths(held: Reach = EVERYWHERE) -> tuple[tuple[str, str], ...]:
    """Id and path of everything below what is in reach, and so could be given a limit, in the order of the tree. Four queries."""
    every: list[Limited] = [
        *(selectors.organisations() if held.everywhere else ()),
        *held.of_rows(selectors.teams(), access.TEAMS[1:]),
        *held.of_rows(selectors.projects(), access.PROJECTS[1:]),
    ]
    every += held.of_rows(selectors.keys().filter(revoked_at__isnull=True), access.IN_PROJECT)
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


def _scopes() -> dict[str, tuple[QuerySet[Any], access.Paths]]:
    return {
        "organisation": (selectors.organisations(), access.ORGANISATIONS),
        "team": (selectors.teams(), access.TEAMS),
        "project": (selectors.projects(), access.PROJECTS),
    }


def _column(of: Limited) -> str:
    return "key" if isinstance(of, ApiKey) else str(of._meta.model_name)
