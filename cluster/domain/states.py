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
    STARTING = "starting"  # the engine runs, no token yet
    READY = "ready"  # one real token came out
    DRAINING = "draining"  # finishes its requests, takes no new ones
    BACKOFF = "backoff"  # failed to start or died; the node tries again after a pause
    FAILED = "failed"  # will not be tried again without a change
    STOPPED = "stopped"  # no process left
    LOST = "lost"  # its node is offline


REPLICA_LIVE = frozenset(
    {ReplicaState.PENDING, ReplicaState.STARTING, ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.BACKOFF}
)
"""States in which a replica holds its room on the node."""
REPLICA_TERMINAL = frozenset({ReplicaState.STOPPED})


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


JOB_TERMINAL = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})
JOB_NEXT: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED, JobState.FAILED}),
    JobState.RUNNING: frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED}),
    JobState.DONE: frozenset(),
    JobState.FAILED: frozenset({JobState.QUEUED}),  # retried by hand
    JobState.CANCELLED: frozenset(),
}


class StepState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
