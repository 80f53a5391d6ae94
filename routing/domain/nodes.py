"""Which node answers: a view of candidates, the strategy and dice in; a candidate out. No clock, no memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from llmgw_site.lib.errors import Kind, Refused
from routing.domain import affinity


class Strategy(StrEnum):
    LOAD_BASED = "load_based"  # fewest requests in progress, then shortest recent answer time
    ROUND_ROBIN = "round_robin"  # in turn, for each model by itself
    LEAST_CONNECTIONS = "least_connections"  # fewest requests in progress
    LEAST_LATENCY = "least_latency"  # shortest recent answer time
    RANDOM = "random"
    AFFINITY = "affinity"  # a conversation stays where it was


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How a router chooses. `affinity`: a conversation stays where it was; only if it cannot, the strategy chooses."""

    strategy: Strategy = Strategy.LOAD_BASED
    affinity: bool = False

    @property
    def follows_sessions(self) -> bool:
        return self.affinity or self.strategy is Strategy.AFFINITY


def read_rule(value: Any, before: Rule) -> Rule:
    """A rule from `{"strategy": NAME, "affinity": true}`; without `affinity` that stays as before. Raises Refused (400)."""
    if not isinstance(value, dict):
        raise Refused(Kind.INVALID, "not_an_object", 'Send an object such as {"strategy": "load_based"}.')
    unknown = sorted(str(name) for name in value.keys() - {"strategy", "affinity"})
    if unknown:
        raise Refused(
            Kind.INVALID, "unknown_field", f"There is no {unknown[0][:100]} here: strategy, affinity.", param=unknown[0]
        )
    name, option = value.get("strategy"), value.get("affinity", before.affinity)
    if not isinstance(name, str) or name not in list(Strategy):
        what = "'strategy' is missing" if name is None else f"There is no strategy {str(name)[:100]!r}"
        text = f"{what}: write one of {', '.join(Strategy)}."
        raise Refused(Kind.INVALID, "invalid_strategy", text, param="strategy")
    if not isinstance(option, bool):
        raise Refused(Kind.INVALID, "invalid_type", "'affinity' must be true or false.", param="affinity")
    return Rule(strategy=Strategy(name), affinity=option)


class Works(StrEnum):
    """What is known of a model on a node."""

    WORKS = "works"
    UNKNOWN = "unknown"
    CANNOT = "cannot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node that may answer for a model, as the choosing node sees it now."""

    node_id: str
    state: Works = Works.UNKNOWN
    skipped: bool = False  # it failed to answer a short while ago
    in_flight: int = 0  # requests for this model that the choosing node has there
    latency: float | None = None  # recent answer time in seconds; None: not measured lately
    slots: int = 1  # requests for this model that it runs at once

    @property
    def name(self) -> str:
        return self.node_id


def choose_node(
    candidates: Sequence[Candidate],
    rule: Rule,
    *,
    last: str = "",
    session: str = "",
    dice: float = 0.0,
    without: Collection[str] = (),
) -> Candidate | None:
    """The node for a request; None: nobody is left.

    `last` is the node that answered for this model before (for round_robin), `session` names the conversation (empty:
    none), `dice` is in [0, 1), `without` names nodes that were tried for this very request.

    1. nodes that were tried, and nodes whose row says that they cannot serve it, are left out
    2. nodes that recently failed to answer are left out, unless all are such: then they are tried anyway
    3. nodes whose model is known to work are preferred
    4. with affinity and a session: its home; if that is overloaded, the next in its order (strategy `affinity`),
       or by the strategy (affinity as an option)
    5. the strategy; dice among equals. `affinity` without a session is `load_based`
    """
    pool = [item for item in candidates if item.state is not Works.CANNOT and item.node_id not in without]  # 1
    pool = [item for item in pool if not item.skipped] or pool  # 2
    pool = [item for item in pool if item.state is Works.WORKS] or pool  # 3
    if len(pool) < 2:
        return pool[0] if pool else None
    if session and rule.follows_sessions:  # 4
        if rule.strategy is Strategy.AFFINITY:
            return affinity.place(session, pool)
        home = affinity.home(session, pool)
        if not affinity.overloaded(home, pool):
            return home
    return _by_strategy(pool, rule.strategy, last, dice)  # 5


def _by_strategy(pool: list[Candidate], strategy: Strategy, last: str, dice: float) -> Candidate:
    if strategy is Strategy.ROUND_ROBIN:
        ordered = sorted(pool, key=lambda item: item.node_id)
        return next((item for item in ordered if item.node_id > last), ordered[0])
    if strategy is not Strategy.RANDOM:
        keys = [_rank(item, strategy) for item in pool]
        least = min(keys)
        pool = [item for item, key in zip(pool, keys, strict=True) if key == least]
    return pool[int(dice * len(pool))]


def _rank(item: Candidate, strategy: Strategy) -> tuple[float, ...]:
    """Smaller is better. A node without a measured time is tried by one request, and else comes last.

    So it gets measured, and a burst does not all go to the one node of which nothing is known.
    """
    if strategy is Strategy.LEAST_CONNECTIONS:
        return (item.in_flight,)
    latency = item.latency
    if latency is None:
        latency = float("inf") if item.in_flight else -1.0
    if strategy is Strategy.LEAST_LATENCY:
        return latency, item.in_flight
    return item.in_flight, latency
