"""Limits of the endpoint, at organisations, teams, projects and keys: set, removed, listed."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet

from catalog.models import Limit
from catalog.services import holders, rows
from catalog.services.access import EVERYWHERE, HELD, Holder, Reach
from llmgw_site.lib.errors import Kind, Refused

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
    of: Holder,
    requests_per_minute: int | None = None,
    tokens_per_minute: int | None = None,
    parallel: int | None = None,
    why: str = "",
) -> Limit:
    """The limit of a scope or a key, in place of the one it may have. What is left out is not limited. Raises Refused."""
    figures = dict(zip(FIGURES, (requests_per_minute, tokens_per_minute, parallel), strict=True))
    if all(value is None for value in figures.values()):
        text = "this, tokens_per_minute or parallel is needed; remove the limit to have none"
        raise Refused(Kind.INVALID, "invalid_value", f"requests_per_minute: {text}.", param="requests_per_minute")
    return holders.put(Limit, actor=actor, of=of, told=_told(of), values=figures, why=why)


def remove(*, actor: str, of: Holder) -> None:
    """Limit it no longer. Raises Refused."""
    rows.remove(holders.found(Limit, of, "limit"), actor=actor, message=f"{_told(of)} removed")


def shown(held: Reach = EVERYWHERE) -> tuple[LimitRow, ...]:
    """Every limit in reach, in the order of the tree; those of revoked keys are of no use any more and left out. One query."""
    every: QuerySet[Limit] = Limit.objects.exclude(key__revoked_at__isnull=False).select_related(*holders.WITH)
    return tuple(sorted((_row(item) for item in held.of_rows(every, HELD)), key=lambda row: (row.path, row.id)))


def show(of: Holder) -> LimitRow:
    """The limit of one. Raises Refused."""
    return _row(holders.found(Limit, of, "limit"))


def of_whom(of: Holder) -> Limit | None:
    return holders.row_of(Limit, of)


def _row(limit: Limit) -> LimitRow:
    of = limit.of
    return LimitRow(limit=limit, kind=holders.kind(of), id=of.pk, name=of.name, path=holders.path(of))


def _told(of: Holder) -> str:
    return f"limit of the {holders.kind(of)} {of.name}"
