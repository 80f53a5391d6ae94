"""A plan under way: what has been decided so far, and the picture as it leaves it."""

from __future__ import annotations

from cluster.domain import plan as plans
from cluster.domain.board import Board
from cluster.domain.place import Placer
from cluster.domain.plan import Op, Plan, Wait, seen_of
from cluster.domain.preempt import Taker
from cluster.domain.quotas import Ledger
from cluster.domain.types import World


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

    def do(self, op: Op) -> None:
        plans.do(op, self.board)
        self.ops.append(op)

    def plan(self) -> Plan:
        return Plan(ops=tuple(self.ops), waits=tuple(self.waits), seen=seen_of(self.ops, self.board.world))
