"""A request for a model that nobody serves: how the attempt to bring it up stands, and what the request is told.

It is at rest; or it always runs, and no replica of it is ready. For both, a request is one fresh attempt. An attempt is
named by its time (Unix seconds of the database's clock). It ends with a ready replica, with a start that failed, or with a
look of the reconciler, later than it, that found no place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cluster.domain.fetching import NO_ROOM
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, ReplicaView

AGAIN = 1.0
"""Seconds between two attempts for one model that had no place: whoever asks before hears what the last one found."""
USED_EVERY = 5.0
"""Seconds after which waiting requests count as a use of the model again."""
NOBODY_AFTER = 15.0
"""Seconds without a use after which nobody waits any more for a model that is still loading: a gateway says about each
second that somebody does."""


class Stage(StrEnum):
    """Where an attempt is; the first three go on."""

    READY = "ready"  # a replica answers
    STARTING = "starting"  # one is on its way
    WAITING = "waiting"  # it is being looked at, or room is being made
    NOWHERE = "nowhere"  # there is no place
    FAILED = "failed"  # it did not start
    PARKED = "parked"  # nothing is tried until somebody changes it
    UNWANTED = "unwanted"  # it cannot be asked for: disabled, a provider's, at most 0 replicas


@dataclass(frozen=True, kw_only=True)
class Verdict:
    stage: Stage
    code: str = ""  # why it came to nothing
    message: str = ""  # that; of one that is starting, how far it is

    @property
    def over(self) -> bool:
        """Whether the attempt came to nothing."""
        return self.stage not in (Stage.READY, Stage.STARTING, Stage.WAITING)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the last looks of the reconciler found of a model. Times are Unix seconds; None: never."""

    attempt_at: float | None = None
    why_at: float | None = None
    code: str = ""
    message: str = ""
    claimed: bool = False  # room is being made for it
    parked: str = ""  # why nothing is tried, where it is parked


COMING = frozenset({ReplicaState.PENDING, ReplicaState.FETCHING, ReplicaState.STARTING, ReplicaState.DRAINING})
DIED = "engine_died"
"""What the agent says of an engine that ended while it served: it is started again at once."""


def verdict(
    model: ModelView, replicas: Iterable[tuple[ReplicaView, ReplicaState]], found: Found, *, attempt: float
) -> Verdict:
    """How an attempt for a model stands. `replicas`: the model's, each with its state as its node makes it (`state_of`).

    1. it cannot be asked for                            UNWANTED
    2. a replica is ready                                READY
    3. it is parked                                      PARKED, with the cause
    4. one is on its way, died a moment ago, or waits
       for memory of its cards to come back              STARTING
    5. room is being made, its own last one leaves, or
       one that failed is about to start anew            WAITING
    6. one failed to start                               FAILED, with what its node says
    7. a look later than the attempt found no place, or
       none but where there is no room for the weights   NOWHERE, with what it found
    8. else                                              WAITING for that look
    """
    unwanted = _unwanted(model)
    if unwanted is not None:  # 1
        return unwanted
    there = [(item, state) for item, state in replicas if state is not ReplicaState.LOST]
    mine = [(item, state) for item, state in there if item.run]
    if any(state is ReplicaState.READY for _, state in mine):  # 2
        return Verdict(stage=Stage.READY)
    if model.standing.parked_at is not None:  # 3
        return Verdict(stage=Stage.PARKED, code="model_parked", message=found.parked)
    if any((state in COMING and not _stuck(item, state)) or _again_soon(item, state) for item, state in mine):  # 4
        return Verdict(stage=Stage.STARTING)
    leaving = any(not item.run and state is not ReplicaState.STOPPED for item, state in there)
    if found.claimed or leaving or any(model.restarts(item) for item, _ in mine):  # 5
        return Verdict(stage=Stage.WAITING)
    for item, state in mine:  # 6
        if state in (ReplicaState.BACKOFF, ReplicaState.FAILED):
            code = item.code or ("engine_failing" if state is ReplicaState.BACKOFF else "engine_failed")
            then = "its node tries again" if state is ReplicaState.BACKOFF else "it is not tried again without a change"
            text = f"its engine did not start, and {then}: {item.message}"
            return Verdict(stage=Stage.FAILED, code=code, message=text)
    if found.code and found.why_at is not None and found.why_at >= attempt:  # 7
        return Verdict(stage=Stage.NOWHERE, code=found.code, message=found.message)
    return Verdict(stage=Stage.WAITING)  # 8


def progress(replicas: Iterable[tuple[ReplicaView, ReplicaState]], now: float) -> str:
    """How far the replica is that is the nearest to being ready, for who waits; empty: none is on its way."""
    found = [(_FAR[state], -item.state_since, item, state) for item, state in replicas if item.run and state in _FAR]
    if not found:
        return ""
    _, _, item, state = max(found, key=lambda one: one[:2])
    if state is ReplicaState.STARTING:
        return f"a replica has been loading its weights for {max(0.0, now - item.state_since):.0f} s"
    if state is ReplicaState.FETCHING:  # with a code it is why it does not get on, which is for administrators
        return item.message.rstrip(".") if item.message and not item.code else "its node fetches the weights"
    return "its node is about to start a replica"


_FAR = {ReplicaState.PENDING: 0, ReplicaState.FETCHING: 1, ReplicaState.STARTING: 2}


def _stuck(replica: ReplicaView, state: ReplicaState) -> bool:
    """It waits for room on a disk, which does not come by itself."""
    return state is ReplicaState.FETCHING and replica.code in NO_ROOM


def _again_soon(replica: ReplicaView, state: ReplicaState) -> bool:
    return state is ReplicaState.BACKOFF and (replica.code == DIED or replica.settles)


def attempt_for(model: ModelView, found: Found, stage: Stage, now: float) -> float:
    """The attempt that a new request waits for: the one under way, else a fresh one, not more often than every AGAIN.

    1. none yet, or the model is at rest                         now
    2. the last one found no place, and was AGAIN or longer ago  now
    3. else                                                      the last one
    """
    last = found.attempt_at
    if last is None or at_rest(model):  # 1
        return now
    if stage is Stage.NOWHERE and now - last >= AGAIN:  # 2
        return now
    return last


def at_rest(model: ModelView) -> bool:
    """Whether it waits for the first request."""
    return model.on_demand and model.standing.asked_at is None


def nobody_waits(model: ModelView, now: float) -> bool:
    """Whether a model on demand that has no ready replica is loaded for nobody: all who waited for it have gone."""
    used = model.standing.used_at
    return model.on_demand and used is not None and now - used >= NOBODY_AFTER


def _unwanted(model: ModelView) -> Verdict | None:
    if not model.enabled:
        text = f"the model {model.name} is disabled: an administrator can enable it"
        return Verdict(stage=Stage.UNWANTED, code="model_disabled", message=text)
    if model.external or not model.limit:
        text = f"the model {model.name} is set to 0 replicas: an administrator can raise it"
        return Verdict(stage=Stage.UNWANTED, code="model_not_wanted", message=text)
    return None
