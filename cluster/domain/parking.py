"""Parking: a model whose starts fail again and again is left alone until somebody has mended it."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from cluster.domain.board import Board
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, ReplicaView, Standing

PARK_AFTER = 5
"""Failed starts in a row, of all replicas of a model together."""


def parked(board: Board, model: ModelView, now: float) -> tuple[Standing, str]:
    """Whether a model is parked, and how many of its starts have failed in a row.

    1. it is disabled, or a provider answers for it: nothing is held against it
    2. a replica of its present definition is ready: it works, whatever fails on some other node. One that serves with an
       older definition says nothing of the new one, and goes on
    3. it is parked: until its definition (profiles, weights) is another one than that which failed
    4. its replicas together have failed often enough, and none of them may still prove that it works: parked from now on,
       with what the last that failed said. One that has yet to start may prove it, and so may one that was ready and died;
       one that cannot even begin (`ReplicaView.held_up`) proves nothing while others fail. Outdated ones and those whose
       node is lost do not count
    """
    standing = model.standing
    if not model.enabled or model.external:  # 1
        return _cleared(standing), ""
    mine = [item for item in board.of_model(model.id) if item.run]
    digests = {item.digest for item in model.profiles}
    if any(item.digest in digests and board.state(item) is ReplicaState.READY for item in mine):  # 2
        return _cleared(
            standing
        ), "a replica is ready: it is parked no longer" if standing.parked_at is not None else ""
    anew = ""
    if standing.parked_at is not None:  # 3
        if standing.parked_digest == definition(model):
            return standing, ""
        standing, anew = _cleared(standing), "it is defined anew since it was parked, and tried again"
    counting = [item for item in mine if item.digest in digests and board.state(item) is not ReplicaState.LOST]
    failures = sum(item.failures for item in counting)
    standing = replace(standing, failures=failures) if failures != standing.failures else standing
    failing = [item for item in counting if item.failures]
    if failures < PARK_AFTER or not all(item.failures or item.held_up for item in counting):
        return standing, anew
    last = max(failing, key=lambda item: (item.state_since, item.id))  # 4
    standing = replace(
        standing,
        parked_at=now,
        parked_digest=definition(model),
        parked_code=last.code or "engine_failed",
        parked_message=_told(board, last),
    )
    return standing, f"parked after {failures} failed starts in a row: {standing.parked_message}"


def definition(model: ModelView) -> str:
    """Names all ways in which a model can be started now."""
    return hashlib.sha256("\n".join(sorted(item.digest for item in model.profiles)).encode()).hexdigest()


def _cleared(standing: Standing) -> Standing:
    if standing.failures == 0 and standing.parked_at is None:
        return standing
    return unparked(standing)


def unparked(standing: Standing) -> Standing:
    """The standing of a model against which no failed start is held."""
    return replace(standing, failures=0, parked_at=None, parked_digest="", parked_code="", parked_message="")


def _told(board: Board, replica: ReplicaView) -> str:
    node = board.node(replica.node_id)
    where = f"on node {node.name}: " if node else ""
    return where + (replica.message or replica.code or "it ended before it was ready").rstrip(".")
