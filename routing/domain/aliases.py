"""Which model a request for an alias goes to: the alias, what the key may use, and a seed in; the name of a target out.

A split of weights is drawn by weighted highest random weight (Schindelhauer, Schomaker: "Weighted Distributed Hash Tables", 2005, the
logarithmic method): each target has a score of its own for each seed. So the same conversation has the same target, and where a weight
changes or a target comes or goes only conversations move that go to it, or went.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping

from routing.domain.budgets import forbids
from routing.domain.choose import Route, allowed
from routing.domain.endpoints import ENDPOINTS
from routing.domain.snapshot import AliasEntry, ModelEntry, TargetEntry
from routing.domain.tenancy import Holder

_BITS = 64


def open_to(alias: AliasEntry, key: Holder, routes: Collection[str]) -> tuple[TargetEntry, ...]:
    """The targets that this key may use by the alias, and that there are; none: to this key the alias does not exist.

    A list of models that has the alias allows its targets by this name, one that has a target allows that: see tenancy.py.
    """
    through = key.through.get(alias.name, frozenset())
    return tuple(
        item for item in alias.targets if item.model in routes and (allowed(key, item.model) or item.model in through)
    )


def able(
    targets: Iterable[TargetEntry], routes: Mapping[str, Route], key: Holder, *, endpoint: str, now: float
) -> tuple[TargetEntry, ...]:
    """Those that take part in a request of this endpoint: enabled, of its kind, and within the key's budgets; all where that would
    leave none, so that the client is told what is wrong with one. `now`: Unix time.

    A model that is only not ready takes part: its fallbacks answer for it.
    """
    every = tuple(targets)
    return tuple(item for item in every if _able(routes[item.model].model, key, endpoint, now)) or every


def _able(model: ModelEntry, key: Holder, endpoint: str, now: float) -> bool:
    kind = ENDPOINTS[endpoint].embeddings
    return (
        model.enabled
        and (kind is None or model.embeddings == kind)
        and not any(forbids(purse, model.price, now) for purse in key.purses or ())
    )


def pick(alias: str, targets: Collection[TargetEntry], seed: str) -> str:
    """The target of this seed: each is picked for the share of seeds that its weight is of all. `targets` is not empty."""
    return max(targets, key=lambda item: (_score(alias, item, seed), item.model)).model


def _score(alias: str, target: TargetEntry, seed: str) -> float:
    drawn = hashlib.blake2b(f"{seed}\0{alias}\0{target.model}".encode(), digest_size=_BITS // 8).digest()
    share = (int.from_bytes(drawn) + 0.5) / 2**_BITS  # above 0, and at most 1
    return -target.weight / math.log(share) if share < 1.0 else math.inf


def entry_of(alias: AliasEntry, targets: Iterable[ModelEntry]) -> ModelEntry:
    """An alias as clients see it in the list of models: what is true of whichever target answers."""
    known = [item.context for item in targets if item.context]
    return ModelEntry(name=alias.name, created=alias.created, context=min(known, default=None))


def narrowed(key: Holder, alias: str) -> frozenset[str] | None:
    """The names that the key may use in a request for this alias; None: all."""
    return None if key.models is None else key.models | key.through.get(alias, frozenset())
