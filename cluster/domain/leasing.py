"""How edges and controllers count limits together: what they say to each other, and for how long it holds.

An edge gives out what it was leased within `HELD` seconds of its question; controllers count it for `COUNTED`. So all that
edges give out within a minute was leased within `COUNTED` seconds, of which no stretch has more than the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

MINUTE = 60.0
HELD = 2.0
"""Seconds after its question in which an edge gives out what it was leased."""
COUNTED = MINUTE + HELD
"""Seconds for which the controllers count it."""
PERMITS = 10.0
"""Seconds for which permits are an edge's that is not heard of again."""
REQUESTS, TOKENS, PARALLEL = "requests_per_minute", "tokens_per_minute", "parallel"
KINDS = (REQUESTS, TOKENS, PARALLEL)
MOST = 500
"""Limits in one question."""


@dataclass(frozen=True, kw_only=True)
class LimitWant:
    """What an edge wants of one limit of one scope or key.

    Of what is per minute: `want` more; `back`: to be counted no longer; `taken`: let in by itself, to be counted.
    Of what is parallel: `want`: permits in all; `taken`: requests that run.
    """

    scope: str
    kind: str
    limit: int
    want: int = 0
    back: int = 0
    taken: int = 0


@dataclass(frozen=True, kw_only=True)
class LimitsAsk:
    """POST /api/v1/agent/limits."""

    wants: tuple[LimitWant, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LimitGrant:
    """`granted`: more, or permits in all; `left`: with the controllers after that; the lists, which go together, say what is
    counted: seconds until it leaves, and how much (only where less was granted than wanted)."""

    scope: str
    kind: str
    granted: int = 0
    left: int = 0
    leaves: tuple[float, ...] = ()
    amounts: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LimitsAnswer:
    grants: tuple[LimitGrant, ...] = ()
