"""workers.tasks.sweep: what is old is forgotten, in batches, and what shall stay stays."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone

from catalog.models import Event
from catalog.services import events
from cluster.domain.states import JobState
from cluster.models import Job
from cluster.services import jobs
from routing.models import UsageRecord
from workers.tasks import sweep

pytestmark = pytest.mark.django_db


def ago(days: float) -> datetime:
    return timezone.now() - timedelta(days=days)


def a_record(number: int, *, started: float, stored: float) -> None:
    UsageRecord.objects.create(
        record_id=f"rec_{number}", request_id="r", started_at=ago(started), endpoint="chat", outcome="done"
    )
    UsageRecord.objects.filter(record_id=f"rec_{number}").update(stored_at=ago(stored))


def an_event(days: float) -> None:
    row = events.append(actor="t", kind="k", subject_kind="model", subject_id=f"{days}")
    Event.objects.filter(pk=row.pk).update(at=ago(days))


def a_job(name: str, days: float | None) -> None:
    job = jobs.open(kind="serve", subject=name, args={"name": name}, actor="t")
    if days is not None:
        jobs.claim(job_id=job.id, worker="w")
        jobs.close(job_id=job.id, worker="w", state=JobState.DONE)
        Job.objects.filter(id=job.id).update(finished_at=ago(days))


@pytest.fixture
def old_and_new() -> None:
    a_job("old", 31)
    a_job("new", 29)
    a_job("open", None)
    Job.objects.filter(subject="open").update(created_at=ago(500))
    Event.objects.all().delete()
    a_record(1, started=401, stored=401)
    a_record(2, started=402, stored=402)
    a_record(3, started=399, stored=399)
    a_record(4, started=9000, stored=0)  # from a node whose clock was wrong
    an_event(401)
    an_event(399)
    Session.objects.create(session_key="gone", session_data="", expire_date=ago(1))
    Session.objects.create(session_key="live", session_data="", expire_date=ago(-1))


@pytest.mark.usefixtures("old_and_new")
@pytest.mark.parametrize("batch", [1, 500])
def test_what_is_older_than_its_setting_is_forgotten(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "BATCH", batch)
    sweep.prune()
    assert set(UsageRecord.objects.values_list("record_id", flat=True)) == {"rec_3", "rec_4"}
    assert list(Event.objects.values_list("subject_id", flat=True)) == ["399"]
    assert set(Job.objects.values_list("subject", flat=True)) == {"new", "open"}
    assert list(Session.objects.values_list("session_key", flat=True)) == ["live"]


@pytest.mark.usefixtures("old_and_new")
def test_zero_days_keep_everything(settings: Any) -> None:
    settings.CONFIG = replace(settings.CONFIG, usage_days=0.0, event_days=0.0, job_days=0.0)
    sweep.prune()
    assert (UsageRecord.objects.count(), Event.objects.count(), Job.objects.count()) == (4, 2, 3)


@pytest.mark.usefixtures("old_and_new")
def test_a_prune_that_takes_too_long_leaves_the_rest_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "BUDGET", -1.0)
    sweep.prune()
    assert UsageRecord.objects.count() == 4
