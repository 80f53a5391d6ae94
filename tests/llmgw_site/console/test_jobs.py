"""The jobs pages and their buttons."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from cluster.domain.states import JobState, StepState
from cluster.models import Job
from cluster.services import jobs
from tests.llmgw_site.console.conftest import Person

pytestmark = pytest.mark.django_db


def opened(subject: str = "tiny") -> Job:
    return jobs.open(kind="serve", subject=subject, args={"name": subject}, actor="user:root")


def failed(subject: str = "tiny") -> Job:
    job = opened(subject)
    jobs.claim(job_id=job.id, worker="w")
    jobs.note(job_id=job.id, worker="w", number=1, state=StepState.DONE, detail="found it")
    jobs.note(
        job_id=job.id,
        worker="w",
        number=2,
        state=StepState.FAILED,
        detail="the sums differ",
        data={"log_tail": "last <words>"},
    )
    jobs.close(
        job_id=job.id, worker="w", state=JobState.FAILED, code="sha256_differs", message="other weights were stated"
    )
    return job


def test_a_running_job_is_shown_with_its_steps_and_how_far_it_is(admin: Client) -> None:
    job = opened()
    jobs.claim(job_id=job.id, worker="w")
    jobs.note(job_id=job.id, worker="w", number=1, state=StepState.DONE)
    jobs.note(job_id=job.id, worker="w", number=2, progress=0.5, detail="46 MiB of 93 MiB")
    page = admin.get(f"/admin/jobs/{job.id}").content.decode()
    assert page.count("lg-step done") == 1
    assert page.count("lg-step running") == 1
    assert page.count("lg-step waiting") == 4
    assert "46 MiB of 93 MiB" in page
    assert "25 %" in page  # one and a half of six
    assert ">Cancel<" in page
    assert "Try again" not in page


def test_a_failed_job_shows_why_and_the_last_lines_of_the_log(admin: Client) -> None:
    page = admin.get(f"/admin/jobs/{failed().id}").content.decode()
    for text in ("Other weights were stated", "sha256_differs", "The sums differ", "last &lt;words&gt;", "Try again"):
        assert text in page, text
    assert ">Cancel<" not in page


@pytest.mark.parametrize("one", [True, False])
def test_a_failure_is_said_once(admin: Client, one: bool) -> None:
    """In the list beside the state, with the step at which it ended beside it; on its page above the steps."""
    job = failed()
    Job.objects.update(message="Check the SHA-256: the sums differ")
    page = admin.get(f"/admin/jobs/{job.id}" if one else "/admin/jobs").content.decode()
    assert page.casefold().count("the sums differ") == 1
    assert one or "ended at step 2 of 6" in page


def test_what_a_job_came_to_is_said_in_units_and_without_ids(admin: Client) -> None:
    job = opened()
    jobs.claim(job_id=job.id, worker="w")
    found = {"model_id": "mod_1", "tokens_per_second": 118.42, "first_token_s": 0.074, "tokens": 1200, "absent": None}
    jobs.close(job_id=job.id, worker="w", state=JobState.DONE, result=found)
    page = admin.get(f"/admin/jobs/{job.id}").content.decode()
    for text in ("Tokens per second", "118.4", "First token", "74 ms", "1,200"):
        assert text in page, text
    assert "mod_1" not in page
    assert "Absent" not in page


def test_cancel_and_retry_go_through_the_service_and_say_what_happened(admin: Client) -> None:
    job = opened()
    answer = admin.post(f"/admin/jobs/{job.id}/cancel", follow=True)
    assert "asked to end" in answer.content.decode()
    assert Job.objects.get(id=job.id).cancel_requested
    lost = failed("other")
    admin.post(f"/admin/jobs/{lost.id}/retry")
    assert Job.objects.get(id=lost.id).state == JobState.QUEUED


def test_a_refusal_is_shown_on_the_page(admin: Client) -> None:
    job = failed()
    page = admin.post(f"/admin/jobs/{job.id}/cancel", follow=True).content.decode()
    assert "(job_ended)" in page


def test_the_buttons_need_the_permission_a_post_and_the_forms_token(person: Person) -> None:
    job = opened()
    looker = person("cluster.view_job")
    assert ">Cancel<" not in looker.get(f"/admin/jobs/{job.id}").content.decode()
    assert looker.post(f"/admin/jobs/{job.id}/cancel").status_code == 403
    worker = person("cluster.view_job", "cluster.change_job", name="worker")
    assert worker.get(f"/admin/jobs/{job.id}/cancel").status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = worker.cookies
    assert strict.post(f"/admin/jobs/{job.id}/cancel").status_code == 403
    assert not Job.objects.get(id=job.id).cancel_requested


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_a_job_that_does_not_exist_is_not_found(verb: str, admin: Client) -> None:
    assert admin.post(f"/admin/jobs/job_x/{verb}").status_code == 404


def test_the_list_filters_and_turns_pages(admin: Client) -> None:
    for n in range(27):
        opened(f"job-{n}")
    failed("broken")
    first = admin.get("/admin/jobs").content.decode()
    assert "1 to 25 of 28" in first
    assert "?page=2" in first
    second = admin.get("/admin/jobs?page=2").content.decode()
    assert "26 to 28 of 28" in second
    only = admin.get("/admin/jobs?state=failed").content.decode()
    assert "Serve broken" in only
    assert "Serve job-1" not in only
    assert "No done jobs" in admin.get("/admin/jobs?state=done").content.decode()


@pytest.mark.parametrize(
    "query", ["?page=0", "?page=-1", "?page=x", "?page=99999999999", "?state=nonsense", "?page=900"]
)
def test_nonsense_in_the_address_opens_a_page_all_the_same(query: str, admin: Client) -> None:
    assert admin.get(f"/admin/jobs{query}").status_code == 200


def test_the_parts_alone_are_what_the_page_has(admin: Client) -> None:
    job = opened()
    for path in ("/admin/jobs?parts=1", f"/admin/jobs/{job.id}?parts=1"):
        parts = admin.get(path).content.decode()
        assert "<html" not in parts
        assert "data-part=" in parts


def test_a_long_list_costs_as_many_queries_as_a_short_one(admin: Client, django_assert_num_queries: Any) -> None:
    for count in (2, 20):
        for n in range(count):
            opened(f"job-{count}-{n}")
        with django_assert_num_queries(6):  # 2 for the session, jobs, steps, count, open ones
            admin.get("/admin/jobs?parts=1")


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        ("update", "Update m"),
        ("rollback", "Roll back m"),
        ("adapter_update", "Update adapter calm of m"),
        ("adapter_rollback", "Roll back adapter calm of m"),
    ],
)
def test_a_job_is_named_by_what_it_does_with_what(kind: str, title: str, admin: Client) -> None:
    args = {"name": "m"} | ({"adapter": "calm"} if kind.startswith("adapter_") else {})
    job = jobs.open(kind=kind, subject="m", args=args, actor="user:root")
    assert title in admin.get("/admin/jobs").content.decode()
    assert f"<h2>{title}</h2>" in admin.get(f"/admin/jobs/{job.id}").content.decode()
