"""How several edges count together: each leases small lots of what a scope may have from the controllers.

What is leased counts with the controllers from then on, for `COUNTED` seconds (cluster/domain/leasing.py); an edge gives it out within `HELD` seconds
of its question, or not at all. So whatever is given out within a minute was leased within `COUNTED` seconds, of which no
stretch has more than the limit: nothing goes over it, however edges and controllers are out of step, fail or come back.
What an edge does not give out, and what a request used less than it reserved, goes back, as long as it surely counts
still. What an edge let in by itself while nobody counted is told, and counts from then on.

Permits for parallel requests are held in the edge's name and said anew while they are; they end by themselves.
All of it is plain state with the time given; who asks is gateway/limiter.py, who answers cluster/services/limits.py.
"""

from __future__ import annotations

import math
from collections import deque

from cluster.domain.leasing import HELD, PARALLEL, PERMITS, LimitGrant, LimitWant
from routing.domain.limits import Slots, Window, fits_alone, owed, room_in, share

RETURNABLE = 50.0
"""Seconds after which what was reserved and not used is not given back: it may have ceased to count."""
LOTS = 10
"""A lot is this part of an edge's share."""
AGAIN = 0.5
"""Seconds for which an edge takes a refusal for granted before it asks again."""


def lot(limit: int, edges: int) -> int:
    """What an edge asks for beyond what requests need at once; 0: they ask one by one."""
    return limit // (LOTS * max(1, edges))


class PerMinute:
    """Requests or tokens a minute of one scope, as one edge knows them. `counted`: controllers count; else it is alone."""

    def __init__(self, scope: str, kind: str) -> None:
        self.scope, self.kind = scope, kind
        self.limit, self.edges = 0, 1
        self.window = Window()  # what was let in here
        self.waiting = 0  # what requests need that wait for an answer
        self._under_way = 0  # requests that are not settled yet, for longer than a minute perhaps
        self._lots: deque[list[float]] = deque()  # pairs of when it was asked for and what is left of it
        self._back = self._untold = 0
        self._left: int | None = None  # with the controllers, as they last said
        self._slots: Slots = ()
        self._slots_at = self._refused_until = 0.0
        self._owes_until = -math.inf  # alone, after a request that was larger than its share:
        self._large = (-math.inf, 0, 0)  # when that came, what was taken before, and what it reserved

    def held(self, now: float) -> int:
        while self._lots and self._lots[0][0] + HELD <= now:
            self._back += int(self._lots.popleft()[1])
        return int(sum(item[1] for item in self._lots))

    def passes(self, now: float, amount: int, *, counted: bool) -> bool:
        if counted:
            return self.held(now) >= amount
        return now >= self._owes_until and fits_alone(self.limit, self.edges, self.window.total(now), amount)

    def may_ask(self, now: float) -> bool:
        """Whether an answer may be other than the last one."""
        return now >= self._refused_until

    def wait(self, now: float, amount: int, *, counted: bool) -> float | None:
        """Seconds until it passes, as far as is known; None: nobody knows."""
        if not counted:
            most = share(self.limit, self.edges)
            most = most if amount <= most else self.limit
            room = room_in(self.window.slots(now), most - self.window.total(now), amount)
            return None if room is None else max(room, self._owes_until - now)
        since = now - self._slots_at
        slots = tuple((max(0.0, leaves - since), taken) for leaves, taken in self._slots)
        return room_in(slots, (self._left or 0) + self.held(now), amount)

    def left(self, now: float, *, counted: bool) -> int:
        if counted and self._left is not None:
            return self._left + self.held(now)
        if not counted and now < self._owes_until:
            return 0
        most = self.limit if counted else share(self.limit, self.edges)
        return most - self.window.total(now)

    def reset(self, now: float, *, counted: bool) -> float:
        """Seconds until nothing of it is taken any more, as far as is known here."""
        left = self.window.reset(now)
        return left if counted else max(left, self._owes_until - now)

    def take(self, now: float, amount: int, *, counted: bool) -> None:
        """It was seen to pass."""
        self._under_way += 1
        before = self.window.total(now)
        self.window.take(now, amount)
        if not counted:
            if debt := owed(self.limit, self.edges, before, amount):
                self._large, self._owes_until = (now, before, amount), now + debt
            self._note_untold(amount)
            return
        while amount and self._lots:
            part = min(amount, int(self._lots[0][1]))
            self._lots[0][1] -= part
            amount -= part
            if not self._lots[0][1]:
                self._lots.popleft()

    def settle(self, at: float, now: float, *, reserved: int, used: int, counted: bool) -> None:
        """A request of then is over; `counted`: whether it was let in from what was leased.

        1. it used less   the rest is free again here, and given back
        2. it used more   that counts from now on
        """
        self._under_way -= 1
        if used > reserved:  # 2
            self.window.take(now, used - reserved)
            self._note_untold(used - reserved)
        elif used < reserved:  # 1
            self.window.give_back(at, reserved - used)
            came, before, large = self._large
            if (at, reserved) == (came, large) and self.limit:  # what was not used is not owed either
                self._owes_until = at + owed(self.limit, self.edges, 0, before + used)
            if counted and now - at < RETURNABLE:  # else it may have been told already, or not: it counts for a minute
                self._back += reserved - used

    def _note_untold(self, amount: int) -> None:
        if self.edges > 1:
            self._untold += amount

    # --- with the controllers

    def want(self, now: float) -> LimitWant | None:
        """What to say to them now; None: nothing. It counts as said: `answered` or `unheard` has to follow."""
        held, spare = self.held(now), lot(self.limit, self.edges)
        surplus = held - spare - self.waiting
        while surplus > 0 and self._lots:  # asked for by requests that were refused
            part = min(surplus, int(self._lots[-1][1]))
            self._lots[-1][1] -= part
            self._back += part
            surplus -= part
            if not self._lots[-1][1]:
                self._lots.pop()
        want = max(0, self.waiting + spare - held) if self.waiting and self.may_ask(now) else 0
        taken = min(self._untold, self.window.total(now))
        back, self._back, self._untold = self._back, 0, 0
        if not (want or back or taken):
            return None
        return LimitWant(scope=self.scope, kind=self.kind, limit=self.limit, want=want, back=back, taken=taken)

    def answered(self, asked_at: float, now: float, want: LimitWant, grant: LimitGrant) -> None:
        self._left = grant.left
        if grant.granted > 0:
            self._lots.append([asked_at, min(grant.granted, want.want)])
        if grant.granted < want.want:
            self._slots, self._slots_at = tuple(zip(grant.leaves, grant.amounts, strict=False)), now
            self._refused_until = now + AGAIN

    def unheard(self, want: LimitWant | None) -> None:
        """No controller answers: what was leased is void, what was let in here is to be told later."""
        self._lots.clear()
        self._back, self._left, self._slots, self._refused_until = 0, None, (), 0.0
        if want is not None:
            self._untold += want.taken

    def idle(self, now: float) -> bool:
        """Whether nothing is lost if it is forgotten."""
        known = self.waiting or self._under_way or self._back or self._untold or self.held(now)
        return not (known or now < self._owes_until or self.window.total(now))


class Parallel:
    """Parallel requests of one scope, as one edge knows them."""

    kind = PARALLEL

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.limit, self.edges = 0, 1
        self.running = self.waiting = 0
        self._permits, self._until, self._refused_until = 0, 0.0, 0.0
        self._said, self._said_at = 0, -PERMITS

    def passes(self, now: float, amount: int, *, counted: bool) -> bool:
        if counted:
            return self.running + amount <= self._permits and now < self._until
        return self.running + amount <= share(self.limit, self.edges)

    def may_ask(self, now: float) -> bool:
        return now >= self._refused_until

    def wait(self, now: float, amount: int, *, counted: bool) -> float | None:
        return None  # until somebody's request is over

    def take(self, now: float, amount: int, *, counted: bool) -> None:
        self.running += amount

    def settle(self, at: float, now: float, *, reserved: int, used: int, counted: bool) -> None:
        self.running -= reserved

    # --- with the controllers

    def want(self, now: float) -> LimitWant | None:
        """All permits that are needed; None: nothing has to be said, since they know and it is not long ago."""
        spare = lot(self.limit, self.edges) if self.running or self.waiting else 0
        want = min(self.limit, self.running + self.waiting + spare)
        if want == self._said and not self.waiting and (not want or now - self._said_at < PERMITS / 3):
            return None
        self._said, self._said_at = want, now
        self._permits = min(self._permits, max(want, self.running))  # what is not said anew is not used any more
        return LimitWant(scope=self.scope, kind=self.kind, limit=self.limit, want=want, taken=self.running)

    def answered(self, asked_at: float, now: float, want: LimitWant, grant: LimitGrant) -> None:
        self._permits, self._until = min(grant.granted, want.want), asked_at + PERMITS
        if grant.granted < want.want:
            self._refused_until = now + AGAIN

    def unheard(self, want: LimitWant | None) -> None:
        self._permits, self._refused_until, self._said = 0, 0.0, -1

    def idle(self, now: float) -> bool:
        return not (self.waiting or self.running or self._permits or self._said)


Counter = PerMinute | Parallel
