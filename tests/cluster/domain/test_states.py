"""cluster.domain.states: the lifecycles are closed, and their groups fit."""

from __future__ import annotations

from cluster.domain.states import JOB_NEXT, JOB_TERMINAL, REPLICA_LIVE, REPLICA_TERMINAL, JobState, ReplicaState


def test_every_state_of_a_job_has_its_row() -> None:
    assert set(JOB_NEXT) == set(JobState)


def test_a_job_that_ended_goes_nowhere_but_a_failed_one_back_to_the_start() -> None:
    for state in JOB_TERMINAL:
        assert JOB_NEXT[state] == ({JobState.QUEUED} if state is JobState.FAILED else frozenset())


def test_every_state_of_a_job_can_be_reached() -> None:
    reached, todo = set(), [JobState.QUEUED]
    while todo:
        state = todo.pop()
        if state not in reached:
            reached.add(state)
            todo += JOB_NEXT[state]
    assert reached == set(JobState)


def test_a_replica_is_not_live_and_gone_at_once() -> None:
    assert not REPLICA_LIVE & REPLICA_TERMINAL
    assert set(ReplicaState) - REPLICA_LIVE - REPLICA_TERMINAL == {ReplicaState.FAILED, ReplicaState.LOST}
