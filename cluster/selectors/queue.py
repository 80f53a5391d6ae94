"""The queue of record, as pages and commands read it."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, QuerySet

from cluster.domain.states import JOB_TERMINAL
from cluster.models import Job


def jobs() -> QuerySet[Job]:
    return Job.objects.prefetch_related("steps")


def open_jobs() -> dict[str, int]:
    """How many jobs are queued and running."""
    found = Job.objects.exclude(state__in=sorted(JOB_TERMINAL)).order_by().values_list("state").annotate(Count("id"))
    return {"queued": 0, "running": 0, **dict(found)}


def latest_jobs(limit: int = 20) -> list[dict[str, Any]]:
    """The newest jobs with their steps, as pages show them; two queries."""
    return [job_as_dict(job) for job in jobs()[:limit]]


def job_dict(job_id: str) -> dict[str, Any] | None:
    job = jobs().filter(id=job_id).first()
    return job_as_dict(job) if job else None


def job_as_dict(job: Job) -> dict[str, Any]:
    """A job with its steps as plain values: what the websocket and the pages give away."""
    return {
        "id": job.id,
        "kind": job.kind,
        "subject": job.subject,
        "state": job.state,
        "attempt": job.attempt,
        "actor": job.actor,
        "created_at": job.created_at.isoformat(),
        "started_at": job.started_at.isoformat() if job.started_at else None,
        "finished_at": job.finished_at.isoformat() if job.finished_at else None,
        "code": job.code,
        "message": job.message,
        "result": job.result,
        "steps": [
            {
                "number": step.number,
                "name": step.name,
                "title": step.title,
                "state": step.state,
                "progress": step.progress,
                "detail": step.detail,
                "started_at": step.started_at.isoformat() if step.started_at else None,
                "finished_at": step.finished_at.isoformat() if step.finished_at else None,
            }
            for step in sorted(job.steps.all(), key=lambda step: step.number)
        ],
    }
