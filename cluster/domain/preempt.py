"""Who gives way: the fewest and least useful replicas whose room lets another start."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.domain.board import Board
from cluster.domain.place import Placement, Placer
from cluster.domain.quotas import Ledger
from cluster.domain.types import ModelView, ReplicaView


@dataclass(frozen=True, kw_only=True)
class Eviction:
    """Replicas to stop, and the place that is there when they are gone."""

    victims: tuple[ReplicaView, ...]
    placement: Placement
    reason: str


def make_room(board: Board, placer: Placer, ledger: Ledger, model: ModelView, now: float) -> Eviction | None:
    """Whom to stop so that one more replica of this model can start; None where nobody may be stopped for it."""
    return None
