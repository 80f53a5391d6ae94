"""A serve job from a registry that is cancelled, killed or fails: what it began, and nothing else, is gone afterwards."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from catalog.models import Model, Version
from catalog.services import mirror, served, versions
from cluster.domain.fetching import FetchReport
from cluster.models import Job, JobStep
from cluster.selectors.kept import kept
from cluster.services import jobs as rows
from llmgw_site.lib.errors import Kind, Refused
from tests.cluster.rows import Machine
from tests.hub.app import Hub
from tests.rows import a_model
from tests.workers.tasks.fetched import opened, whole
from tests.workers.tasks.site import run, step
from workers import jobs
from workers.tasks import serve_fetched, sweep

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("at", ["mirror", "wait"])
def test_a_cancelled_job_leaves_nothing(stocked_hub: Hub, machine: Machine, at: str) -> None:
    job = run(opened(quantization="F16"))
    if at == "wait":
        whole(machine, Version.objects.get())
        run(job)
    assert step(job, at).state == "running"
    rows.cancel(job_id=job.id, actor="t")
    assert run(job).state == "cancelled"
    assert not Version.objects.exists()
    assert not Model.objects.exists()


@pytest.mark.parametrize("at", ["mirror", "catalogue"])
@pytest.mark.parametrize("resumed", [False, True])
def test_a_job_whose_worker_died_between_row_and_note_leaves_nothing_when_it_is_cancelled(
    stocked_hub: Hub, machine: Machine, monkeypatch: pytest.MonkeyPatch, at: str, resumed: bool
) -> None:
    job = opened(quantization="F16")
    if at == "catalogue":
        run(job)
        whole(machine, Version.objects.get())
    owner, verb = (versions, "keep") if at == "mirror" else (served, "add_model")
    made = getattr(owner, verb)

    def killed(**words: Any) -> None:
        made(**words)
        raise jobs.LostJob

    with monkeypatch.context() as patch:
        patch.setattr(owner, verb, killed)
        run(job)
    assert (Version.objects.count(), Model.objects.count()) == (1, at == "catalogue")
    Job.objects.update(claimed_until=None, claimed_by="")
    if resumed:
        run(job)
        Job.objects.update(claimed_until=None, claimed_by="")
    rows.cancel(job_id=job.id, actor="t")
    assert run(job).state == "cancelled"
    assert (Version.objects.count(), Model.objects.count()) == (0, 0)


@pytest.mark.parametrize("at", ["mirror", "catalogue"])
def test_a_job_that_failed_and_is_tried_again_still_knows_what_it_began(
    stocked_hub: Hub, machine: Machine, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    job = run(opened(quantization="F16"))
    version = Version.objects.get()
    if at == "mirror":
        machine.heartbeat(fetches=(FetchReport(version=version.pk, size=version.size, code="disk_full", message="no"),))
        run(job)
        with monkeypatch.context() as patch:
            patch.setattr(serve_fetched, "NO_MIRROR", -1.0)
            run(job)
    else:
        add_model = served.add_model

        def breaks(**words: Any) -> None:
            add_model(**words)
            raise Refused(Kind.CONFLICT, "broken", "after the row was written")

        whole(machine, version)
        with monkeypatch.context() as patch:
            patch.setattr(served, "add_model", breaks)
            run(job)
        Model.objects.update(created_at=timezone.now() - timedelta(seconds=10))
        begun = {**step(job, at).data, "begun": step(job, at).data["begun"] - 10}
        JobStep.objects.filter(job=job, name=at).update(data=begun)
    Version.objects.update(created_at=version.created_at - timedelta(seconds=10))  # it took a while, as fetching does
    job.refresh_from_db()
    assert (job.state, step(job, at).state) == ("failed", "failed")
    rows.retry(job_id=job.id, actor="t")
    assert "code" not in step(job, at).data
    machine.heartbeat(fetches=())
    assert run(job).state == "running"
    rows.cancel(job_id=job.id, actor="t")
    assert run(job).state == "cancelled"
    assert (Version.objects.count(), Model.objects.count()) == (0, 0)


def test_a_cancelled_job_leaves_what_others_use(stocked_hub: Hub, machine: Machine) -> None:
    job = run(opened(quantization="F16"))
    version = Version.objects.get()
    Version.objects.update(created_at=version.created_at - timedelta(seconds=10))
    other = run(opened(quantization="F16", name="other"))
    rows.cancel(job_id=job.id, actor="t")
    assert run(job).state == "cancelled"
    assert Version.objects.get() == version
    rows.cancel(job_id=other.id, actor="t")
    run(other)
    assert Version.objects.get() == version  # it was there when this job began


@pytest.mark.parametrize("name", ["registry", "plan", "mirror", "check", "catalogue"])
def test_a_step_that_is_begun_again_after_its_worker_was_killed_makes_nothing_twice(
    stocked_hub: Hub, machine: Machine, name: str
) -> None:
    job = run(opened(quantization="F16"))
    whole(machine, Version.objects.get())
    run(job)
    assert step(job, "wait").state == "running"
    kept = {"begun": step(job, name).started_at.timestamp()} if name == "mirror" else {}  # type: ignore[union-attr]
    JobStep.objects.filter(job=job, name=name).update(state="running", data=kept)  # it had noted no more
    run(job)
    assert [row.state for row in JobStep.objects.filter(job=job).order_by("number")] == ["done"] * 5 + [
        "running",
        "waiting",
    ]
    assert (Version.objects.count(), Model.objects.count()) == (1, 1)
    assert Model.objects.get().profiles.count() == 1
    if name == "mirror":
        assert step(job, name).data["ours"]


def test_a_version_that_a_job_fetches_is_needed_by_it(stocked_hub: Hub, machine: Machine, admin_client: Client) -> None:
    job = run(opened(quantization="F16"))
    version = Version.objects.get()
    assert kept()[0].users == (f"job {job.id}",)
    answer = admin_client.delete(f"/api/v1/mirror/{version.pk}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "still_in_use")
    assert f"llmgw jobs {job.id} --cancel" in answer.json()["error"]["message"]
    rows.cancel(job_id=job.id, actor="t")
    run(job)
    assert kept() == ()


def test_a_job_that_failed_before_the_first_byte_leaves_no_version_for_nodes_to_try(
    stocked_hub: Hub, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_fetched, "NO_MIRROR", -1.0)
    job = run(opened(quantization="F16"))
    version = Version.objects.get()
    told = FetchReport(version=version.pk, size=version.size, code="disk_full", message="no room")
    machine.heartbeat(fetches=(told,))
    run(job)
    assert run(job).state == "failed"
    assert not Version.objects.exists()
    machine.heartbeat(fetches=())
    rows.retry(job_id=job.id, actor="t")
    run(job)  # sees that it is gone
    run(job)
    whole(machine, Version.objects.get())
    run(job)
    assert step(job, "catalogue").state == "done"


@pytest.mark.parametrize("stays", ["", "fresh", "asked for before", "whole", "served"])
def test_what_a_job_began_and_nobody_wants_any_more_is_given_up_a_day_after_it_failed(
    stocked_hub: Hub, machine: Machine, monkeypatch: pytest.MonkeyPatch, stays: str
) -> None:
    if stays == "asked for before":
        mirror.add(actor="user:x", source=["org/tiny-GGUF"], quantization="F16")
        Version.objects.update(created_at=timezone.now() - timedelta(hours=1))
    job = run(opened(quantization="F16"))
    version = Version.objects.get()
    monkeypatch.setattr(serve_fetched, "WRONG", -1.0)
    told = FetchReport(version=version.pk, size=version.size, there=1000, code="file_wrong", message="other bytes")
    machine.heartbeat(fetches=(told,))
    run(job)
    assert (run(job).state, Version.objects.count()) == ("failed", 1), "tried again, it goes on from there"
    if stays == "whole":
        whole(machine, version)
    if stays == "served":
        a_model("other", version=version)
    if stays != "fresh":
        Job.objects.update(finished_at=timezone.now() - timedelta(hours=25))
    sweep.prune()
    assert Version.objects.exists() == bool(stays)
