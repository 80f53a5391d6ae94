"""Quotas, checked against the fleet: what is guaranteed must be there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from catalog.models import Quota
from catalog.services import quotas
from catalog.services.access import EVERYWHERE, Reach, Scope
from cluster import selectors
from cluster.domain.amounts import of_fleet
from cluster.domain.guarantees import Problem, check, not_given, worse
from cluster.domain.types import ScopeView
from cluster.services.locks import plan_lock
from llmgw_site.lib.errors import Kind, Refused

Done = TypeVar("Done")
Tree = tuple[ScopeView, ...]


def put(
    *,
    actor: str,
    scope: Scope,
    guarantee: Mapping[str, Any],
    limit: Mapping[str, Any],
    why: str = "",
    held: Reach = EVERYWHERE,
) -> Quota:
    """Set the quota of a scope as a whole. Raises Refused with the sums where guarantees add up to more than there is.

    `held`: where whoever sets it governs. Within scopes only what these are guaranteed is handed on.
    """
    return _checked(
        lambda: quotas.put(actor=actor, scope=scope, guarantee=guarantee, limit=limit, why=why),
        lambda before, after: None if held.everywhere else not_given(before, after, scope.pk, held.ids),
    )


def remove(*, actor: str, scope: Scope) -> None:
    """Have a scope without guarantee and limit again. Without its own guarantee it counts as guaranteed what those
    beneath it are."""
    _checked(lambda: quotas.remove(actor=actor, scope=scope))


def _checked(
    change: Callable[[], Done], also: Callable[[Tree, Tree], Problem | None] = lambda before, after: None
) -> Done:
    """Two changes at once are judged one after the other; a refused one is as if it had never been."""
    fleet = of_fleet(selectors.world().nodes)
    with plan_lock():
        before = selectors.scopes()
        done = change()
        after = selectors.scopes()
        problem = also(before, after) or worse(check(before, fleet), check(after, fleet))
        if problem is not None:
            text = problem.message[0].upper() + problem.message[1:]
            raise Refused(Kind.CONFLICT, problem.code, f"{text}.", param="guarantee")
        return done
