"""The domain's states as choices of table columns."""

from __future__ import annotations

from enum import StrEnum

from cluster.domain.states import JobState, NodeState, ReplicaState, StepState


def of(states: type[StrEnum]) -> list[tuple[str, str]]:
    """An enum as Django choices: value and label."""
    return [(item.value, item.value.replace("_", " ")) for item in states]


NODE_STATES = of(NodeState)
REPLICA_STATES = of(ReplicaState)
JOB_STATES = of(JobState)
STEP_STATES = of(StepState)
