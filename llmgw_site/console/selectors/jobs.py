"""Jobs with their steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cluster.domain.states import JobState, StepState
from cluster.models import Job, JobStep
from llmgw_site.console.views import JobView, StepView
from llmgw_site.lib.units import format_seconds

OPEN = (JobState.QUEUED.value, JobState.RUNNING.value)
RUNNING_SHOWN = 6
"""Open jobs on the overview."""


def open_jobs(limit: int = RUNNING_SHOWN) -> tuple[JobView, ...]:
    """Jobs that have not ended, newest first: two queries."""
    return jobs_of(Job.objects.filter(state__in=OPEN).order_by("-created_at", "-id")[:limit])


def count_open_jobs() -> int:
    return Job.objects.filter(state__in=OPEN).count()


def jobs_of(rows: Iterable[Job]) -> tuple[JobView, ...]:
    """These jobs with their steps: one query more."""
    found = list(rows)
    steps: dict[str, list[JobStep]] = {}
    for step in JobStep.objects.filter(job_id__in=[job.id for job in found]).order_by("job_id", "number"):
        steps.setdefault(step.job_id, []).append(step)
    return tuple(_job(job, steps.get(job.id, [])) for job in found)


def jobs(*, state: str = "", offset: int = 0, limit: int = 25) -> tuple[tuple[JobView, ...], int]:
    """A page of all jobs, newest first, and how many there are: three queries. `state`: open, done, failed, waiting,
    cancelled."""
    rows = Job.objects.all()
    if state:
        rows = rows.filter(state__in=OPEN if state == "open" else (state,))
    return jobs_of(rows.order_by("-created_at", "-id")[offset : offset + limit]), rows.count()


def job(job_id: str) -> JobView | None:
    """One job with its steps."""
    found = jobs_of(Job.objects.filter(id=job_id))
    return found[0] if found else None


def title(row: Job) -> str:
    """What a job does, and with what."""
    verb = "roll back" if row.kind.endswith("rollback") else row.kind.removeprefix("adapter_")
    adapter = row.args.get("adapter") if row.kind.startswith("adapter_") else ""
    about = f"adapter {adapter} of {row.subject}" if adapter else row.subject
    return f"{verb.capitalize()} {about}"


def _job(row: Job, steps: Iterable[JobStep]) -> JobView:
    return JobView(
        id=row.id,
        title=title(row),
        subject=row.subject,
        actor=row.actor,
        state=JobState(row.state),
        attempt=row.attempt,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        cancel_requested=row.cancel_requested,
        code=row.code,
        message=row.message,
        result=tuple(_results(row.result)),
        steps=tuple(
            StepView(
                id=step.id,
                number=step.number,
                title=step.title,
                state=StepState(step.state),
                progress=step.progress,
                detail=step.detail,
                started_at=step.started_at,
                finished_at=step.finished_at,
                log_tail=str(step.data.get("log_tail", "")),
                said_above=step.state == StepState.FAILED and bool(step.detail) and row.message.endswith(step.detail),
            )
            for step in steps
        ),
    )


def _results(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a job came to, as label and text: `first_token_s` becomes "First token", "74 ms". Ids are left out."""
    for key, value in result.items():
        if key in ("model", "model_id") or value is None or not isinstance(value, str | int | float):
            continue
        label = key.removesuffix("_s").replace("_", " ").capitalize()
        if isinstance(value, str):
            yield label, value
        elif key.endswith("_s"):
            yield label, format_seconds(value)
        else:
            yield label, f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
