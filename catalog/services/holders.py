"""Organisations, teams, projects and keys as what something is set of: a limit, a quota, a budget, a role.

One mechanism for all of them: how one is named and found, where it stands in the tree, who may set something of it, and how
the one row of it is put in place and taken away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from django.db import models, transaction
from django.db.models import QuerySet

from catalog import selectors
from catalog.models import ApiKey, Project, Team
from catalog.services import access, rows
from catalog.services.access import EVERYWHERE, Holder, Reach, Scope
from llmgw_site.lib.errors import Kind, Refused

Row = TypeVar("Row", bound=models.Model)
WITH = ("organisation", "team__organisation", "project__team__organisation", "key__project__team__organisation")
"""What `path` needs of a row that is of one of them."""


def kind(of: Holder) -> str:
    """organisation, team, project or key."""
    return rows.noun(of)


def path(of: Holder) -> tuple[str, ...]:
    """Names from the organisation down."""
    if isinstance(of, ApiKey):
        return (*path(of.project), of.name)
    if isinstance(of, Project):
        return (*path(of.team), of.name)
    if isinstance(of, Team):
        return (of.organisation.name, of.name)
    return (of.name,)


def columns(of: Holder | None, names: Collection[str]) -> dict[str, Any]:
    """The columns `names` of a row that is of this one; None: of none."""
    one = "" if of is None else kind(of)
    return {name: of if name == one else None for name in names}


# --- found


def scope(ref: str, held: Reach = EVERYWHERE) -> Scope:
    """The organisation, team or project in reach whose id or name is `ref`; `team:NAME` says which kind is meant.

    Raises Refused NOT_FOUND, or CONFLICT where several carry the name.
    """
    kind, colon, name = ref.partition(":")
    tables = {noun: rows for noun, rows in _tables(held).items() if noun != "key"}
    if colon and kind in tables:
        named: Scope = selectors.find(tables[kind], name, noun=kind)
        return named
    found: list[Scope] = []
    for noun, table in tables.items():
        try:
            found.append(selectors.find(table, ref, noun=noun))
        except Refused as refused:
            if refused.kind is not Kind.NOT_FOUND:
                raise
    exact = [row for row in found if row.pk == ref] or found
    if not exact:
        raise Refused(Kind.NOT_FOUND, "not_found", f"There is no organisation, team or project {ref[:128]!r}.")
    if len(exact) > 1:
        told = " and ".join(f"{row._meta.model_name}:{row.name} ({row.pk})" for row in exact)
        raise Refused(Kind.CONFLICT, "ambiguous_name", f"Several are named {ref!r}: write {told}; an id will do too.")
    return exact[0]


def find(ref: str, held: Reach = EVERYWHERE, *, keys: bool = True) -> Holder:
    """The organisation, team, project or key that is not revoked, by id, by name, or by `team:NAME`; of those in reach, as
    if there were no others. A scope of a name wins over a key of it. Raises Refused."""
    if not keys:
        return scope(ref, held)
    live = _tables(held)["key"]
    noun, colon, name = ref.partition(":")
    if colon and noun == "key":
        return _key(live, name)
    key: ApiKey | None = live.filter(pk=ref).first() if "\x00" not in ref else None
    if key is not None:
        return key
    try:
        return scope(ref, held)
    except Refused as refused:
        if refused.kind is not Kind.NOT_FOUND or colon:
            raise
    try:
        return _key(live, ref)
    except Refused as refused:
        if refused.kind is not Kind.NOT_FOUND:
            raise
        text = f"There is no organisation, team, project or key {ref[:128]!r}."
        raise Refused(Kind.NOT_FOUND, "not_found", text) from None


def reached(user: Any, ref: str, *, see: str, needs: Collection[str] = (), keys: bool = True) -> Holder:
    """The one that is named, for somebody who holds the permission `see` of it, or one of `needs`; each of `needs` must come from
    above it: what something may use at most is not said by itself. Raises Refused NOT_FOUND, FORBIDDEN."""
    held = access.reach(user, see)
    for permission in needs:
        held |= access.reach(user, permission)
    of = find(ref, held, keys=keys)
    for permission in needs:
        access.require(user, permission, of, below=True)
    return of


def paths(*, keys: bool = True) -> tuple[tuple[str, str], ...]:
    """Id and path of everything, in the order of the tree. Four queries."""
    return _paths(_every(EVERYWHERE, keys=keys))


def governed(user: Any, needs: Sequence[str], *, keys: bool = True) -> tuple[tuple[str, str], ...]:
    """The same of those that the user may set something of: each of `needs` comes from above them."""
    held = [access.reach(user, permission) for permission in needs]
    return _paths(of for of in _every(held[0], keys=keys) if all(item.covers_below(of) for item in held))


def _paths(every: Iterable[Holder]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(((of.pk, " / ".join(path(of))) for of in every), key=lambda pair: (pair[1], pair[0])))


def _every(held: Reach, *, keys: bool) -> list[Holder]:
    return [row for name, table in _tables(held).items() if keys or name != "key" for row in table]


def _key(live: QuerySet[Any], name: str) -> ApiKey:
    row: ApiKey = selectors.find(live, name, noun="key")
    return row


def _tables(held: Reach) -> dict[str, QuerySet[Any]]:
    return {
        "organisation": held.of_rows(selectors.organisations(), access.ORGANISATIONS),
        "team": held.of_rows(selectors.teams(), access.TEAMS),
        "project": held.of_rows(selectors.projects(), access.PROJECTS),
        "key": held.of_rows(selectors.keys().filter(revoked_at__isnull=True), access.IN_PROJECT),
    }


# --- the one row that is set of it


def row_of(table: type[Row], of: Holder, **at: Any) -> Row | None:
    """The row of it; `at`: further columns that say which."""
    manager: Any = table._default_manager
    found: Row | None = manager.filter(**{kind(of): of}, **at).first()
    return found


def found(table: type[Row], of: Holder, what: str, **at: Any) -> Row:
    """The same; raises Refused where nothing is set. `what`: what the row is called, with its article."""
    row = row_of(table, of, **at)
    if row is None:
        raise Refused(Kind.NOT_FOUND, "not_found", f"The {kind(of)} {of.name} has no {what}.")
    return row


@transaction.atomic
def put(
    table: type[Row], *, actor: str, of: Holder, told: str, values: Mapping[str, Any], why: str = "", **at: Any
) -> Row:
    """Set the row of it, in place of the one there may be. `told`: what it is, for the event. Raises Refused."""
    rows.lock(of)
    row = row_of(table, of, **at)
    if row is not None:
        return rows.change(row, values, actor=actor, message=f"{told} changed", why=why)
    return rows.add(table(**{kind(of): of}, **at, **values), actor=actor, message=f"{told} set", why=why)
