"""What is remembered of a model, brought up to this moment: failed starts, rest, load, restarts."""

from __future__ import annotations

from dataclasses import replace

from cluster.domain.board import Board
from cluster.domain.parking import parked
from cluster.domain.rest import rested
from cluster.domain.restart import restarted
from cluster.domain.scale import scaled
from cluster.domain.types import ModelView, Standing


def standing_now(board: Board, model: ModelView, now: float) -> tuple[Standing, str]:
    """The standing that a model should have, and why it differs from the one it has (empty: nobody wants to read it).

    Each part sees what the ones before it decided: 1. parking, 2. rest, 3. load, 4. restarts.
    """
    reasons = []
    for part in (parked, rested, scaled, _restarted):
        standing, why = part(board, model, now)
        if standing is not model.standing:
            model = replace(model, standing=standing)
        if why:
            reasons.append(why)
    return model.standing, "; ".join(reasons)


def _restarted(board: Board, model: ModelView, now: float) -> tuple[Standing, str]:
    return restarted(board, model)
