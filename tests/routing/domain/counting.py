"""What the controllers' counters do, in Python: compared with the real ones in tests/cluster/services/test_limits.py."""

from __future__ import annotations

from cluster.domain.leasing import COUNTED, PERMITS, LimitGrant, LimitWant


class Counted:
    """A limit per minute."""

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}

    def lease(self, want: LimitWant, now: float) -> LimitGrant:
        self.slots = {second: n for second, n in sorted(self.slots.items()) if second + 1 + COUNTED > now and n}
        back = want.back
        for second in list(self.slots):
            part = min(back, self.slots[second])
            self.slots[second] -= part
            back -= part
        total = sum(self.slots.values())
        granted = max(0, min(want.want, want.limit - total - want.taken))
        self.slots[int(now)] = self.slots.get(int(now), 0) + granted + want.taken
        told = [(second + 1 + COUNTED - now, n) for second, n in sorted(self.slots.items()) if n]
        short = granted < want.want
        return LimitGrant(
            scope=want.scope,
            kind=want.kind,
            granted=granted,
            left=want.limit - total - want.taken - granted,
            leaves=tuple(leaves for leaves, _ in told) if short else (),
            amounts=tuple(n for _, n in told) if short else (),
        )


class Permitted:
    """A limit of parallel requests."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[int, float]] = {}

    def lease(self, edge: str, want: LimitWant, now: float) -> LimitGrant:
        self.held = {name: item for name, item in self.held.items() if item[1] > now}
        others = sum(count for name, (count, _) in self.held.items() if name != edge)
        granted = max(0, min(want.want, want.limit - others))
        kept = max(granted, want.taken)
        self.held[edge] = (kept, now + PERMITS)
        return LimitGrant(scope=want.scope, kind=want.kind, granted=granted, left=want.limit - others - kept)
