"""Requests that wait for room at the replicas of one model: who is next, who has to go, and what a client is told.

As many run as there is room for; the others wait in flows, one for each scope and priority, that are served by deficit round
robin over tokens (M. Shreedhar, G. Varghese, "Efficient Fair Queuing Using Deficit Round Robin", 1996). With every turn a
flow may use QUANTUM tokens more, times its priority's weight, and keeps what it did not use while it has requests. So of two flows
that both have requests all the time, what they were given per weight differs by no more than `unfairness`; and a flow
with a request in it is served within as many turns as that is large, whatever others send. Times are seconds.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from llmgw_site.lib.errors import Kind, Refused
from routing.domain.openai import SHOWN_NAME

QUANTUM = 1024
"""Tokens that a flow of priority 0 is given with each turn."""
LOWEST, HIGHEST = -2, 2
"""Priorities of keys."""
STEP = 4
"""A priority has this many times the share of the one below it."""
SMOOTH = 0.1
"""Weight of the last request in the mean of how long one runs."""


def weight(priority: int) -> int:
    """Of a priority, the lowest having 1; one that is out of bounds counts as the nearest."""
    return int(STEP ** (min(max(priority, LOWEST), HIGHEST) - LOWEST))


def quantum(priority: int) -> int:
    """Tokens that a flow of this priority is given with each turn."""
    return QUANTUM * weight(priority) // weight(0)


def room_of(slots: int, concurrency: float) -> int:
    """Requests at once of a replica: as many as it was measured to serve well (0: not measured), within its slots."""
    return max(1, min(slots, int(concurrency)) if concurrency else slots)


def unfairness(largest: int, one: int, other: int) -> float:
    """Turns' worth of tokens by which two flows of these priorities may differ that both have requests all the time;
    `largest`: tokens of the largest request."""
    return 1 + largest / quantum(one) + largest / quantum(other)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ticket:
    """A request that waits."""

    scope: str  # whose it is: scopes are treated alike
    tokens: int  # that it may take, prompt and answer
    since: float
    priority: int = 0


class _Flow:
    __slots__ = ("deficit", "quantum", "tickets")

    def __init__(self, priority: int) -> None:
        self.tickets: deque[Ticket] = deque()
        self.deficit = 0
        self.quantum = quantum(priority)

    @property
    def turns(self) -> int:
        """Further turns until its first request may go; at least one."""
        return max(1, -(-(max(1, self.tickets[0].tokens) - self.deficit) // self.quantum))


class Line:
    """The requests of one model at one node: `running`, of which there may be `room`, and those that wait."""

    __slots__ = ("_flows", "_turn", "held", "room", "running", "waiting")

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.running = 0
        self.waiting = 0
        self.held: float | None = None  # seconds that a request ran, a moving mean; None: none has yet
        self._flows: dict[tuple[str, int], _Flow] = {}  # in the order of their turns
        self._turn = False  # the first of them has its turn already, and goes on while its deficit lasts

    def enter(self) -> bool:
        """Run at once, if there is room and nobody waits for it; whether it may."""
        if self.running < self.room and not self.waiting:
            self.running += 1
            return True
        return False

    def over(self, seconds: float | None) -> None:
        """A request that ran for so long does no more; None: it was not sent."""
        self.running -= 1
        if seconds is None:
            return
        self.held = seconds if self.held is None else self.held + SMOOTH * (seconds - self.held)

    def join(self, ticket: Ticket, *, most: int) -> Ticket | None:
        """Wait, where at most `most` may. Returns who is refused.

        1. there is room in the queue                                nobody
        2. another flow has more in it, by its share                 the last of the one that has most
        3. else                                                      the ticket itself
        """
        key = (ticket.scope, ticket.priority)
        refused: Ticket | None = None
        if self.waiting >= most:
            own = self._flows.get(key)
            mine = ((len(own.tickets) if own is not None else 0) + 1) / quantum(ticket.priority)
            longest = max(self._flows.values(), key=lambda flow: len(flow.tickets) / flow.quantum, default=None)
            if longest is None or len(longest.tickets) / longest.quantum <= mine:  # 3
                return ticket
            refused = longest.tickets[-1]  # 2
            self.leave(refused)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = _Flow(ticket.priority)
        flow.tickets.append(ticket)
        self.waiting += 1
        return refused

    def leave(self, ticket: Ticket) -> None:
        """Wait no more. What its flow had saved for it is not left to those behind it."""
        key = (ticket.scope, ticket.priority)
        flow = self._flows[key]
        if flow.tickets[0] is ticket:
            flow.deficit = min(flow.deficit, flow.quantum)
        flow.tickets.remove(ticket)
        self.waiting -= 1
        self._drop_empty(key, flow)

    def take(self) -> Ticket | None:
        """Who may run now; None: nobody waits, or there is no room. To be asked again until it is None."""
        if not self.waiting or self.running >= self.room:
            return None
        key, flow = next(iter(self._flows.items()))
        if not self._turn or flow.deficit < flow.tickets[0].tokens:
            key, flow = self._next()
        ticket = flow.tickets.popleft()
        flow.deficit -= max(1, ticket.tokens)
        self.waiting -= 1
        self.running += 1
        self._drop_empty(key, flow)
        return ticket

    def _next(self) -> tuple[tuple[str, int], _Flow]:
        """Go round until a flow may serve its first request; all rounds at once, however many that takes."""
        items = list(self._flows.items())
        if self._turn:
            items.append(items.pop(0))
        rounds = min(flow.turns for _, flow in items)
        place = next(number for number, (_, flow) in enumerate(items) if flow.turns == rounds)
        for number, (_, flow) in enumerate(items):
            flow.deficit += flow.quantum * (rounds if number <= place else rounds - 1)
        self._flows = dict(items[place:] + items[:place])
        self._turn = True
        return items[place]

    def _drop_empty(self, key: tuple[str, int], flow: _Flow) -> None:
        if flow.tickets:
            return
        if self._turn and next(iter(self._flows)) == key:
            self._turn = False
        del self._flows[key]

    def ahead(self, ticket: Ticket) -> int:
        """About how many go before one that waits: those before it in its flow, and as many of each other one."""
        own = self._flows[ticket.scope, ticket.priority]
        before = own.tickets.index(ticket)
        others = sum(
            min(len(flow.tickets), -(-(before + 1) * flow.quantum // own.quantum))
            for flow in self._flows.values()
            if flow is not own
        )
        return before + others

    def expected(self, ahead: int) -> float | None:
        """Seconds until it is the turn of one that has so many before it; None: nobody knows."""
        return None if self.held is None or not self.room else (ahead + 1) * self.held / self.room


FULL, LATE = "queue_full", "queue_timeout"
_MOST_WAIT = 60.0
"""Seconds after which another try makes sense, at most, however long the queue."""


def full(name: str, line: Line, *, most: int) -> Refused:
    """429: as many wait as may."""
    expected = line.expected(line.waiting)
    extra: dict[str, object] = {"waiting": line.waiting, "running": line.running, "room": line.room}
    if expected is not None:
        extra["expected_wait_s"] = round(expected, 1)
    text = (
        f"{_running(name, line)}, and {line.waiting} wait, of {most} that may{_pace(expected)}: "
        f"try again in {math.ceil(_later(expected))} s, or use another model."
    )
    return Refused(Kind.LIMITED, FULL, text, retry_after=_later(expected), extra=extra)


def late(name: str, line: Line, *, ahead: int, waited: float) -> Refused:
    """503: its turn did not come in time. `ahead`: how many would still have gone before it."""
    expected = line.expected(ahead)
    extra: dict[str, object] = {"position": ahead + 1, "waiting": line.waiting, "room": line.room}
    if expected is not None:
        extra["expected_wait_s"] = round(expected, 1)
    text = (
        f"{_running(name, line)}; this request waited for {waited:.0f} s and was about number {ahead + 1} of those that "
        f"wait{_pace(expected)}: try again in {math.ceil(_later(expected))} s, or use another model."
    )
    return Refused(Kind.UNAVAILABLE, LATE, text, retry_after=_later(expected), extra=extra)


def _running(name: str, line: Line) -> str:
    return (
        f"The model '{name[:SHOWN_NAME]}' is busy: {line.running} requests run, of {line.room} that it serves at a time"
    )


def _pace(expected: float | None) -> str:
    return f" (at the present pace its turn comes in about {math.ceil(expected)} s)" if expected is not None else ""


def _later(expected: float | None) -> float:
    return min(_MOST_WAIT, max(1.0, expected if expected is not None else 5.0))
