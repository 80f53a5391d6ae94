"""Rest: a model that runs on demand stops when nobody has asked for it for a while."""

from __future__ import annotations

from dataclasses import replace

from cluster.domain.board import Board
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, ReplicaView, Standing
from llmgw_site.lib.units import format_seconds


def rested(board: Board, model: ModelView, now: float) -> tuple[Standing, str]:
    """Whether a model that runs on demand is awake (`asked_at`) or at rest.

    1. it does not run on demand, or is disabled: neither
    2. at rest, and a replica of it runs all the same: it always ran before. It is awake, as if asked for now
    3. awake: a replica works at requests, or is on its way and has its deadline for that. A load of twenty minutes is
       not given up because nobody asked again
    4. awake: for `rest_after` seconds nobody asked, no replica was used, and none became ready only now: to rest. So one
       that found no place is wanted no longer either, and the next request is a fresh attempt
    """
    standing = model.standing
    if not model.on_demand or not model.enabled or model.external:  # 1
        return (replace(standing, asked_at=None) if standing.asked_at is not None else standing), ""
    mine = [item for item in board.of_model(model.id) if item.run]
    if standing.asked_at is None:
        if not mine:
            return standing, ""
        why = (
            f"it runs on demand from now on, and stops after {format_seconds(model.rest_after)} without a request"  # 2
        )
        return replace(standing, asked_at=now), why
    if any(_busy(board, item) for item in mine):  # 3
        return standing, ""
    used = max(standing.asked_at, standing.used_at or 0.0, *(_used_at(board, item) for item in mine), 0.0)
    if now - used < model.rest_after:
        return standing, ""
    why = f"nobody has asked for it for {format_seconds(now - used)}: it goes to rest until the next request"  # 4
    return replace(standing, asked_at=None), why


def _busy(board: Board, replica: ReplicaView) -> bool:
    state = board.state(replica)
    if state in (ReplicaState.PENDING, ReplicaState.STARTING):
        return True
    if state is ReplicaState.BACKOFF:
        return replica.failures > 0  # until it is parked
    return state is not ReplicaState.LOST and replica.in_flight > 0


def _used_at(board: Board, replica: ReplicaView) -> float:
    ready = replica.state_since if board.state(replica) is ReplicaState.READY else 0.0
    return max(replica.used_at or 0.0, ready)
