"""How scopes of the tenancy tree stand: guaranteed, limited to, held, borrowed. What pages and the API show of quotas."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cluster.domain.amounts import CARDS, CORES, MEMORY, of_amount, of_fleet
from cluster.domain.board import Board
from cluster.domain.guarantees import Problem, check, promised
from cluster.domain.quotas import ledger_of
from cluster.domain.types import ModelView, ScopeView, World


@dataclass(frozen=True, kw_only=True)
class Account:
    """One scope. Sums as in `amounts`; a thing that is not named in `guarantee` or `limit` is not guaranteed or limited."""

    scope: ScopeView
    path: tuple[str, ...]  # names of those above it and its own, from the organisation down
    guarantee: Mapping[str, int]
    limit: Mapping[str, int]
    held: Mapping[str, int]
    borrowed: Mapping[str, int]
    models: tuple[str, ...] = ()  # names of those that it owns itself

    @property
    def set(self) -> bool:
        return bool(self.guarantee or self.limit)

    @property
    def keys(self) -> tuple[str, ...]:
        """What there is something to say of: cards first, then cores, then memory."""
        return ordered({*self.guarantee, *self.limit, *(key for key, value in self.held.items() if value)})


@dataclass(frozen=True, kw_only=True)
class Books:
    """All scopes in the order of the tree, the fleet, and what is wrong with the guarantees. Empty without quotas."""

    accounts: tuple[Account, ...] = ()
    fleet: Mapping[str, int] = field(default_factory=dict)
    promised: Mapping[str, int] = field(default_factory=dict)  # guaranteed to all organisations together
    problems: tuple[Problem, ...] = ()

    def within(self, ids: Collection[str]) -> Books:
        """What is in the scopes of these ids, and nothing of the fleet and of all scopes together."""
        parents = {item.scope.id: item.scope.parent for item in self.accounts}
        known = set(ids) & parents.keys()
        for scope_id, parent in parents.items():  # those above come first
            if parent in known:
                known.add(scope_id)
        return Books(
            accounts=tuple(item for item in self.accounts if item.scope.id in known),
            problems=tuple(item for item in self.problems if item.scope_id in known),
        )

    def problems_of(self, scope: ScopeView) -> tuple[Problem, ...]:
        """Those of a scope; what is wrong with all of them together is every organisation's that has a part in it."""
        whole = "" if not scope.parent else scope.id
        return tuple(item for item in self.problems if item.scope_id in (scope.id, whole))


def books(world: World) -> Books:
    """How every scope of a world stands."""
    ledger = ledger_of(Board(world))
    owned: dict[str, list[ModelView]] = {}
    for model in world.models:
        owned.setdefault(model.owner, []).append(model)
    children: dict[str, list[ScopeView]] = {}
    for scope in world.scopes:
        children.setdefault(scope.parent, []).append(scope)
    accounts: list[Account] = []

    def visit(scope: ScopeView, above: tuple[str, ...]) -> None:
        path = (*above, scope.name)
        accounts.append(
            Account(
                scope=scope,
                path=path,
                guarantee=of_amount(scope.guarantee),
                limit=of_amount(scope.limit),
                held=ledger.held(scope.id),
                borrowed=ledger.borrowed(scope.id),
                models=tuple(sorted(item.name for item in owned.get(scope.id, ()))),
            )
        )
        for child in sorted(children.get(scope.id, ()), key=lambda item: (item.name, item.id)):
            visit(child, path)

    for scope in sorted(children.get("", ()), key=lambda item: (item.name, item.id)):
        visit(scope, ())
    fleet = of_fleet(world.nodes)
    problems = check(world.scopes, fleet)
    return Books(accounts=tuple(accounts), fleet=fleet, promised=promised(world.scopes), problems=problems)


def ordered(keys: set[str]) -> tuple[str, ...]:
    """Cards by class first, then cores, then memory."""
    place = {CORES: 1, MEMORY: 2}
    return tuple(sorted(keys, key=lambda key: (place.get(key, 0), key.removeprefix(CARDS))))
