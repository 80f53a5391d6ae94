"""Whether what is guaranteed can be given: sums of guarantees against the fleet, against those above, against limits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.domain.amounts import CARDS, Sum, of_amount, short, words
from cluster.domain.types import ScopeView

NAMED = 8
"""Scopes that a refusal names with their part of a sum."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A sum that is too large. `scope_id`: of whom; empty: of the fleet. `over`: by how much, `key` saying of what."""

    code: str
    scope_id: str
    key: str
    over: int
    message: str


def check(scopes: Iterable[ScopeView], fleet: Sum) -> tuple[Problem, ...]:
    """What is wrong with the guarantees of a tenancy tree, in its order.

    Where a scope names no amount of something, it is guaranteed as much as those beneath it together.

    1. those of the organisations add up to more than the fleet: `guarantees_over_fleet`
    2. those beneath a scope add up to more than its own: `guarantees_over_parent`
    3. a scope is guaranteed more than its limit lets it have: `guarantee_over_limit`
    """
    tree = _Tree(scopes)
    found = []
    for key, parts in tree.beneath("").items():  # 1
        total, there = sum(parts.values()), fleet.get(key, 0)
        if total > there:
            has = _fleet_words(key, fleet)
            text = f"the guarantees add up to {words(key, total)}{tree.told(key, parts)}, and the fleet has {has}"
            found.append(Problem(code="guarantees_over_fleet", scope_id="", key=key, over=total - there, message=text))
    for scope in tree.scopes.values():
        own = of_amount(scope.guarantee)
        for key, parts in tree.beneath(scope.id).items():  # 2
            total = sum(parts.values())
            if key in own and total > own[key]:
                text = f"the guarantees within the {scope.kind} {scope.name} add up to {words(key, total)}"
                text += f"{tree.told(key, parts)}, and it is guaranteed {short(key, own[key])}"
                over = total - own[key]
                found.append(
                    Problem(code="guarantees_over_parent", scope_id=scope.id, key=key, over=over, message=text)
                )
        for key, limit in of_amount(scope.limit).items():  # 3
            total = tree.guaranteed(scope.id).get(key, 0)
            if total > limit:
                text = f"the {scope.kind} {scope.name} is guaranteed {words(key, total)}"
                text += f"{'' if key in own else tree.told(key, tree.beneath(scope.id)[key])}"
                text += f", and its limit is {short(key, limit)}"
                found.append(
                    Problem(code="guarantee_over_limit", scope_id=scope.id, key=key, over=total - limit, message=text)
                )
    return tuple(found)


def promised(scopes: Iterable[ScopeView]) -> dict[str, int]:
    """What is guaranteed to all organisations together."""
    return {key: sum(parts.values()) for key, parts in _Tree(scopes).beneath("").items()}


def worse(before: Iterable[Problem], after: Iterable[Problem]) -> Problem | None:
    """The first problem that a change makes, or makes larger. A fleet can shrink by itself; whoever then takes a guarantee
    back, or changes another scope's, must not be kept from it."""
    was = {(item.code, item.scope_id, item.key): item.over for item in before}
    return next((item for item in after if item.over > was.get((item.code, item.scope_id, item.key), 0)), None)


def not_given(
    before: Iterable[ScopeView], after: Iterable[ScopeView], scope_id: str, givers: Collection[str]
) -> Problem | None:
    """What somebody cannot guarantee to a scope who governs only what is in the scopes `givers`: they hand on what these, or
    scopes in these, are guaranteed by their own names. Elsewhere the sums above would grow with it.

    1. no more of a thing than it was guaranteed before                           they can
    2. a scope above it, within `givers`, names an amount of the thing            they can: the sums beneath that are checked
    3. else                                                                       `guarantee_not_given`
    """
    tree = {item.id: item for item in after}
    was = next((of_amount(item.guarantee) for item in before if item.id == scope_id), {})
    chain: list[ScopeView] = []
    parent = tree[scope_id].parent
    while parent:
        chain.append(tree[parent])
        parent = tree[parent].parent
    top = max((number for number, item in enumerate(chain) if item.id in givers), default=-1)
    given = {key for item in chain[: top + 1] for key in of_amount(item.guarantee)}
    for key, value in of_amount(tree[scope_id].guarantee).items():
        if value > was.get(key, 0) and key not in given:  # 1, 2
            scope, giver = tree[scope_id], chain[top] if top >= 0 else tree[scope_id]
            text = f"the {scope.kind} {scope.name} would be guaranteed {words(key, value)}"
            text += (
                f", and the {giver.kind} {giver.name} is guaranteed none that could be handed on: ask who governs it"
            )
            return Problem(code="guarantee_not_given", scope_id=scope_id, key=key, over=value, message=text)
    return None


class _Tree:
    """Scopes with what each is guaranteed, of itself or by those beneath it."""

    def __init__(self, scopes: Iterable[ScopeView]) -> None:
        self.scopes = {item.id: item for item in scopes}
        self._children: dict[str, list[str]] = {}
        for item in self.scopes.values():
            self._children.setdefault(item.parent, []).append(item.id)
        self._guaranteed: dict[str, dict[str, int]] = {}

    def guaranteed(self, scope_id: str) -> Mapping[str, int]:
        if scope_id not in self._guaranteed:
            sums = {key: sum(parts.values()) for key, parts in self.beneath(scope_id).items()}
            self._guaranteed[scope_id] = {**sums, **of_amount(self.scopes[scope_id].guarantee)}
        return self._guaranteed[scope_id]

    def beneath(self, scope_id: str) -> dict[str, dict[str, int]]:
        """What is guaranteed right beneath a scope: by thing, then by scope."""
        parts: dict[str, dict[str, int]] = {}
        for child in self._children.get(scope_id, ()):
            for key, value in self.guaranteed(child).items():
                parts.setdefault(key, {})[child] = value
        return parts

    def told(self, key: str, parts: Mapping[str, int]) -> str:
        """` (search 4, sales 2)`."""
        ordered = sorted(parts.items(), key=lambda item: (-item[1], self.scopes[item[0]].name))
        shown = [f"{self.scopes[scope_id].name} {short(key, value)}" for scope_id, value in ordered[:NAMED] if value]
        rest = sum(value for _, value in ordered[NAMED:])
        shown += [f"others {short(key, rest)}"] if rest else []
        return f" ({', '.join(shown)})" if shown else ""


def _fleet_words(key: str, fleet: Sum) -> str:
    """`8`; of a class of cards that it has none of, the classes that there are."""
    if not key.startswith(CARDS) or key in fleet:
        return short(key, fleet.get(key, 0))
    classes: Sequence[str] = sorted(item.removeprefix(CARDS) or "unknown" for item in fleet if item.startswith(CARDS))
    return "none: its cards are of " + ", ".join(classes) if classes else "no card"
