"""workers.jobs: the runner around every job, with steps made for the test."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from cluster.domain.rollout import Close, JobView
from cluster.domain.states import JobState, StepState
from cluster.models import Job, JobStep
from cluster.selectors import database_now, from_unix
from cluster.services import jobs as rows
from llmgw_site.lib.errors import Kind as RefusalKind
from llmgw_site.lib.errors import Refused
from tests.processes import wait_for
from workers import jobs
from workers.jobs import Context, Kind, Piece

pytestmark = pytest.mark.django_db
STEPS = ("find", "verify", "read", "add", "wait", "smoke")


def opened() -> Job:
    return rows.open(kind="serve", subject="m", args={"name": "m"}, actor="t")


def kinds(**steps: Callable[[Context], Piece]) -> dict[str, Kind]:
    """A serve job whose steps are done at once, but for those given."""
    every = {name: steps.get(name, lambda context: Piece(done=True, data={"by": context.worker})) for name in STEPS}
    return {"serve": Kind(steps=every, result=lambda job: {"steps": len(job.steps)}, cleanup=lambda job: None)}


def states(job: Job) -> list[str]:
    return list(JobStep.objects.filter(job=job).order_by("number").values_list("state", flat=True))


def test_a_job_whose_steps_need_no_waiting_is_done_in_one_go() -> None:
    job = opened()
    assert jobs.run(job.id, kinds()) is None
    job.refresh_from_db()
    assert (job.state, job.result, job.claimed_by) == ("done", {"steps": 6}, "")
    assert states(job) == ["done"] * 6
    assert job.started_at is not None
    assert job.finished_at is not None


def test_a_step_that_waits_puts_the_job_down_with_what_it_came_to() -> None:
    job = opened()
    waiting = Piece(progress=0.4, detail="half way", data={"seen": 1}, again_in=300.0)
    assert jobs.run(job.id, kinds(read=lambda context: waiting)) == 300.0
    step = JobStep.objects.get(job=job, name="read")
    assert (step.state, step.progress, step.detail, step.data) == ("running", 0.4, "half way", {"seen": 1})
    job.refresh_from_db()
    assert (job.state, job.claimed_by) == ("running", "")
    assert job.wake_at is not None
    assert job.wake_at > timezone.now()


def test_a_later_look_sees_what_the_earlier_one_left() -> None:
    job = opened()
    seen: list[Any] = []

    def read(context: Context) -> Piece:
        seen.append(dict(context.data))
        return Piece(done=len(seen) > 1, data={"count": len(seen)})

    jobs.run(job.id, kinds(read=read))
    jobs.run(job.id, kinds(read=read))
    assert seen == [{}, {"count": 1}]
    assert Job.objects.get().state == "done"


def test_a_refusal_fails_the_job_with_its_words_on_the_step() -> None:
    job = opened()

    def read(context: Context) -> Piece:
        raise Refused(RefusalKind.INVALID, "weights_missing", "there is no file")

    jobs.run(job.id, kinds(read=read))
    assert states(job) == ["done", "done", "failed", "skipped", "skipped", "skipped"]
    step = JobStep.objects.get(job=job, name="read")
    assert (step.detail, step.data) == ("there is no file", {"code": "weights_missing"})
    job.refresh_from_db()
    assert (job.state, job.code) == ("failed", "weights_missing")
    assert job.message == "Read the shape of the model: there is no file"


def test_a_defect_in_a_step_fails_the_job_and_shows_nothing_of_the_inside() -> None:
    job = opened()

    def read(context: Context) -> Piece:
        raise ZeroDivisionError("secret detail")

    jobs.run(job.id, kinds(read=read))
    step = JobStep.objects.get(job=job, name="read")
    assert step.data == {"code": "internal_error"}
    assert "secret" not in step.detail
    assert Job.objects.get().state == "failed"


def test_a_job_that_shall_be_cancelled_ends_between_two_pieces_and_is_cleaned_up() -> None:
    job = opened()
    cleaned: list[JobView] = []

    def verify(context: Context) -> Piece:
        rows.cancel(job_id=context.job.id, actor="user:x")
        return Piece(done=True)

    work = kinds(verify=verify)
    work["serve"] = Kind(steps=work["serve"].steps, result=work["serve"].result, cleanup=cleaned.append)
    jobs.run(job.id, work)
    assert Job.objects.get().state == "cancelled"
    assert states(job) == ["done", "done", "skipped", "skipped", "skipped", "skipped"]
    assert len(cleaned) == 1


def test_a_worker_whose_lease_ran_out_writes_nothing_more() -> None:
    job = opened()

    def verify(context: Context) -> Piece:
        Job.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
        assert rows.claim(job_id=job.id, worker="other") is not None
        context.tell(progress=0.5)
        raise AssertionError("tell must have raised")

    assert jobs.run(job.id, kinds(verify=verify)) is None
    job.refresh_from_db()
    assert (job.state, job.claimed_by) == ("running", "other")
    assert JobStep.objects.get(job=job, name="verify").progress == 0.0


def test_f62_the_successor_of_a_dead_worker_begins_its_step_again() -> None:
    job = opened()
    rows.claim(job_id=job.id, worker="dead")
    rows.note(job_id=job.id, worker="dead", number=1, state=StepState.DONE)
    rows.note(job_id=job.id, worker="dead", number=2, progress=0.5)
    assert jobs.run(job.id, kinds()) is None
    assert Job.objects.get().state == "running", "the dead one's lease still holds"
    Job.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    jobs.run(job.id, kinds())
    assert Job.objects.get().state == "done"


def test_a_step_past_its_deadline_fails_the_job() -> None:
    job = opened()
    jobs.run(job.id, kinds(find=lambda context: Piece()))
    JobStep.objects.filter(name="find").update(started_at=timezone.now() - timedelta(seconds=61))
    jobs.run(job.id, kinds(find=lambda context: Piece()))
    job.refresh_from_db()
    assert (job.state, job.code) == ("failed", "step_deadline")


def test_a_job_that_takes_too_long_at_once_is_put_down_for_others() -> None:
    job = opened()
    assert jobs.run(job.id, kinds(), budget=-1.0) == 0.0
    assert states(job)[:2] == ["done", "waiting"]


@pytest.mark.django_db(transaction=True)
def test_a_long_piece_keeps_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    lasting = from_unix(database_now() + 3600.0)  # a busy machine may come late to a short one
    monkeypatch.setattr(rows, "LEASE", 0.3)  # renewed each third of that
    monkeypatch.setattr(rows, "_lease", lambda: lasting)
    job = opened()
    asked: list[Any] = []

    def verify(context: Context) -> Piece:
        for _ in range(3):
            Job.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
            wait_for(lambda: Job.objects.filter(claimed_until=lasting).exists(), what="the lease to be renewed")
            asked.append(rows.claim(job_id=job.id, worker="other"))
        return Piece(done=True)

    jobs.run(job.id, kinds(verify=verify))
    assert asked == [None] * 3
    assert Job.objects.get().state == "done"


@pytest.mark.parametrize("kind", [OperationalError, InterfaceError])
def test_a_database_that_is_away_for_a_moment_fails_no_job(kind: type[Exception]) -> None:
    job = opened()

    def wait(context: Context) -> Piece:
        raise kind("database is locked")

    with pytest.raises(kind):
        jobs.run(job.id, kinds(wait=wait))
    assert states(job) == ["done", "done", "done", "done", "running", "waiting"]
    Job.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    assert rows.orphans() == [job.id]
    jobs.run(job.id, kinds())
    assert Job.objects.get().state == "done"


def test_a_job_ends_even_if_its_cleaning_up_breaks() -> None:
    job = opened()

    def broken(job: JobView) -> None:
        raise ZeroDivisionError

    work = kinds()
    work["serve"] = Kind(steps=work["serve"].steps, result=work["serve"].result, cleanup=broken)
    jobs.run(job.id, work)
    job.refresh_from_db()
    assert (job.state, job.claimed_by) == ("done", "")


def test_a_step_may_end_the_job_as_waiting_with_what_it_came_to() -> None:
    job = opened()

    def wait(context: Context) -> Piece:
        return Piece(end=Close(JobState.WAITING, "no_card_memory_now", "all cards are in use"), detail="in use")

    work = kinds(wait=wait)
    assert jobs.run(job.id, work) is None
    job.refresh_from_db()
    assert (job.state, job.code, job.message) == ("waiting", "no_card_memory_now", "all cards are in use")
    assert job.finished_at is not None
    assert job.result == {"steps": 6}
    assert states(job) == ["done"] * 4 + ["skipped"] * 2
    assert jobs.run(job.id, work) is None
    rows.open(kind="serve", subject="m", args={"name": "m"}, actor="t")  # it has ended: another may be opened
