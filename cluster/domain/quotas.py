"""What parts of the tenancy tree hold of the fleet, are guaranteed of it, and may have of it at most."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.domain.board import Board
from cluster.domain.types import ModelView, ReplicaView, Share


class Ledger:
    """Who holds what on a board. What a scope holds is summed from the replicas of its models and the scopes beneath."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def over_limit(self, model: ModelView, shares: Sequence[Share]) -> str:
        """Which limit forbids a model to take these shares too, with the sums; empty if none does."""
        return ""

    def may_take(self, victim: ReplicaView, model: ModelView) -> bool:
        """Whether quotas let a replica's room be taken for a model of another owner."""
        return True
