"""What a node does about its orders to fetch: when it tries again, what it removes, how fast it gets on. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import NamedTuple

from cluster.wire import FetchOrder, FetchReport
from llmgw_site.lib.units import format_bytes

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
"""Seconds between two tries that may help by themselves."""
LATER = 300.0
"""Seconds until what did not help by itself is tried again: somebody may have mended it, and told nobody."""
WINDOW = 5.0
"""Seconds over which a rate is taken."""
REMOVE_AFTER, REMOVE_ALL_AFTER = 30.0, 24 * 3600.0
"""Seconds for which nobody must want a version until it is removed: what controllers say may be from a moment before. The second
for one that is whole and that they do not know somebody removed: their database may be new, or of before it was made, and whoever
restores it gets time."""


def pause(failures: int, retry_after: float | None) -> float:
    """Seconds until the next try after so many failures in a row (1 is: the first has failed).

    1. trying again does not help by itself   growing to LATER
    2. else growing to LONGEST_PAUSE, and no less than was asked for
    """
    growing: float = FIRST_PAUSE * 2.0 ** min(max(0, failures - 1), 10)
    if retry_after is None:  # 1
        return min(LATER, 5 * growing)
    return max(retry_after, min(LONGEST_PAUSE, growing))  # 2


class Here(NamedTuple):
    """A version in the store."""

    version: str
    whole: bool


def to_remove(
    here: Iterable[Here], *, kept: Collection[str] | None, ordered: Collection[str], used: Collection[str], data: bool
) -> tuple[str, ...]:
    """Versions that nobody wants here any more.

    1. the controllers have not answered, or are of before this: none
    2. ordered, to be kept, or of a replica: it stays
    3. a node with module data has what the controllers name, and nothing else
    4. elsewhere only what is not whole goes; the rest goes when room is needed
    """
    if kept is None:  # 1
        return ()
    needed = {*kept, *ordered, *used}  # 2
    return tuple(item.version for item in here if item.version not in needed and (data or not item.whole))  # 3, 4


def patience(*, whole: bool, removed: bool) -> float:
    """Seconds for which a version must be unwanted until it is removed. `removed`: the controllers know that somebody did so."""
    return REMOVE_ALL_AFTER if whole and not removed else REMOVE_AFTER


def same_way(before: FetchOrder, now: FetchOrder) -> bool:
    """Whether a fetch that is under way may go on under the new order: only its sources are others."""
    return before.registry == now.registry and bool(before.sources) == bool(now.sources)


def can_begin(order: FetchOrder) -> bool:
    """Whether there is anything to fetch it from."""
    return order.registry or bool(order.sources)


class Rate:
    """Bytes a second over the last WINDOW seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now: float, there: int) -> None:
        if self._seen and there < self._seen[-1][1]:  # a file is fetched anew
            self._seen.clear()
        self._seen.append((now, there))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW:
            self._seen.popleft()

    def of(self, now: float) -> float:
        """By what was noted until `now`."""
        if len(self._seen) < 2:
            return 0.0
        (began, first), (_, last) = self._seen[0], self._seen[-1]
        return max(0.0, (last - first) / max(0.1, now - began))


def words(report: FetchReport) -> str:
    """How far it is, for people."""
    if report.message:
        return report.message
    if not report.size:
        return "The node asks what the weights consist of."
    far = f"{format_bytes(report.there)} of {format_bytes(report.size)}"
    far += f" ({format_bytes(report.shared)} were here already)" if report.shared else ""
    if report.rate is None:
        return f"The node has {far} of the weights and waits to fetch the rest."
    return f"The node fetches the weights: it has {far}, and gets {format_bytes(int(report.rate))} a second."
