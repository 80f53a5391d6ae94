"""cluster.domain.states: the lifecycles are closed, and their groups fit."""

from __future__ import annotations

import re
from pathlib import Path

from cluster.domain.states import (
    JOB_NEXT,
    JOB_TERMINAL,
    REPLICA_LIVE,
    REPLICA_REPORTED,
    REPLICA_STEPS,
    REPLICA_TERMINAL,
    JobState,
    ReplicaState,
)

DOCS = Path(__file__).parents[3] / "docs" / "scaling.md"


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


def test_the_steps_of_a_replica_are_drawn_as_they_are_in_the_table() -> None:
    text = DOCS.read_text()
    drawn = re.findall(r"^    (\w+) --> (\w+): (.+)$", text, re.MULTILINE)
    assert drawn == [(before.value, after.value, words) for (before, after), words in REPLICA_STEPS.items()]
    for state in ReplicaState:
        assert f"| `{state.value}` | " in text


def test_from_every_state_a_replica_can_come_to_an_end_and_from_all_but_the_last_to_readiness() -> None:
    def reach(start: ReplicaState) -> set[ReplicaState]:
        found, todo = {start}, [start]
        while todo:
            state = todo.pop()
            todo += [after for before, after in REPLICA_STEPS if before is state and after not in found]
            found |= {*todo}
        return found

    for state in REPLICA_REPORTED | {ReplicaState.PENDING}:
        assert {ReplicaState.STOPPED, ReplicaState.READY} <= reach(state)
    assert all(before is not after for before, after in REPLICA_STEPS)


def test_a_node_reports_neither_that_it_is_offline_nor_that_it_has_not_begun() -> None:
    assert set(ReplicaState) - REPLICA_REPORTED == {ReplicaState.PENDING, ReplicaState.LOST}
