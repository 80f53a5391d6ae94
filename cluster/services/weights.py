"""Versions of weights that go: on request, or because the job that began them has failed and nobody wants them any more."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from catalog.models import Version
from catalog.services import versions
from cluster.domain.states import JobState, StepState
from cluster.models import JobStep
from cluster.selectors.kept import jobs_with, kept
from llmgw_site.lib.errors import Kind, Refused


def remove(*, actor: str, version: Version) -> None:
    """Forget a version. Raises Refused `still_in_use` while a model, an adapter, or a job that is under way needs it."""
    jobs = sorted(jobs_with().get(version.pk, ()))
    if jobs:
        text = f"weights {version.name} are needed by job {', '.join(jobs[:5])}, which is under way: cancel it first (`llmgw jobs {jobs[0]} --cancel`)"
        raise Refused(Kind.CONFLICT, "still_in_use", text)
    versions.remove(actor=actor, version=version)


def give_up(*, before: datetime) -> tuple[str, ...]:
    """Forget the versions that jobs began which failed before this time and were not tried again: of those that no node has whole and
    nothing needs, so that no node goes on trying to fetch them. Their names."""
    steps = JobStep.objects.filter(
        name="mirror", job__state=JobState.FAILED, job__finished_at__lt=before, data__ours=True
    )
    gone = []
    for version_id in {
        data.get("version_id") for data in steps.exclude(state=StepState.DONE).values_list("data", flat=True)
    }:
        row = Version.objects.filter(id=version_id).first()
        if row is None or any(item.holders or item.users for item in kept(row.pk)):
            continue
        with suppress(Refused):  # somebody needs it by now
            versions.remove(actor="worker", version=row)
            gone.append(row.name)
    return tuple(gone)
