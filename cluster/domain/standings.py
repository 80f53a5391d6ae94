"""What is remembered of a model, brought up to this moment: load, rest, failed starts, restarts."""

from __future__ import annotations

from cluster.domain.board import Board
from cluster.domain.types import ModelView, Standing


def standing_now(board: Board, model: ModelView, now: float) -> tuple[Standing, str]:
    """The standing that a model should have, and why it differs from the one it has (empty: nobody wants to read it)."""
    return model.standing, ""
