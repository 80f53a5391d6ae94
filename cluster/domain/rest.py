"""Rest: a model that runs on demand stops when nobody has asked for it for a while."""

from __future__ import annotations

from dataclasses import replace

from cluster.domain.board import Board
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import ModelView, ReplicaView, Standing
from llmgw_site.lib.units import format_seconds

HEARD = 2
"""Reports of a node, of which one may be late or lost."""


def rested(board: Board, model: ModelView, now: float) -> tuple[Standing, str]:
    """Whether a model that runs on demand is awake (`asked_at`) or at rest.

    1. it does not run on demand, or is disabled: neither
    2. at rest, and a replica of it runs all the same: it always ran before. It is awake, as if asked for now
    3. awake: a replica works at requests, or is on its way and has its deadline for that. A load of twenty minutes is
       not given up because nobody asked again. Nor is one whose node is not heard: what it does nobody knows
    4. awake: for `rest_after` seconds nobody asked, no replica was used, and none became ready only now: to rest. So one
       that found no place is wanted no longer either, and the next request is a fresh attempt. Nodes say now and then
       when a replica was used last: a span that is shorter than HEARD reports of them proves nothing, and is not enough
    """
    model = _proven(board, model)
    standing, idle = model.standing, max(model.rest_after, HEARD * board.world.heard_every)
    if not model.on_demand or not model.enabled or model.external:  # 1
        return (replace(standing, asked_at=None) if standing.asked_at is not None else standing), ""
    mine = [item for item in board.of_model(model.id) if item.run]
    if standing.asked_at is None:
        if not mine:
            return standing, ""
        why = f"it runs on demand from now on, and stops after {format_seconds(idle)} without a request"  # 2
        return replace(standing, asked_at=now), why
    if any(busy(board, item) for item in mine):  # 3
        return standing, ""
    used = max(standing.asked_at, standing.used_at or 0.0, *(_used_at(board, item) for item in mine), 0.0)
    if now - used < idle:
        return standing, ""
    why = f"nobody has asked for it for {format_seconds(now - used)}: it goes to rest until the next request"  # 4
    return replace(standing, asked_at=None), why


def _proven(board: Board, model: ModelView) -> ModelView:
    """The model, of which nothing is remembered that a ready replica has made good."""
    if not model.standing.gave_up or not any(
        item.run and board.state(item) is ReplicaState.READY for item in board.of_model(model.id)
    ):
        return model
    return replace(model, standing=replace(model.standing, gave_up=False))


def busy(board: Board, replica: ReplicaView) -> bool:
    """Case 3: whether a replica keeps its model awake. One that could not begin works at nothing, whatever was told of it."""
    state = board.state(replica)
    if state in (ReplicaState.PENDING, ReplicaState.FETCHING, ReplicaState.STARTING):
        return True
    if state is ReplicaState.BACKOFF:
        return replica.failures > 0  # until it is parked
    if state is ReplicaState.LOST:
        return False
    node = board.node(replica.node_id)
    return replica.in_flight > 0 or (node is not None and node.state is NodeState.STALE)


def _used_at(board: Board, replica: ReplicaView) -> float:
    ready = replica.state_since if board.state(replica) is ReplicaState.READY else 0.0
    return max(replica.used_at or 0.0, ready)
