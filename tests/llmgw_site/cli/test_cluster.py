"""`llmgw status`, `jobs` and `node` against the real admin API of a live server."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from django.db import connection
from typer.testing import CliRunner

from catalog.services import tokens
from cluster.domain.states import JobState, StepState
from cluster.models import Node
from cluster.services import jobs
from llmgw_site.cli import jobs as jobs_cli
from llmgw_site.cli import nodes as nodes_cli
from llmgw_site.cli import status as status_cli
from llmgw_site.cli.client import CliError, ExitCode
from tests.cluster.rows import a_ready_replica, report
from tests.processes import wait_for
from tests.rows import ACTOR, a_user

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def as_administrator(live_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    user = a_user("root", superuser=True)
    secret = tokens.issue(actor=ACTOR, user=user, name="cli", days=1)[1]
    monkeypatch.setenv("LLMGW_URL", live_server.url)
    monkeypatch.setenv("LLMGW_ADMIN_TOKEN", secret.text)


def run(app: Any, *args: str, code: ExitCode | None = None) -> str:
    """What the command prints; `code`: of the CliError that ends it, whose text is added."""
    result = CliRunner().invoke(app, list(args))
    if code is None:
        assert result.exception is None, result.exception
        return str(result.stdout)
    assert isinstance(result.exception, CliError)
    assert result.exception.code == code
    return f"{result.stdout}{result.exception}"


def test_a_cluster_as_it_should_be_ends_with_0() -> None:
    a_ready_replica()
    text = run(status_cli.app)
    assert "1 online" in text
    assert "problem" not in text
    assert "1/1 ready" in text


def test_f24_what_nodes_say_is_wrong_with_them_is_told_by_name() -> None:
    machine, row = a_ready_replica()
    machine.heartbeat(report(row, "ready"), problems=("usage records cannot be written",))
    assert f"problem   {machine.node.name}: usage records cannot be written\n" in run(status_cli.app)


def test_a_model_that_is_short_ends_with_1_and_is_named_with_why() -> None:
    machine, row = a_ready_replica()
    machine.heartbeat(report(row, "failed", code="oom", message="no memory"))
    text = run(status_cli.app, code=ExitCode.REFUSED)
    assert "0/1 ready" in text
    assert "no memory" in text
    assert "1 of 1 models is short: small" in text
    assert json.loads(run(status_cli.app, "--json", code=ExitCode.REFUSED).split("\n1 of 1")[0].rsplit("}", 1)[0] + "}")


def test_nodes_are_listed_shown_and_removed() -> None:
    machine, _ = a_ready_replica()
    assert machine.node.name in run(nodes_cli.app, "list")
    assert "8.0 GiB of 8.0 GiB" in run(nodes_cli.app, "show", machine.node.name)
    assert json.loads(run(nodes_cli.app, "show", machine.node.id, "--json"))["state"] == "online"
    run(nodes_cli.app, "show", "nobody", code=ExitCode.NOT_FOUND)
    run(nodes_cli.app, "remove", machine.node.name)
    assert not Node.objects.filter(removed_at__isnull=True).exists()
    assert run(nodes_cli.app, "list").strip() == "no nodes"


def test_jobs_are_listed_and_shown_with_their_steps() -> None:
    assert run(jobs_cli.app).strip() == "no jobs"
    job = jobs.open(kind="serve", subject="m", args={}, actor="t")
    jobs.claim(job_id=job.id, worker="w")
    jobs.note(job_id=job.id, worker="w", number=1, state=StepState.DONE, detail="found it")
    jobs.note(job_id=job.id, worker="w", number=2, progress=0.5)
    assert "1/6 Check the SHA-256 50%" in run(jobs_cli.app)
    text = run(jobs_cli.app, job.id)
    assert " + Find the weights: found it" in text
    assert " > Check the SHA-256 50%" in text
    assert json.loads(run(jobs_cli.app, job.id, "--json"))["steps"][1]["progress"] == 0.5
    assert json.loads(run(jobs_cli.app, "--json", "--state", "done")) == []
    run(jobs_cli.app, "job_none", code=ExitCode.NOT_FOUND)
    run(jobs_cli.app, "--follow", code=ExitCode.USAGE)


@pytest.mark.parametrize("end", [JobState.DONE, JobState.FAILED])
def test_following_a_job_stays_until_its_end_and_says_how_it_ended(end: JobState) -> None:
    job = jobs.open(kind="serve", subject="m", args={}, actor="t")
    jobs.claim(job_id=job.id, worker="w")
    jobs.note(job_id=job.id, worker="w", number=1, progress=0.1)
    said: list[str] = []
    code = None if end is JobState.DONE else ExitCode.REFUSED

    def follow() -> None:
        said.append(run(jobs_cli.app, job.id, "--follow", code=code))
        connection.close()  # the thread's own, of the API that answers in this process

    follower = threading.Thread(target=follow)
    follower.start()
    jobs.note(job_id=job.id, worker="w", number=1, state=StepState.DONE, detail="here")
    assert follower.is_alive()
    jobs.close(job_id=job.id, worker="w", state=end, message="as it was" if code else "")
    wait_for(lambda: not follower.is_alive(), seconds=60, what="the command to end")
    assert " + Find the weights: here" in said[0]
    assert ("the job has failed: as it was" in said[0]) == (end is JobState.FAILED)


def test_a_failed_job_is_tried_again_and_an_open_one_cancelled() -> None:
    job = jobs.open(kind="serve", subject="m", args={}, actor="t")
    jobs.claim(job_id=job.id, worker="w")
    jobs.close(job_id=job.id, worker="w", state=JobState.FAILED)
    assert "queued" in run(jobs_cli.app, job.id, "--retry")
    run(jobs_cli.app, job.id, "--retry", code=ExitCode.REFUSED)
    assert json.loads(run(jobs_cli.app, job.id, "--cancel", "--json"))["cancel_requested"]
    jobs.claim(job_id=job.id, worker="w")
    assert "Its end was asked for" in run(jobs_cli.app, job.id)


def test_a_name_is_one_part_of_a_path_whatever_it_has() -> None:
    a_ready_replica()
    name = Node.objects.get().name
    for odd in (f"{name}?x", f"{name}#x", f"../nodes/{name}", f"x/../{name}"):
        run(nodes_cli.app, "remove", odd, code=ExitCode.NOT_FOUND)
    assert Node.objects.filter(removed_at__isnull=True).count() == 1
