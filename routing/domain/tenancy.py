"""What follows for a key from the scopes that it is in: organisation, team, project. Worked out once per snapshot.

A key may use a model if the key and each scope above it allow that: lists are intersected downwards, and a scope
without a list forbids nothing. A list that has an alias allows what that stands for, by that name only; so an alias leads a
key to those of its targets that each list has, itself or by the alias. Limits are not narrowed but added up: a request counts for
each scope above its key, and passes if each has room (limits.py). Of classes the one that the nearest scope says counts. What of
several texts of one key counts (an old one, for a while) is the key's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from cluster.domain.types import Klass
from routing.domain.snapshot import AliasEntry, BudgetEntry, KeyEntry, LimitEntry, ScopeEntry

DEEPEST = 3
"""Scopes above a key: project, team, organisation. More are a circle, which no controller writes."""


KEY = "key"
"""Kind of what a limit is set at, beside the kinds of scopes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """A key or a scope that bounds what is asked with the key."""

    scope_id: str
    kind: str  # key, project, team, organisation
    name: str
    limit: LimitEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class Purse:
    """A budget, and whose it is."""

    kind: str  # key, project, team, organisation
    name: str
    budget: BudgetEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """Who asks: a key, with what follows from the scopes that it is in."""

    key_id: str
    prefix: str
    project_id: str
    user: str = ""
    models: frozenset[str] | None = None  # names that it may use; None: all
    expires_at: float | None = None
    scopes: tuple[ScopeEntry, ...] = ()  # those above it that the snapshot tells of, the nearest first
    bounds: tuple[Bound, ...] | None = None  # all that bound it, itself first; None: nothing does
    purses: tuple[Purse, ...] | None = None  # budgets that something follows from now, its own first; None: none
    through: Mapping[str, frozenset[str]] = field(default_factory=dict)  # where there are lists: targets by alias


def chain(scopes: Mapping[str, ScopeEntry], project_id: str) -> tuple[ScopeEntry, ...]:
    """The scopes above a key of this project, by id, from the nearest to the widest."""
    found: list[ScopeEntry] = []
    entry = scopes.get(project_id)
    while entry is not None and len(found) < DEEPEST:
        found.append(entry)
        entry = scopes.get(entry.parent)
    return tuple(found)


def classes(scopes: Iterable[ScopeEntry]) -> dict[str, Klass]:
    """By project, the class of its requests: what the nearest scope says that says anything. Where none does it has none;
    one that is not known is the usual."""
    by_id = {scope.scope_id: scope for scope in scopes}
    found: dict[str, Klass] = {}
    for project in (scope for scope in by_id.values() if scope.kind == "project"):
        said = next((scope.priority_class for scope in chain(by_id, project.scope_id) if scope.priority_class), "")
        if said:
            found[project.scope_id] = Klass.__members__.get(said.upper(), Klass.STANDARD)
    return found


def allowlist(lists: Iterable[Collection[str] | None]) -> frozenset[str] | None:
    """What all of these lists allow; None where there is no list."""
    allowed: frozenset[str] | None = None
    for names in lists:
        if names is not None:
            allowed = frozenset(names) if allowed is None else allowed & frozenset(names)
    return allowed


def through(lists: Iterable[Collection[str] | None], aliases: Iterable[AliasEntry]) -> dict[str, frozenset[str]]:
    """By alias, those of its targets that all of these lists allow to be reached by it: each has the target, or the alias."""
    sets = [frozenset(names) for names in lists if names is not None]
    found: dict[str, frozenset[str]] = {}
    for alias in aliases if sets else ():
        strict = [names for names in sets if alias.name not in names]
        found[alias.name] = frozenset(
            item.model for item in alias.targets if all(item.model in names for names in strict)
        )
    return {name: targets for name, targets in found.items() if targets}


def holders(
    keys: Iterable[KeyEntry], scopes: Iterable[ScopeEntry], aliases: Collection[AliasEntry] = ()
) -> dict[str, Holder]:
    """Every key of a snapshot by the SHA-256 of its text. Keys of one project with the same list share what it comes to."""
    by_id = {scope.scope_id: scope for scope in scopes}
    chains: dict[str, tuple[ScopeEntry, ...]] = {}
    lists: dict[tuple[str, tuple[str, ...] | None], tuple[frozenset[str] | None, dict[str, frozenset[str]]]] = {}
    found: dict[str, Holder] = {}
    for key in keys:
        above = chains.get(key.project_id)
        if above is None:
            above = chains[key.project_id] = chain(by_id, key.project_id)
        named = (key.project_id, key.models)
        if named not in lists:
            every = [key.models, *(scope.models for scope in above)]
            lists[named] = allowlist(every), through(every, aliases)
        found[key.sha256] = Holder(
            key_id=key.key_id,
            prefix=key.prefix,
            project_id=key.project_id,
            user=key.user,
            models=lists[named][0],
            expires_at=key.expires_at,
            scopes=above,
            bounds=_bounds(key, above),
            purses=_purses(key, above),
            through=lists[named][1],
        )
    return found


def _bounds(key: KeyEntry, above: tuple[ScopeEntry, ...]) -> tuple[Bound, ...] | None:
    found = [
        Bound(scope_id=scope.scope_id, kind=scope.kind, name=scope.name, limit=scope.limit)
        for scope in above
        if scope.limit is not None
    ]
    if key.limit is not None:
        found.insert(0, Bound(scope_id=key.key_id, kind=KEY, name=key.name or key.prefix, limit=key.limit))
    return tuple(found) or None


def _purses(key: KeyEntry, above: tuple[ScopeEntry, ...]) -> tuple[Purse, ...] | None:
    found = [Purse(kind=KEY, name=key.name or key.prefix, budget=item) for item in key.budgets]
    found += [Purse(kind=scope.kind, name=scope.name, budget=item) for scope in above for item in scope.budgets]
    return tuple(found) or None


def told(scopes: Iterable[ScopeEntry], projects: Collection[str]) -> tuple[ScopeEntry, ...]:
    """Of all scopes those that nodes are told of, by id: what something follows from and a project with keys is in, or is,
    and what lies between the two."""
    by_id = {scope.scope_id: scope for scope in scopes}
    wanted: dict[str, ScopeEntry] = {}
    for project_id in projects:
        above = chain(by_id, project_id)
        highest = max((number for number, scope in enumerate(above) if matters(scope)), default=-1)
        wanted |= {scope.scope_id: scope for scope in above[: highest + 1]}
    return tuple(wanted[scope_id] for scope_id in sorted(wanted))


def matters(scope: ScopeEntry) -> bool:
    """Whether anything follows from this scope."""
    return scope.models is not None or scope.limit is not None or bool(scope.budgets or scope.priority_class)
