"""cluster.domain.rollout: which step is next, by the numbers in its docstring."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.rollout import KINDS, Close, JobView, Nothing, Run, StepView, next_step
from cluster.domain.states import JOB_TERMINAL, JobState, StepState

T = 1_000_000.0


def a_job(*states: StepState, **fields: Any) -> JobView:
    """A serve job whose first steps are in these states, the rest waiting."""
    specs = KINDS["serve"]
    filled = [*states, *[StepState.WAITING] * (len(specs) - len(states))]
    steps = tuple(
        StepView(number=n, name=spec.name, title=spec.title, state=state, started_at=T if state != "waiting" else None)
        for n, (spec, state) in enumerate(zip(specs, filled, strict=True), start=1)
    )
    return JobView(**{"id": "job_1", "kind": "serve", "state": JobState.RUNNING, "steps": steps, **fields})


@pytest.mark.parametrize("state", sorted(JOB_TERMINAL))
def test_case_1_a_job_that_ended_has_no_next_step(state: JobState) -> None:
    assert next_step(a_job(state=state, cancel_requested=True), T) == Nothing()


def test_case_2_a_job_that_shall_be_cancelled_is_closed_between_two_pieces() -> None:
    then = next_step(a_job(StepState.RUNNING, cancel_requested=True), T)
    assert isinstance(then, Close)
    assert then.state is JobState.CANCELLED


def test_case_3_a_kind_of_a_newer_version_fails_with_words() -> None:
    then = next_step(a_job(kind="teleport"), T)
    assert isinstance(then, Close)
    assert (then.state, then.code) == (JobState.FAILED, "job_kind_unknown")


def test_case_4_a_failed_step_fails_the_job() -> None:
    job = a_job(StepState.DONE, StepState.FAILED)
    assert next_step(job, T) == Close(JobState.FAILED, "step_failed", "Check the SHA-256: no reason given")
    told = replace(job.steps[1], detail="it differs", data={"code": "weights_changed"})
    job = replace(job, steps=(job.steps[0], told, *job.steps[2:]))
    assert next_step(job, T) == Close(JobState.FAILED, "weights_changed", "Check the SHA-256: it differs")


def test_case_5_the_first_step_that_is_not_done_is_run() -> None:
    then = next_step(a_job(StepState.DONE, StepState.SKIPPED), T)
    assert isinstance(then, Run)
    assert (then.step.name, then.first) == ("read", True)
    then = next_step(a_job(StepState.DONE, StepState.RUNNING), T)
    assert isinstance(then, Run)
    assert (then.step.name, then.first) == ("verify", False)


def test_case_5_a_step_past_its_deadline_fails_the_job_and_not_a_second_before() -> None:
    job = a_job(StepState.RUNNING)
    assert isinstance(next_step(job, T + 60), Run)
    then = next_step(job, T + 61)
    assert isinstance(then, Close)
    assert then.code == "step_deadline"


def test_case_6_with_no_step_left_it_is_done() -> None:
    assert next_step(a_job(*[StepState.DONE] * len(KINDS["serve"])), T) == Close(JobState.DONE)


@given(st.lists(st.sampled_from(StepState), max_size=6), st.floats(0, 10_000))
def test_a_job_always_has_exactly_one_thing_to_do(states: list[StepState], later: float) -> None:
    then = next_step(a_job(*states), T + later)
    if isinstance(then, Run):
        assert all(s.state in (StepState.DONE, StepState.SKIPPED) for s in a_job(*states).steps[: then.step.number - 1])
    else:
        assert isinstance(then, Close)
