"""Restarts by hand: which of the replicas that were to be replaced still are."""

from __future__ import annotations

from dataclasses import replace

from cluster.domain.board import Board
from cluster.domain.types import ModelView, ReplicaView, Standing


def restarted(board: Board, model: ModelView) -> tuple[Standing, str]:
    """The restart as far as it has come.

    1. none was asked for
    2. the model wants no replica: there is nothing to restart
    3. a replica is done when it is gone, told to stop, or has started anew (another generation has another name)
    """
    standing = model.standing
    if not standing.restarting:  # 1
        return standing, ""
    there = {item.name_now for item in board.of_model(model.id) if item.run}
    left = tuple(name for name in standing.restarting if name in there) if model.target else ()  # 2, 3
    if left == standing.restarting:
        return standing, ""
    why = "the restart is done" if not left and model.target else ""
    return replace(standing, restarting=left, in_place=standing.in_place and bool(left)), why


def given_up(standing: Standing, replica: ReplicaView) -> Standing:
    """The standing when this replica is left as it is."""
    left = tuple(name for name in standing.restarting if name != replica.name_now)
    return replace(standing, restarting=left, in_place=standing.in_place and bool(left))
