"""workers.tasks.bench: which replicas are measured, and where what was found goes."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.models import Profile
from cluster.domain.bench import Level
from cluster.models import Job, Replica, Throughput
from cluster.services import jobs as rows
from llmgw_site.lib.errors import Kind, Refused
from tests.cluster.rows import Machine, a_model_row, report, tick
from workers import jobs, loading
from workers.tasks.advance import KINDS

pytestmark = pytest.mark.django_db


@pytest.fixture
def machine() -> Machine:
    found = Machine("one")
    found.heartbeat()
    a_model_row("m", profile={"slots": 4})
    tick()
    row = Replica.objects.get()
    found.heartbeat(report(row, "starting", attempt=1))
    found.heartbeat(report(row, "ready", attempt=1, port=1, slots=4))
    return found


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The loads that were tried, on a replica that serves 6 at once well with 10 tokens a second each."""
    tried: list[int] = []

    def load(signed: Any, *, at_once: int, **words: Any) -> Level:
        tried.append(at_once)
        return Level(
            at_once=at_once, tps=10.0 * min(at_once, 6), first_s=0.2 if at_once <= 6 else 5.0, requests=at_once
        )

    monkeypatch.setattr(loading, "load", load)
    return tried


def run(**args: Any) -> Job:
    job = rows.open(kind="bench", subject="m", args={"name": "m", **args}, actor="user:x")
    for _ in range(20):
        jobs.run(job.id, KINDS)
        job.refresh_from_db()
        if job.state not in ("queued", "running"):
            break
    return job


def test_what_is_found_is_kept_for_the_profile_and_the_hardware(machine: Machine, loads: list[int]) -> None:
    job = run()
    assert (job.state, job.message) == ("done", "")
    assert loads == [1, 2, 4, 8, 6, 7]
    profile = Profile.objects.get()
    assert (profile.measured_tps, profile.measured_concurrency) == (60.0, 6.0)
    row = Throughput.objects.get()
    assert (row.digest, row.hardware) == (Replica.objects.get().digest, "processor with 4 cores")
    assert (row.tps, row.at_once, row.objective) == (60.0, 6, 2.0)
    assert job.result["measured"][0]["at_once"] == 6
    tick()
    assert Replica.objects.get().generation == 1, "what was measured restarts nobody"


def test_no_more_than_four_for_each_slot_are_tried_unless_told(
    machine: Machine, loads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(most=2)
    assert loads == [1, 2]


def test_one_that_is_never_in_time_is_told_as_such(machine: Machine, loads: list[int]) -> None:
    job = run(ttft=0.1)
    assert job.result["measured"][0]["at_once"] == 0
    assert loads == [1]
    assert Profile.objects.get().measured_concurrency == 0.0


def test_what_cannot_be_measured_is_refused_with_the_reason(loads: list[int]) -> None:
    a_model_row("m")
    job = run()
    assert (job.state, job.code) == ("failed", "bench_not_possible")
    assert "no replica of m is ready" in job.message


def test_a_replica_that_goes_away_ends_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(signed: Any, **words: Any) -> Level:
        Replica.objects.update(state="backoff")
        return Level(at_once=1, tps=1.0, first_s=0.1, requests=1)

    monkeypatch.setattr(loading, "load", load)
    job = run()
    assert (job.state, job.code) == ("failed", "bench_broken_off")


def test_an_engine_that_answers_nothing_ends_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(signed: Any, **words: Any) -> Level:
        raise Refused(Kind.UPSTREAM, "bench_failed", "m answered none of 3 requests: no")

    monkeypatch.setattr(loading, "load", load)
    job = run()
    assert (job.state, job.code) == ("failed", "bench_failed")
    assert not Throughput.objects.exists()
