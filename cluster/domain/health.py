"""Heartbeats to the state of a node.

A late reader kills nobody: silence counts only while some controller was processing heartbeats. `Listening` is the
mark that the controllers keep: `since`..`at` is the last span without a gap in which one of them was seen to work.
A controller that was stalled, or a database that stood still, breaks the span, and every node's silence starts anew.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from cluster.domain.states import NodeState

STALE_AFTER, OFFLINE_AFTER = 90.0, 300.0
"""Seconds of heard silence, unless settings say otherwise."""
GAP = 20.0
"""Seconds between two marks beyond which nobody can say that heartbeats were processed in between."""


def gap_of(stale_after: float) -> float:
    """GAP, or less where nodes are stale soon: a pause that would make them stale must break the span."""
    return min(GAP, stale_after / 2)


@dataclass(frozen=True)
class Listening:
    """Controllers processed heartbeats from `since` to `at`. None: never seen to."""

    since: float | None = None
    at: float | None = None


def mark(listening: Listening, now: float, *, gap: float = GAP) -> Listening:
    """A controller was seen to process heartbeats now. `now` must have been read together with `listening`: whoever read
    it before, and stood still since, would join what was heard before and after as if nothing had been between.

    1. the last mark is close: the span grows
    2. there is none, it is far back, or the clock went back: a new span begins
    """
    if listening.since is not None and listening.at is not None and 0 <= now - listening.at <= gap:  # 1
        return Listening(listening.since, now)
    return Listening(now, now)  # 2


def set_back(listening: Listening, now: float) -> bool:
    """Whether the database's clock was set back since the last mark. What it said of nodes is then of the future, and
    must be cut to `now` before the next mark: for `node_state` a node of the future is one heard of since it looked."""
    return listening.at is not None and now < listening.at


def node_state(
    last_seen: float | None,
    listening: Listening,
    now: float,
    *,
    stale_after: float = STALE_AFTER,
    offline_after: float = OFFLINE_AFTER,
) -> NodeState:
    """State of a node by the silence that a working controller has heard. `listening` and `now` must have been read
    before `last_seen`: a reader who stands still in between then sees a node younger than it is, never older.

    1. nobody listens now, or ever did, or not since the database's clock was set back: nothing can be said against it; a
       node never seen is offline
    2. its silence began at its last heartbeat, or when listening began, whichever is later
    3. `offline_after`: offline; `stale_after`: stale; else online
    """
    gap = gap_of(stale_after)
    if listening.since is None or listening.at is None or listening.at > now + gap:  # 1
        return NodeState.ONLINE if last_seen is not None else NodeState.OFFLINE
    if last_seen is None:
        return NodeState.OFFLINE
    heard_until = now if now - listening.at <= gap else listening.at
    silence = heard_until - max(last_seen, listening.since)  # 2
    if silence >= offline_after:  # 3
        return NodeState.OFFLINE
    return NodeState.STALE if silence >= stale_after else NodeState.ONLINE


REMEMBERED = 30.0
"""Seconds that the outcome of a heartbeat counts: a node sends one in each such span."""


class Outcomes:
    """How the heartbeats of the last half minute ended in one process. One owner, no lock.

    A process that answers most of them by a defect of its own hears nothing, however well it answers other calls: the
    silence that it sees is its own. One node whose heartbeats always fail does not make it deaf for the others.
    """

    def __init__(self) -> None:
        self._ends: deque[tuple[float, bool]] = deque()
        self._worked = 0

    def note(self, worked: bool, now: float) -> None:
        self._ends.append((now, worked))
        self._worked += worked

    def working(self, now: float) -> bool:
        """Whether at least half of them worked; true where there were none."""
        while self._ends and not 0 <= now - self._ends[0][0] <= REMEMBERED:
            self._worked -= self._ends.popleft()[1]
        return 2 * self._worked >= len(self._ends)
