"""cluster.services.jobs: one holder at a time, nothing lost, nothing twice."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from catalog.models import Event
from cluster.domain.states import JobState, StepState
from cluster.models import Job, JobStep
from cluster.services import jobs
from llmgw_site.lib.errors import Refused

pytestmark = pytest.mark.django_db


def opened(subject: str = "m") -> Job:
    return jobs.open(kind="serve", subject=subject, args={"name": subject}, actor="user:x")


def expire(job: Job) -> None:
    """As if the holder of the job had died a while ago."""
    Job.objects.filter(id=job.id).update(claimed_until=timezone.now() - timedelta(seconds=1))


def test_a_job_is_opened_with_its_steps_and_an_event() -> None:
    job = opened()
    assert [step.name for step in job.steps.order_by("number")] == ["find", "verify", "read", "add", "wait", "smoke"]
    assert Event.objects.get(kind="job_opened").actor == "user:x"


def test_one_job_of_a_kind_is_open_for_a_subject() -> None:
    job = opened()
    with pytest.raises(Refused) as refused:
        opened()
    assert (refused.value.code, refused.value.extra) == ("job_already_open", {"job_id": job.id})
    jobs.cancel(job_id=job.id, actor="user:x")
    jobs.claim(job_id=job.id, worker="w")
    jobs.close(job_id=job.id, worker="w", state=JobState.CANCELLED)
    opened()


def test_a_kind_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(Refused, match="serve") as refused:
        jobs.open(kind="teleport", subject="m", args={}, actor="t")
    assert refused.value.code == "job_kind_unknown"


def test_a_claimed_job_is_nobody_elses() -> None:
    job = opened()
    view = jobs.claim(job_id=job.id, worker="one")
    assert view is not None
    assert view.state is JobState.RUNNING
    assert jobs.claim(job_id=job.id, worker="two") is None
    assert not jobs.note(job_id=job.id, worker="two", number=1, progress=0.5)
    assert not jobs.close(job_id=job.id, worker="two", state=JobState.DONE)
    assert Job.objects.get().state == "running"


def test_f62_a_job_whose_worker_died_is_taken_up_again() -> None:
    job = opened()
    jobs.claim(job_id=job.id, worker="dead")
    jobs.note(job_id=job.id, worker="dead", number=1, state=StepState.DONE, data={"path": "/x"})
    assert jobs.orphans() == []
    expire(job)
    assert jobs.orphans() == [job.id]
    view = jobs.claim(job_id=job.id, worker="alive")
    assert view is not None
    assert view.found("find") == {"path": "/x"}
    assert not jobs.note(job_id=job.id, worker="dead", number=2, progress=0.5), "the dead one must not write"


def test_a_job_that_was_put_down_is_left_alone_until_its_time() -> None:
    job = opened()
    jobs.claim(job_id=job.id, worker="w")
    jobs.put_down(job_id=job.id, worker="w", again_in=60)
    assert jobs.orphans() == []
    assert jobs.claim(job_id=job.id, worker="other") is not None, "a wake-up that comes early is no error"
    jobs.put_down(job_id=job.id, worker="other", again_in=-1)
    assert jobs.orphans() == [job.id]


def test_the_end_of_a_failed_job_leaves_no_step_open() -> None:
    job = opened()
    jobs.claim(job_id=job.id, worker="w")
    jobs.note(job_id=job.id, worker="w", number=1, state=StepState.DONE)
    jobs.note(job_id=job.id, worker="w", number=2, progress=0.3)
    jobs.close(job_id=job.id, worker="w", state=JobState.FAILED, code="c", message="m")
    assert list(job.steps.order_by("number").values_list("state", flat=True)) == ["done", "failed", *["skipped"] * 4]
    assert Event.objects.get(kind="job_failed").why == "m"
    assert jobs.orphans() == []


def test_a_failed_job_goes_on_where_it_failed() -> None:
    job = opened()
    jobs.claim(job_id=job.id, worker="w")
    jobs.note(job_id=job.id, worker="w", number=1, state=StepState.DONE, data={"path": "/x"})
    jobs.note(job_id=job.id, worker="w", number=2, state=StepState.FAILED, detail="no")
    jobs.close(job_id=job.id, worker="w", state=JobState.FAILED)
    again = jobs.retry(job_id=job.id, actor="user:y")
    assert (again.state, again.attempt, again.finished_at) == ("queued", 2, None)
    assert list(job.steps.order_by("number").values_list("state", flat=True)) == ["done", *["waiting"] * 5]
    assert jobs.orphans() == [job.id]


@pytest.mark.parametrize("state", [JobState.DONE, JobState.CANCELLED])
def test_only_a_failed_job_can_be_tried_again(state: JobState) -> None:
    job = opened()
    jobs.claim(job_id=job.id, worker="w")
    jobs.close(job_id=job.id, worker="w", state=state)
    with pytest.raises(Refused) as refused:
        jobs.retry(job_id=job.id, actor="t")
    assert refused.value.code == "job_not_failed"
    with pytest.raises(Refused) as refused:
        jobs.cancel(job_id=job.id, actor="t")
    assert refused.value.code == "job_ended"


def test_a_retry_beside_an_open_job_for_the_same_is_refused() -> None:
    job = opened()
    jobs.claim(job_id=job.id, worker="w")
    jobs.close(job_id=job.id, worker="w", state=JobState.FAILED)
    opened()
    with pytest.raises(Refused) as refused:
        jobs.retry(job_id=job.id, actor="t")
    assert refused.value.code == "job_already_open"


@pytest.mark.parametrize("act", [jobs.cancel, jobs.retry])
def test_a_job_that_is_not_there_is_not_found(act: Any) -> None:
    with pytest.raises(Refused) as refused:
        act(job_id="job_none", actor="t")
    assert refused.value.code == "job_unknown"


def test_progress_stays_between_nothing_and_all() -> None:
    job = opened()
    jobs.claim(job_id=job.id, worker="w")
    for given, kept in ((-1.0, 0.0), (7.0, 1.0), (0.25, 0.25)):
        jobs.note(job_id=job.id, worker="w", number=1, progress=given)
        assert JobStep.objects.get(job=job, number=1).progress == kept


def test_jobs_that_ended_long_ago_are_forgotten_with_their_steps() -> None:
    old, new = opened("old"), opened("new")
    for job in (old, new):
        jobs.claim(job_id=job.id, worker="w")
        jobs.close(job_id=job.id, worker="w", state=JobState.DONE)
    Job.objects.filter(id=old.id).update(finished_at=timezone.now() - timedelta(days=40))
    assert jobs.prune(before=timezone.now() - timedelta(days=30), limit=10) == 1
    assert list(Job.objects.all()) == [new]
    assert not JobStep.objects.filter(job_id=old.id).exists()


@pytest.mark.django_db(transaction=True)
def test_of_many_workers_that_want_a_job_one_gets_it() -> None:
    job = opened()
    gate = threading.Barrier(6)
    got: list[Any] = []

    def worker(name: str) -> None:
        try:
            gate.wait()
            got.append(jobs.claim(job_id=job.id, worker=name))
        finally:
            connection.close()

    threads = [threading.Thread(target=worker, args=(f"w{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 6
    assert sum(view is not None for view in got) == 1
