"""The lifecycles, each a table of allowed transitions with named groups. Rows change state only by conditional update.

A node's state is computed from its last heartbeat (`health.py`), a replica's and a job's is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class NodeState(StrEnum):
    ONLINE = "online"
    STALE = "stale"  # 90 s without a heartbeat
    OFFLINE = "offline"  # 5 min: its replicas count as lost


class ReplicaState(StrEnum):
    """As observed on the node; `pending` until the node first reports it."""

    PENDING = "pending"  # placed; the node has not said anything about it yet
    FETCHING = "fetching"  # its node has the order, and not yet the weights
    STARTING = "starting"  # the engine runs, no token yet
    READY = "ready"  # one real token came out
    DRAINING = "draining"  # finishes its requests, takes no new ones
    BACKOFF = "backoff"  # failed to start or died; the node tries again after a pause
    FAILED = "failed"  # will not be tried again without a change
    STOPPED = "stopped"  # no process left
    LOST = "lost"  # its node is offline


REPLICA_LIVE = frozenset(
    {
        ReplicaState.PENDING,
        ReplicaState.FETCHING,
        ReplicaState.STARTING,
        ReplicaState.READY,
        ReplicaState.DRAINING,
        ReplicaState.BACKOFF,
    }
)
"""States in which a replica holds its room on the node."""
REPLICA_LOADING = frozenset({ReplicaState.PENDING, ReplicaState.FETCHING, ReplicaState.STARTING, ReplicaState.BACKOFF})
"""States in which it holds room that its engine does not use yet, or not all of it."""
REPLICA_TERMINAL = frozenset({ReplicaState.STOPPED})


_S = ReplicaState
REPLICA_STEPS: Mapping[tuple[ReplicaState, ReplicaState], str] = {
    (_S.PENDING, _S.FETCHING): "its weights are to come",
    (_S.PENDING, _S.STARTING): "its node begins",
    (_S.PENDING, _S.BACKOFF): "nothing could be started",
    (_S.PENDING, _S.FAILED): "refused for good",
    (_S.PENDING, _S.STOPPED): "not wanted any more",
    (_S.FETCHING, _S.STARTING): "its weights are whole",
    (_S.FETCHING, _S.BACKOFF): "nothing could be started",
    (_S.FETCHING, _S.FAILED): "refused for good",
    (_S.FETCHING, _S.STOPPED): "not wanted any more",
    (_S.STARTING, _S.READY): "a real token",
    (_S.STARTING, _S.BACKOFF): "failed, or not ready in time",
    (_S.STARTING, _S.FETCHING): "failed, and its weights have gone",
    (_S.STARTING, _S.FAILED): "refused for good",
    (_S.STARTING, _S.DRAINING): "not wanted any more",
    (_S.STARTING, _S.STOPPED): "not wanted any more",
    (_S.READY, _S.DRAINING): "not wanted any more, or to start anew",
    (_S.READY, _S.STARTING): "its engine died",
    (_S.READY, _S.FETCHING): "its engine died, and its weights have gone",
    (_S.READY, _S.BACKOFF): "its engine died again and again",
    (_S.READY, _S.STOPPED): "its engine died when it was not wanted any more",
    (_S.DRAINING, _S.STOPPED): "its requests have ended, or their time is over",
    (_S.DRAINING, _S.READY): "wanted again",
    (_S.DRAINING, _S.STARTING): "wanted again, and its engine was ending",
    (_S.DRAINING, _S.FETCHING): "to start anew, and its weights are to come",
    (_S.BACKOFF, _S.STARTING): "its pause is over",
    (_S.BACKOFF, _S.FETCHING): "its weights have gone",
    (_S.BACKOFF, _S.STOPPED): "not wanted any more",
    (_S.FAILED, _S.FETCHING): "its agent is new",
    (_S.FAILED, _S.STARTING): "its agent is new",
    (_S.FAILED, _S.STOPPED): "not wanted any more",
    (_S.STOPPED, _S.FETCHING): "the inference module is back",
    (_S.STOPPED, _S.STARTING): "the inference module is back",
}
"""Each step that a node may report of one generation of a replica, and what brings it about: docs/scaling.md draws them.

Beside these, controllers set a row to PENDING: when it is to start anew as the next generation, and when a node that holds
it reports nothing of it. A node that was not heard for a while may have taken several steps at once. LOST is no row's: it is
what a replica counts as while its node is offline (`types.state_of`).
"""
REPLICA_REPORTED = frozenset(after for _, after in REPLICA_STEPS)
"""States that nodes report; of the others they are not asked."""


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    WAITING = "waiting"  # its work is done; what it began goes on by itself once others make room


JOB_TERMINAL = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED, JobState.WAITING})
JOB_NEXT: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED, JobState.FAILED}),
    JobState.RUNNING: frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED, JobState.WAITING}),
    JobState.DONE: frozenset(),
    JobState.FAILED: frozenset({JobState.QUEUED}),  # retried by hand
    JobState.CANCELLED: frozenset(),
    JobState.WAITING: frozenset(),
}


class StepState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
