"""Which reasons to wait are worth a line in the log: not the same ones each tick."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster.domain.plan import Wait

TELL_AGAIN = 600.0
"""Seconds after which a reason that stands is told again."""
Told = Mapping[tuple[str, str, str], float]
"""By model, replica (empty: the model itself) and code: when it was told last."""


def worth_telling(told: Told, waits: Iterable[Wait], now: float) -> tuple[list[Wait], Told]:
    """The waits to tell now, and what is told then.

    1. one that was not there at the last look, or has another code: told; a model may have several at once. Figures in
       its words change all the time, so they do not count
    2. the same as before: told again every TELL_AGAIN
    3. one that is over is forgotten, so that it is news when it comes back
    """
    news, kept = [], dict[tuple[str, str, str], float]()
    for wait in waits:
        key = (wait.model_id, wait.replica_id, wait.code)
        at = told.get(key)
        if at is None or now - at >= TELL_AGAIN:
            news.append(wait)
            at = now
        kept[key] = at
    return news, kept
