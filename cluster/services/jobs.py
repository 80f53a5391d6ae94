"""The queue of record: open, claim, note how far it came, close, cancel, retry. Conditional updates only.

A job is held by one worker at a time, by a lease (`claimed_until`). The lease is renewed with every note; a worker that
was killed lets it run out, and the sweep hands the job to another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from catalog.services import events
from cluster import selectors, signals
from cluster.domain.rollout import BEGUN, KINDS, JobView, StepView, steps_of
from cluster.domain.states import JOB_TERMINAL, JobState, StepState
from cluster.models import Job, JobStep
from cluster.selectors import from_unix, unix
from cluster.services.locks import plan_lock
from llmgw_site.lib.errors import Kind, Refused

LEASE = 15.0
"""Seconds that a claim holds without a sign of life."""
EXCLUSIVE = frozenset({"update", "rollback", "adapter_update", "adapter_rollback"})
"""Kinds that change what a model or an adapter of it serves: one of them at a time."""
_OPEN = (JobState.QUEUED.value, JobState.RUNNING.value)


def open(*, kind: str, subject: str, args: dict[str, Any], actor: str) -> Job:
    """Write a job down and wake a worker after the commit. Raises Refused where one of its kind is open for it, or one that
    excludes it."""
    if kind not in KINDS:
        known = ", ".join(sorted(KINDS))
        text = f"there is no job of kind {kind!r}: choose one of {known}"
        raise Refused(Kind.INVALID, "job_kind_unknown", text, param="kind")
    try:
        with _alone(kind, subject):
            job = Job.objects.create(kind=kind, subject=subject, args=args, actor=actor)
            JobStep.objects.bulk_create(
                JobStep(job=job, number=number, name=spec.name, title=spec.title)
                for number, spec in enumerate(steps_of(kind, args), start=1)
            )
            _event(actor, "job_opened", job, f"job {kind} for {subject} was opened")
            _tell(job.id, opened=True)
    except IntegrityError:
        other = Job.objects.filter(kind=kind, subject=subject, state__in=_OPEN).first()
        raise Refused(
            Kind.CONFLICT,
            "job_already_open",
            f"a job {kind} for {subject} is open already: look at it, or cancel it first",
            extra={"job_id": other.id if other else ""},
        ) from None
    return job


def claim(*, job_id: str, worker: str) -> JobView | None:
    """Take a job that is open and free, for LEASE seconds. None: it is neither, and somebody else will see to it."""
    free = Q(claimed_until__isnull=True) | Q(claimed_until__lt=Now())
    taken = Job.objects.filter(free, id=job_id, state__in=_OPEN).update(
        state=JobState.RUNNING.value, claimed_by=worker, claimed_until=_lease()
    )
    if not taken:
        return None
    Job.objects.filter(id=job_id, started_at__isnull=True).update(started_at=Now())
    return view(job_id)


def view(job_id: str) -> JobView:
    """A job as the step machine sees it."""
    job = Job.objects.get(id=job_id)
    steps = tuple(
        StepView(
            number=row.number,
            name=row.name,
            title=row.title,
            state=StepState(row.state),
            started_at=unix(row.started_at) if row.started_at else None,
            detail=row.detail,
            data=row.data,
        )
        for row in JobStep.objects.filter(job_id=job_id).order_by("number")
    )
    return JobView(
        id=job.id,
        kind=job.kind,
        state=JobState(job.state),
        args=job.args,
        actor=job.actor,
        cancel_requested=job.cancel_requested,
        steps=steps,
    )


def note(
    *,
    job_id: str,
    worker: str,
    number: int,
    state: StepState = StepState.RUNNING,
    progress: float | None = None,
    detail: str | None = None,
    data: dict[str, Any] | None = None,
) -> bool:
    """How far a step came; renews the lease. False: the job is not this worker's any more, and nothing was written."""
    with transaction.atomic():
        if not _mine(job_id, worker).update(claimed_until=_lease()):
            return False
        fields: dict[str, Any] = {"state": state.value}
        if progress is not None:
            fields["progress"] = min(1.0, max(0.0, progress))
        if detail is not None:
            fields["detail"] = detail
        if data is not None:
            fields["data"] = data
        if state is StepState.DONE:
            fields["progress"] = 1.0
        if state in (StepState.DONE, StepState.FAILED, StepState.SKIPPED):
            fields["finished_at"] = Now()
        step = JobStep.objects.filter(job_id=job_id, number=number)
        step.filter(started_at__isnull=True).update(started_at=Now())
        step.update(**fields)
        _tell(job_id)
    return True


def renew(*, job_id: str, worker: str) -> bool:
    """Another LEASE seconds. False: the job is not this worker's any more."""
    return bool(_mine(job_id, worker).update(claimed_until=_lease()))


def put_down(*, job_id: str, worker: str, again_in: float) -> None:
    """Let go of a job that shall be looked at again in so many seconds."""
    _mine(job_id, worker).update(
        claimed_by="", claimed_until=None, wake_at=from_unix(selectors.database_now() + again_in)
    )


def close(
    *,
    job_id: str,
    worker: str,
    state: JobState,
    code: str = "",
    message: str = "",
    result: dict[str, Any] | None = None,
) -> bool:
    """End a job that this worker holds. False: it is not this worker's."""
    with transaction.atomic():
        ended = _mine(job_id, worker).update(
            state=state.value,
            finished_at=Now(),
            claimed_by="",
            claimed_until=None,
            wake_at=None,
            code=code,
            message=message,
            result=result or {},
        )
        if not ended:
            return False
        job = Job.objects.get(id=job_id)
        if state is not JobState.DONE:
            left = StepState.SKIPPED if state is JobState.WAITING else StepState.FAILED
            JobStep.objects.filter(job_id=job_id, state=StepState.RUNNING.value).update(
                state=left.value, finished_at=Now()
            )
        # a job may be done before its last step: what follows was not needed
        JobStep.objects.filter(job_id=job_id, state=StepState.WAITING.value).update(state=StepState.SKIPPED.value)
        _event("worker", f"job_{state.value}", job, f"job {job.kind} for {job.subject}: {state.value}", why=message)
        _tell(job_id)
    return True


def cancel(*, job_id: str, actor: str) -> Job:
    """Ask for the end of a job. One that nobody holds ends at once, another between two pieces of work."""
    with transaction.atomic():
        job = _get(job_id)
        if not Job.objects.filter(id=job_id, state__in=_OPEN).update(cancel_requested=True, wake_at=None):
            raise _ended(job)
        _event(actor, "job_cancel_requested", job, f"job {job.kind} for {job.subject} shall end")
        _tell(job_id, opened=True)
    return _get(job_id)


def retry(*, job_id: str, actor: str) -> Job:
    """Have a failed job go on at the step that failed; what the steps before it did stays done, and what it began its own."""
    job = _get(job_id)
    with _alone(job.kind, job.subject):
        try:
            with transaction.atomic():
                again = Job.objects.filter(id=job_id, state=JobState.FAILED.value).update(
                    state=JobState.QUEUED.value,
                    attempt=F("attempt") + 1,
                    finished_at=None,
                    wake_at=None,
                    cancel_requested=False,
                    code="",
                    message="",
                )
        except IntegrityError:
            text = f"another job {job.kind} for {job.subject} is open: wait for it, or cancel it first"
            raise Refused(Kind.CONFLICT, "job_already_open", text) from None
        if not again:
            text = f"only a failed job can be tried again, and this one is {job.state}"
            raise Refused(Kind.CONFLICT, "job_not_failed", text)
        for step in JobStep.objects.filter(job_id=job_id).exclude(state=StepState.DONE.value):
            step.state, step.progress, step.detail = StepState.WAITING.value, 0.0, ""
            step.data = {key: value for key, value in step.data.items() if key in BEGUN}
            step.started_at = step.finished_at = None
            step.save()
        _event(actor, "job_retried", job, f"job {job.kind} for {job.subject} is tried again")
        _tell(job_id, opened=True)
    return _get(job_id)


def orphans(*, limit: int = 100) -> list[str]:
    """Open jobs that somebody should look at now: nobody holds them and their time has come."""
    free = Q(claimed_until__isnull=True) | Q(claimed_until__lt=Now())
    due = Q(wake_at__isnull=True) | Q(wake_at__lte=Now())
    found = Job.objects.filter(free, due, state__in=_OPEN).order_by("created_at")
    return list(found.values_list("id", flat=True)[:limit])


def prune(*, before: datetime, limit: int) -> int:
    """Forget jobs that ended before this time, with their steps, at most `limit`. Returns how many."""
    ended = Job.objects.filter(state__in=sorted(JOB_TERMINAL), finished_at__lt=before)
    chosen = list(ended.order_by("finished_at").values_list("pk", flat=True)[:limit])
    # asked again: somebody may have had one tried again meanwhile
    return ended.filter(pk__in=chosen).delete()[1].get(Job._meta.label, 0)


def others_with(*, version_id: str, job_id: str) -> bool:
    """Whether another open job goes on with this version of weights."""
    steps = JobStep.objects.filter(job__state__in=_OPEN, data__version_id=version_id)
    return steps.exclude(job_id=job_id).exists()


@contextmanager
def _alone(kind: str, subject: str) -> Iterator[None]:
    """One transaction in which no job is opened that excludes this one. Raises Refused where one is open."""
    if kind not in EXCLUSIVE:
        with transaction.atomic():
            yield
        return
    with plan_lock():
        other = Job.objects.filter(kind__in=EXCLUSIVE - {kind}, subject=subject, state__in=_OPEN).first()
        if other is not None:
            text = f"a job {other.kind} for {subject} is open already: look at it, or cancel it first"
            raise Refused(Kind.CONFLICT, "job_already_open", text, extra={"job_id": other.pk})
        yield


def _mine(job_id: str, worker: str) -> Any:
    return Job.objects.filter(id=job_id, claimed_by=worker, state=JobState.RUNNING.value)


def _lease() -> Any:
    return from_unix(selectors.database_now() + LEASE)


def _get(job_id: str) -> Job:
    job = Job.objects.filter(id=job_id).first()
    if job is None:
        raise Refused(Kind.NOT_FOUND, "job_unknown", f"there is no job {job_id}")
    return job


def _ended(job: Job) -> Refused:
    return Refused(Kind.CONFLICT, "job_ended", f"the job has ended already: it is {job.state}")


def _event(actor: str, kind: str, job: Job, message: str, *, why: str = "") -> None:
    events.append(actor=actor, kind=kind, subject_kind="job", subject_id=job.id, message=message, why=why)


def _tell(job_id: str, *, opened: bool = False) -> None:
    def send() -> None:
        if opened:
            signals.job_opened.send_robust(sender=Job, job_id=job_id)
        signals.job_changed.send_robust(sender=Job, job_id=job_id)

    transaction.on_commit(send)
