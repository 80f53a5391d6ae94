"""Requests that wait for room at the replicas of one model: who is next, who has to go, and what a client is told.

As many run as there is room for; the others wait by class: who is of a higher one goes before all of a lower one, and only the bound
of the time that one waits keeps the lower from waiting for ever. Those of one class wait in flows, one for each scope and
priority, that are served by deficit round robin over tokens (M. Shreedhar, G. Varghese, "Efficient Fair Queuing Using Deficit
Round Robin", 1996). With every turn a flow may use QUANTUM tokens more, times its priority's weight, and keeps what it did not use
while it has requests. So of two flows of a class that both have requests all the time, what they were given per weight differs by
no more than `unfairness`; and while none of a higher class waits, a flow with a request in it is served within as many
turns as that is large, whatever others send. Times are seconds.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from cluster.domain.types import Klass
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

    scope: str  # whose it is: scopes of a class are treated alike
    tokens: int  # that it may take, prompt and answer
    since: float
    priority: int = 0
    klass: Klass = Klass.STANDARD


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

    @property
    def load(self) -> float:
        """What waits in it, by its share."""
        return len(self.tickets) / self.quantum


class _Turns:
    """The requests of one class that wait, in flows that take turns."""

    __slots__ = ("_turn", "flows")

    def __init__(self) -> None:
        self.flows: dict[tuple[str, int], _Flow] = {}  # in the order of their turns
        self._turn = False  # the first of them has its turn already, and goes on while its deficit lasts

    @property
    def waiting(self) -> int:
        return sum(len(flow.tickets) for flow in self.flows.values())

    def longest(self) -> _Flow:
        """The flow that has most, by its share."""
        return max(self.flows.values(), key=lambda flow: flow.load)

    def join(self, ticket: Ticket) -> None:
        flow = self.flows.get((ticket.scope, ticket.priority))
        if flow is None:
            flow = self.flows[ticket.scope, ticket.priority] = _Flow(ticket.priority)
        flow.tickets.append(ticket)

    def leave(self, ticket: Ticket) -> None:
        """What its flow had saved for it is not left to those behind it."""
        key = (ticket.scope, ticket.priority)
        flow = self.flows[key]
        if flow.tickets[0] is ticket:
            flow.deficit = min(flow.deficit, flow.quantum)
        flow.tickets.remove(ticket)
        self._drop_empty(key, flow)

    def take(self) -> Ticket:
        """Whose turn it is."""
        key, flow = next(iter(self.flows.items()))
        if not self._turn or flow.deficit < flow.tickets[0].tokens:
            key, flow = self._next()
        ticket = flow.tickets.popleft()
        flow.deficit -= max(1, ticket.tokens)
        self._drop_empty(key, flow)
        return ticket

    def _next(self) -> tuple[tuple[str, int], _Flow]:
        """Go round until a flow may serve its first request; all rounds at once, however many that takes."""
        items = list(self.flows.items())
        if self._turn:
            items.append(items.pop(0))
        rounds = min(flow.turns for _, flow in items)
        place = next(number for number, (_, flow) in enumerate(items) if flow.turns == rounds)
        for number, (_, flow) in enumerate(items):
            flow.deficit += flow.quantum * (rounds if number <= place else rounds - 1)
        self.flows = dict(items[place:] + items[:place])
        self._turn = True
        return items[place]

    def _drop_empty(self, key: tuple[str, int], flow: _Flow) -> None:
        if flow.tickets:
            return
        if self._turn and next(iter(self.flows)) == key:
            self._turn = False
        del self.flows[key]

    def ahead(self, ticket: Ticket) -> int:
        """About how many go before one that waits: those before it in its flow, and as many of each other one."""
        own = self.flows[ticket.scope, ticket.priority]
        before = own.tickets.index(ticket)
        others = sum(
            min(len(flow.tickets), -(-(before + 1) * flow.quantum // own.quantum))
            for flow in self.flows.values()
            if flow is not own
        )
        return before + others


class Line:
    """The requests of one model at one node: `running`, of which there may be `room`, and those that wait."""

    __slots__ = ("_classes", "_taken", "held", "room", "running", "waiting")

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.running = 0
        self.waiting = 0
        self.held: float | None = None  # seconds that a request ran, a moving mean; None: none has yet
        self._classes: dict[Klass, _Turns] = {}  # those of which somebody waits
        self._taken: dict[Klass, int] = {}  # requests of each that had to wait and had their turn

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
        2. one of a lower class waits                                of the lowest class, the last of the flow that has most
        3. none does, and another flow of its own class has more     the last of the one that has most
        4. else                                                      the ticket itself

        More is by the flow's share.
        """
        refused: Ticket | None = None
        if self.waiting >= most:
            refused = self._least(ticket)
            if refused is None:  # 4
                return ticket
            self.leave(refused)
        turns = self._classes.get(ticket.klass)
        if turns is None:
            turns = self._classes[ticket.klass] = _Turns()
        turns.join(ticket)
        self.waiting += 1
        return refused

    def _least(self, ticket: Ticket) -> Ticket | None:
        """Who has to go for this one; None: nobody."""
        lowest = min(self._classes, default=None)
        if lowest is None or lowest > ticket.klass:
            return None
        turns = self._classes[lowest]
        longest = turns.longest()
        if lowest == ticket.klass:  # 3
            own = turns.flows.get((ticket.scope, ticket.priority))
            mine = ((len(own.tickets) if own is not None else 0) + 1) / quantum(ticket.priority)
            if longest.load <= mine:
                return None
        return longest.tickets[-1]

    def leave(self, ticket: Ticket) -> None:
        """Wait no more."""
        self._classes[ticket.klass].leave(ticket)
        self._left(ticket.klass)

    def take(self) -> Ticket | None:
        """Who may run now: of the highest class whose turn it is. None: nobody waits, or there is no room. To be asked again until
        it is None."""
        if not self.waiting or self.running >= self.room:
            return None
        klass = max(self._classes)
        ticket = self._classes[klass].take()
        self.running += 1
        self._taken[klass] = self._taken.get(klass, 0) + 1
        self._left(klass)
        return ticket

    def _left(self, klass: Klass) -> None:
        self.waiting -= 1
        if not self._classes[klass].flows:
            del self._classes[klass]

    def ahead(self, ticket: Ticket) -> int:
        """About how many go before one that waits: all of higher classes, and those of its own before it."""
        higher = sum(turns.waiting for klass, turns in self._classes.items() if klass > ticket.klass)
        return higher + self._classes[ticket.klass].ahead(ticket)

    def taken_above(self, klass: Klass) -> int:
        """How many of higher classes waited and had their turn, since the line was begun."""
        return sum(count for other, count in self._taken.items() if other > klass)

    def expected(self, ahead: int) -> float | None:
        """Seconds until it is the turn of one that has so many before it; None: nobody knows."""
        return None if self.held is None or not self.room else (ahead + 1) * self.held / self.room


FULL, LATE = "queue_full", "queue_timeout"
_MOST_WAIT = 60.0
"""Seconds after which another try makes sense, at most, however long the queue."""


def full(name: str, line: Line, *, most: int, own: Klass = Klass.STANDARD, came: Klass | None = None) -> Refused:
    """429: as many wait as may. `own`: class of the one that is told; `came`: of another that took its place."""
    expected = line.expected(line.waiting)
    extra: dict[str, object] = {"waiting": line.waiting, "running": line.running, "room": line.room}
    if expected is not None:
        extra["expected_wait_s"] = round(expected, 1)
    taken = ""
    if came is not None and came > own:
        extra["displaced_by"] = word(came)
        taken = f", and one of the class {word(came)} took the place of this one, which is {word(own)}"
    text = (
        f"{_running(name, line)}, and {line.waiting} wait, of {most} that may{_pace(expected)}{taken}: "
        f"try again in {math.ceil(_later(expected))} s, or use another model."
    )
    return Refused(Kind.LIMITED, FULL, text, retry_after=_later(expected), extra=extra)


def late(name: str, line: Line, ticket: Ticket, *, waited: float, overtaken: int = 0) -> Refused:
    """503: the turn of one that waits did not come in time. `overtaken`: how many of higher classes had theirs meanwhile."""
    ahead = line.ahead(ticket)
    expected = line.expected(ahead)
    extra: dict[str, object] = {"position": ahead + 1, "waiting": line.waiting, "room": line.room}
    if expected is not None:
        extra["expected_wait_s"] = round(expected, 1)
    above = ""
    if overtaken:
        extra["overtaken_by"] = overtaken
        above = f"; meanwhile {overtaken} of a higher class than {word(ticket.klass)}, which it is, had their turn"
    text = (
        f"{_running(name, line)}; this request waited for {waited:.0f} s and was about number {ahead + 1} of those that "
        f"wait{_pace(expected)}{above}: try again in {math.ceil(_later(expected))} s, or use another model."
    )
    return Refused(Kind.UNAVAILABLE, LATE, text, retry_after=_later(expected), extra=extra)


def word(klass: Klass) -> str:
    return klass.name.lower()


def _running(name: str, line: Line) -> str:
    return (
        f"The model '{name[:SHOWN_NAME]}' is busy: {line.running} requests run, of {line.room} that it serves at a time"
    )


def _pace(expected: float | None) -> str:
    return f" (at the present pace its turn comes in about {math.ceil(expected)} s)" if expected is not None else ""


def _later(expected: float | None) -> float:
    return min(_MOST_WAIT, max(1.0, expected if expected is not None else 5.0))
