"""Jobs as step machines: which step is next. What a step does is the workers' (`workers/tasks/`).

A job is a chain of short looks: take it up, see which step is next, do a piece of it, write down how far it came, put
it down. So a worker that dies loses at most the piece it was at, and the step must bear being begun again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.domain.states import JobState, StepState


@dataclass(frozen=True, kw_only=True)
class StepSpec:
    """A step of a kind of job. `deadline`: seconds from its start after which it has failed."""

    name: str
    title: str
    deadline: float


KINDS: Mapping[str, tuple[StepSpec, ...]] = {
    "serve": (
        StepSpec(name="find", title="Find the weights", deadline=60),
        StepSpec(name="verify", title="Check the SHA-256", deadline=4 * 3600),
        StepSpec(name="read", title="Read the shape of the model", deadline=60),
        StepSpec(name="add", title="Add it to the catalogue", deadline=60),
        StepSpec(name="wait", title="Wait for the replica", deadline=1800),
        StepSpec(name="smoke", title="Ask it something", deadline=300),
    ),
    "update": (
        StepSpec(name="registry", title="Ask whether its files changed", deadline=2 * 3600),
        StepSpec(name="plan", title="Look at the new files", deadline=2 * 3600),
        StepSpec(name="mirror", title="Fetch them beside the old ones", deadline=14 * 24 * 3600),
        StepSpec(name="check", title="Check the engines", deadline=600),
        StepSpec(name="replace", title="Replace the replicas, one after the other", deadline=2 * 24 * 3600),
    ),
    "rollback": (
        StepSpec(name="back", title="Look for the earlier version", deadline=60),
        StepSpec(name="replace", title="Replace the replicas, one after the other", deadline=2 * 24 * 3600),
    ),
    "adapter_update": (
        StepSpec(name="registry", title="Ask whether its file changed", deadline=2 * 3600),
        StepSpec(name="plan", title="Look at the new file", deadline=2 * 3600),
        StepSpec(name="mirror", title="Fetch it beside the old one", deadline=14 * 24 * 3600),
        StepSpec(name="replace", title="Replace the replicas, one after the other", deadline=2 * 24 * 3600),
    ),
    "adapter_rollback": (
        StepSpec(name="back", title="Look for the earlier version", deadline=60),
        StepSpec(name="replace", title="Replace the replicas, one after the other", deadline=2 * 24 * 3600),
    ),
    "bench": (
        StepSpec(name="choose", title="Choose replicas", deadline=60),
        StepSpec(name="measure", title="Load them more and more", deadline=2 * 3600),
        StepSpec(name="keep", title="Keep what was found", deadline=60),
    ),
}
"""The steps of each kind of job, in order."""

BEGUN = frozenset({"begun", "version_id", "ours"})
"""What a step notes of what it itself began. It stays when the job is tried again: a cancelled job takes back what it alone
began, whichever of its tries did."""

FETCHED: tuple[StepSpec, ...] = (
    StepSpec(name="registry", title="Look at the source", deadline=2 * 3600),  # a registry may ask to wait an hour
    StepSpec(name="plan", title="Plan how it runs", deadline=2 * 3600),
    StepSpec(name="mirror", title="Fetch the weights", deadline=14 * 24 * 3600),
    StepSpec(name="check", title="Check engine and memory", deadline=600),
    StepSpec(name="catalogue", title="Add it to the catalogue", deadline=60),
    StepSpec(name="wait", title="Wait for the replica", deadline=24 * 3600),  # its node may fetch for hours
    StepSpec(name="smoke", title="Ask it something", deadline=300),
)
"""The steps of a serve job whose weights are fetched: from a registry, or from plain addresses."""


def steps_of(kind: str, args: Mapping[str, Any]) -> tuple[StepSpec, ...]:
    """The steps of such a job, () of a kind that is not known."""
    return FETCHED if kind == "serve" and args.get("source") else KINDS.get(kind, ())


@dataclass(frozen=True, kw_only=True)
class StepView:
    number: int
    name: str
    title: str
    state: StepState
    started_at: float | None = None
    detail: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobView:
    id: str
    kind: str
    state: JobState
    args: Mapping[str, Any] = field(default_factory=dict)
    actor: str = ""
    cancel_requested: bool = False
    steps: tuple[StepView, ...] = ()

    def found(self, step: str) -> Mapping[str, Any]:
        """What an earlier step left for the later ones; empty if it was not reached."""
        return next((item.data for item in self.steps if item.name == step), {})


@dataclass(frozen=True)
class Run:
    """Do a piece of this step; `first`: it has not been begun before."""

    step: StepView
    first: bool


@dataclass(frozen=True)
class Close:
    """The job has come to its end."""

    state: JobState
    code: str = ""
    message: str = ""


@dataclass(frozen=True)
class Nothing:
    """The job has ended already."""


Next = Run | Close | Nothing


def next_step(job: JobView, now: float) -> Next:
    """What to do for this job now.

    1. it has ended: nothing
    2. somebody asked to cancel it: close it as cancelled, between two pieces
    3. its kind is not known to this version: close it as failed
    4. a step has failed: close it as failed, with the step's code and words
    5. the first step that is not done: run it; or, past its deadline, close the job as failed
    6. no step is left: done
    """
    if job.state not in (JobState.QUEUED, JobState.RUNNING):  # 1
        return Nothing()
    if job.cancel_requested:  # 2
        return Close(JobState.CANCELLED, "job_cancelled", "cancelled on request")
    specs = {item.name: item for item in steps_of(job.kind, job.args)}
    if not specs:  # 3
        return Close(JobState.FAILED, "job_kind_unknown", f"this version knows no job of kind {job.kind!r}")
    for step in job.steps:
        if step.state is StepState.FAILED:  # 4
            code, words = str(step.data.get("code") or "step_failed"), step.detail or "no reason given"
            return Close(JobState.FAILED, code, f"{step.title}: {words}")
        if step.state in (StepState.WAITING, StepState.RUNNING):  # 5
            deadline = specs[step.name].deadline if step.name in specs else 0.0
            if step.started_at is not None and now - step.started_at > deadline:
                text = f"the step {step.title!r} was not done within {deadline:.0f} s"
                return Close(JobState.FAILED, "step_deadline", text)
            return Run(step, first=step.state is StepState.WAITING)
    return Close(JobState.DONE)  # 6
