"""A plan under way: what has been decided so far, and the picture as it leaves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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
    freed: int


class Taken(NamedTuple):
    """This plan made room for a model, and another had to leave it, or it was kept for that until then."""

    taker: str
    loser: str


class Draft:
    """Collects the operations of one plan; each sees the world as the ones before it leave it."""

    def __init__(self, world: World, now: float) -> None:
        self.board = Board(world)
        self.placer = Placer(self.board)
        self.ledger = Ledger(self.board)
        self.taker = Taker(self.board, self.placer, self.ledger, now)
        self.now = now
        self.ops: list[Op] = []
        self.waits: list[Wait] = []
        self.taken: list[Taken] = []
        self.freed = 0  # how often room was kept and is no longer

    def do(self, op: Op) -> None:
        self.freed += isinstance(op, plans.Release)
        plans.do(op, self.board)
        self.ops.append(op)

    def moment(self) -> Moment:
        return Moment(self.board.mark(), len(self.ops), len(self.waits), len(self.taken), self.freed)

    def back(self, moment: Moment) -> None:
        """As if nothing had been decided since."""
        self.board.back(moment.mark)
        del self.ops[moment.ops :], self.waits[moment.waits :], self.taken[moment.taken :]
        self.freed = moment.freed

    def in_vain(self, since: int) -> str:
        """A model for which this plan made room in vain; empty if there is none. Since `since` others have taken room of it
        who had to leave what it took, or what those took who had to leave that."""
        for index, (taker, loser) in enumerate(self.taken[since:], since):
            made = {loser}  # by whom or because of whom room was made, up to then
            for item in self.taken[:index]:
                if item.taker in made:
                    made.add(item.loser)
            if taker in made:
                return loser
        return ""

    def plan(self) -> Plan:
        waits = {(item.model_id, item.replica_id, item.code): item for item in self.waits}  # looked at again: said anew
        return Plan(ops=tuple(self.ops), waits=tuple(waits.values()), seen=seen_of(self.ops, self.board.world))
