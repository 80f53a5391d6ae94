"""A plan under way: what has been decided so far, and the picture as it leaves it."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.domain import plan as plans
from cluster.domain.board import Board
from cluster.domain.place import Placer
from cluster.domain.plan import Op, Plan, Wait, seen_of
from cluster.domain.preempt import Taker
from cluster.domain.quotas import Ledger
from cluster.domain.types import World


@dataclass(frozen=True)
class Moment:
    """A plan under way, to be taken up again from there."""

    mark: int
    ops: int
    waits: int
    taken: int


class Draft:
    """Collects the operations of one plan; each sees the world as the ones before it leave it.

    `taken`: pairs of a model for which this plan made room, and one that had to leave it or for which it was kept before.
    """

    def __init__(self, world: World, now: float) -> None:
        self.board = Board(world)
        self.placer = Placer(self.board)
        self.ledger = Ledger(self.board)
        self.taker = Taker(self.board, self.placer, self.ledger, now)
        self.now = now
        self.ops: list[Op] = []
        self.waits: list[Wait] = []
        self.taken: list[tuple[str, str]] = []

    def do(self, op: Op) -> None:
        plans.do(op, self.board)
        self.ops.append(op)

    def moment(self) -> Moment:
        return Moment(self.board.mark(), len(self.ops), len(self.waits), len(self.taken))

    def back(self, moment: Moment) -> None:
        """As if nothing had been decided since."""
        self.board.back(moment.mark)
        del self.ops[moment.ops :], self.waits[moment.waits :], self.taken[moment.taken :]

    def in_vain(self, since: int) -> str:
        """A model for which this plan made room in vain; empty if there is none. Since `since` others have taken room of it
        who had to leave what it took, or what those took who had to leave that."""
        for index, (taker, loser) in enumerate(self.taken[since:], since):
            made = {loser}  # by whom or because of whom room was made, up to then
            for other, left in self.taken[:index]:
                if other in made:
                    made.add(left)
            if taker in made:
                return loser
        return ""

    def plan(self) -> Plan:
        return Plan(ops=tuple(self.ops), waits=tuple(self.waits), seen=seen_of(self.ops, self.board.world))
