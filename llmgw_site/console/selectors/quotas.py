"""Quotas of the tenancy tree with what is held, and the fleet that they are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from catalog.services import holders
from catalog.services.access import Reach
from cluster import selectors
from cluster.domain.accounts import Account, Books, books, ordered
from cluster.domain.amounts import CARDS, CORES, MEMORY, figure, short
from llmgw_site.console.figures import percent
from llmgw_site.lib.units import exact_bytes

__all__ = ["QuotaField", "QuotaLine", "QuotaPage", "QuotaRow", "quota_fields", "quotas", "scopes"]


@dataclass(frozen=True, kw_only=True)
class QuotaBar:
    """What a scope holds of a thing, as parts of the larger of its limit, its guarantee and what it holds, in percent."""

    within: float  # its guarantee, or what nobody else has a claim to
    borrowed: float
    over: float  # its limit
    guarantee: float | None  # where it ends
    limit: float | None


@dataclass(frozen=True, kw_only=True)
class QuotaLine:
    """One thing of a scope or of the fleet, in words. Empty: nothing is said of it."""

    title: str
    held: str
    guarantee: str
    limit: str
    borrowed: str = ""
    used: float | None = None  # of the fleet: percent that is guaranteed
    bar: QuotaBar | None = None  # of a scope, where there is a guarantee, a limit or something borrowed
    look: str = ""


@dataclass(frozen=True, kw_only=True)
class QuotaRow:
    """A scope with a quota, or above one. `depth`: below the highest that is shown."""

    id: str
    kind: str
    name: str
    path: str
    depth: int
    own: bool  # it has a quota itself
    models: tuple[str, ...]
    lines: tuple[QuotaLine, ...]
    problems: tuple[str, ...]

    @property
    def state(self) -> str:
        """The most that somebody should know of it."""
        looks = {line.look for line in self.lines}
        if looks & {"bad", "warn"}:
            return "over its limit" if "bad" in looks else "at its limit"
        return "borrows" if any(line.borrowed for line in self.lines) else "within its quota" if self.own else ""


@dataclass(frozen=True, kw_only=True)
class QuotaPage:
    rows: tuple[QuotaRow, ...]
    fleet: tuple[QuotaLine, ...]
    problems: tuple[str, ...]  # of all guarantees together


@dataclass(frozen=True, kw_only=True)
class QuotaField:
    """A thing of which a quota may name an amount, as the form has it."""

    key: str
    title: str
    fleet: str
    guarantee: str
    limit: str


def quotas(held: Reach) -> QuotaPage:
    """The page: at most fifteen queries, however many rows. Who sees scopes only sees nothing of the fleet as a whole."""
    found = _books(held)
    shown = _with_those_above(found.accounts)
    top = min((len(item.path) for item in shown), default=0)
    return QuotaPage(
        rows=tuple(_row(item, found, top) for item in shown),
        fleet=_fleet(found),
        problems=tuple(item.message for item in found.problems if not item.scope_id),
    )


def quota_fields(scope_id: str, held: Reach, asked: Mapping[str, str] | None = None) -> tuple[QuotaField, ...]:
    """The form of a scope: every thing of the fleet and of its quota; within scopes, of theirs. `asked`: what a refused form had."""
    found = _books(held)
    account = next((item for item in found.accounts if item.scope.id == scope_id), None)
    guarantee, limit = (account.guarantee, account.limit) if account else ({}, {})
    known = {key for item in found.accounts for key in (*item.guarantee, *item.limit)} | {CORES, MEMORY}
    fleet = found.fleet

    def value(part: str, key: str, amounts: Mapping[str, int]) -> str:
        if asked is not None:
            return asked.get(f"{part}:{key}", "")
        if key not in amounts:
            return ""
        return exact_bytes(amounts[key]) if key == MEMORY else str(figure(key, amounts[key]))

    return tuple(
        QuotaField(
            key=key,
            title=title(key),
            fleet=short(key, fleet.get(key, 0)) if held.everywhere else "",
            guarantee=value("guarantee", key, guarantee),
            limit=value("limit", key, limit),
        )
        for key in ordered({*(fleet if held.everywhere else known), *guarantee, *limit})
    )


def scopes() -> tuple[tuple[str, str], ...]:
    """Id and path of every scope, in the order of the tree. Three queries."""
    return holders.paths(keys=False)


def _books(held: Reach) -> Books:
    found = books(selectors.world())
    return found if held.everywhere else found.within(held.ids)


def title(key: str) -> str:
    if key in (CORES, MEMORY):
        return key.capitalize()
    return f"{key.removeprefix(CARDS) or 'Unknown'} cards"


def _row(account: Account, found: Books, top: int) -> QuotaRow:
    return QuotaRow(
        id=account.scope.id,
        kind=account.scope.kind,
        name=account.scope.name,
        path=" / ".join(account.path),
        depth=len(account.path) - top,
        own=account.set,
        models=account.models,
        lines=tuple(_line(account, key) for key in account.keys),
        problems=tuple(item.message for item in found.problems if item.scope_id == account.scope.id),
    )


def _line(account: Account, key: str) -> QuotaLine:
    held, limit, guarantee = account.held.get(key, 0), account.limit.get(key), account.guarantee.get(key)
    borrowed, known = account.borrowed.get(key, 0), guarantee is not None or limit is not None
    return QuotaLine(
        title=title(key),
        held=short(key, held),
        guarantee="" if guarantee is None else short(key, guarantee),
        limit="" if limit is None else short(key, limit),
        borrowed=short(key, borrowed) if borrowed else "",
        bar=quota_bar(held, borrowed, guarantee, limit) if known or borrowed else None,
        look="" if limit is None or held < limit or not held else "warn" if held == limit else "bad",
    )


def quota_bar(held: int, borrowed: int, guarantee: int | None, limit: int | None) -> QuotaBar:
    """What is over the limit is drawn as such, whether borrowed or not."""
    top = max(held, guarantee or 0, limit or 0, 1)
    over = 0 if limit is None else max(0, held - limit)
    within = min(held - borrowed, held - over)
    return QuotaBar(
        within=percent(within, top) or 0.0,
        borrowed=percent(held - over - within, top) or 0.0,
        over=percent(over, top) or 0.0,
        guarantee=None if guarantee is None else percent(guarantee, top),
        limit=None if limit is None else percent(limit, top),
    )


def _fleet(found: Books) -> tuple[QuotaLine, ...]:
    """What there is, and how much of it is guaranteed to somebody."""
    return tuple(
        QuotaLine(
            title=title(key),
            held=short(key, found.fleet.get(key, 0)),
            guarantee=short(key, found.promised.get(key, 0)),
            limit="",
            used=percent(found.promised.get(key, 0), found.fleet.get(key, 0)),
        )
        for key in ordered({*found.fleet, *found.promised})
    )


def _with_those_above(accounts: Iterable[Account]) -> list[Account]:
    every = list(accounts)
    by_id = {item.scope.id: item for item in every}
    wanted: set[str] = set()
    for item in every:
        scope_id = item.scope.id if item.set else ""
        while scope_id in by_id and scope_id not in wanted:
            wanted.add(scope_id)
            scope_id = by_id[scope_id].scope.parent
    return [item for item in every if item.scope.id in wanted]
