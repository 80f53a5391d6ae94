"""workers.tasks.sweep: what is old is forgotten, in batches, and what shall stay stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone

from catalog.models import AdminToken, ApiKey, Event
from catalog.services import events, keys, tokens
from cluster.domain.states import JobState
from cluster.models import Certificate, Job, JoinToken, Measurement
from cluster.services import jobs, joining
from routing import services
from routing.models import UsageRecord
from tests.cluster.rows import Machine
from tests.rows import a_project, a_user
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
    sweep.prune_usage()
    assert set(UsageRecord.objects.values_list("record_id", flat=True)) == {"rec_3", "rec_4"}
    assert list(Event.objects.values_list("subject_id", flat=True)) == ["399"]
    assert set(Job.objects.values_list("subject", flat=True)) == {"new", "open"}
    assert list(Session.objects.values_list("session_key", flat=True)) == ["live"]


@pytest.mark.usefixtures("old_and_new")
def test_zero_days_keep_everything(settings: Any) -> None:
    settings.CONFIG = replace(settings.CONFIG, usage_days=0.0, event_days=0.0, job_days=0.0, key_days=0.0)
    sweep.prune()
    sweep.prune_usage()
    assert (UsageRecord.objects.count(), Event.objects.count(), Job.objects.count()) == (4, 2, 3)


@pytest.mark.usefixtures("old_and_new")
def test_a_prune_that_takes_too_long_leaves_the_rest_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "BUDGET", -1.0)
    sweep.prune()
    sweep.prune_usage()
    assert (UsageRecord.objects.count(), Event.objects.count()) == (4, 2)


def test_much_of_one_thing_keeps_nothing_else_from_being_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that come faster than they are forgotten leave the sums their turn, and time between for who writes."""
    turns: list[str] = []
    pauses: list[float] = []

    def endless(name: str, took: float) -> Callable[..., int]:
        def forget(*, before: datetime, limit: int) -> int:
            turns.append(name)
            clock[0] += took
            return limit

        return forget

    clock = [0.0]
    monkeypatch.setattr("workers.tasks.sweep.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("workers.tasks.sweep.time.sleep", pauses.append)
    monkeypatch.setattr(services, "prune_usage", endless("usage", 1.0))
    monkeypatch.setattr(services, "prune_rollups", endless("rollups", 0.125))
    sweep.prune_usage()
    assert turns[:4] == ["usage", "rollups", "usage", "rollups"]
    assert pauses[:2] == [sweep.LONGEST_PAUSE, 0.125]


def test_of_decisions_about_one_model_the_newest_are_kept_and_all_that_people_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "DECISIONS", 3)
    monkeypatch.setattr(sweep, "BATCH", 2)

    def write(number: int, actor: str, **subject: Any) -> None:
        events.append(actor=actor, kind="k", message=str(number), **{"subject_kind": "model", **subject})

    for number in range(10):
        write(number, "reconciler", subject_id="mod_1")
        write(number, "node:n", subject_id="rep_1", subject_kind="replica", about="mod_1")
        write(number, "user:u", subject_id="mod_1")
    for number in range(2):
        write(number, "reconciler", subject_id="mod_2")
        write(number, "reconciler", subject_id="n1", subject_kind="node")
    sweep.prune()

    def kept(actor: str, **subject: str) -> list[str]:
        return list(Event.objects.filter(actor=actor, **subject).order_by("at", "id").values_list("message", flat=True))

    assert kept("reconciler", subject_id="mod_1") == ["7", "8", "9"]
    assert kept("node:n", about="mod_1") == ["7", "8", "9"]
    assert len(kept("user:u")) == 10
    assert kept("reconciler", subject_id="mod_2") == kept("reconciler", subject_id="n1") == ["0", "1"]


def test_keys_and_tokens_that_ended_long_ago_are_forgotten_and_usage_still_says_which_key_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep, "BATCH", 2)
    project = a_project()
    made = {
        name: keys.issue(actor="t", project=project, name=name)[0] for name in ("live", "gone", "over", "late", "soon")
    }
    user = a_user("ann")
    admin = {name: tokens.issue(actor="t", user=user, name=name)[0] for name in ("live", "gone", "over", "late")}
    for rows in (made, admin):
        for name, column, days in (
            ("gone", "revoked_at", 91), ("late", "revoked_at", 89), ("over", "expires_at", 91), ("soon", "expires_at", 89),
        ):  # fmt: skip
            if name in rows:
                type(rows[name]).objects.filter(pk=rows[name].pk).update(**{column: ago(days)})
    joins = [joining.issue(actor="t").token.pk for _ in range(3)]
    JoinToken.objects.filter(pk=joins[0]).update(expires_at=ago(91))
    JoinToken.objects.filter(pk=joins[1]).update(
        revoked_at=ago(91)
    )  # it has a month to live, and is refused as revoked
    told = {"request_id": "r", "started_at": timezone.now().timestamp(), "endpoint": "chat", "outcome": "done"}
    services.store_usage(node_id="n", records=[{"record_id": "a", "key_id": made["gone"].pk, **told}])
    sweep.prune()
    assert set(ApiKey.objects.values_list("name", flat=True)) == {"live", "late", "soon"}
    assert set(AdminToken.objects.values_list("name", flat=True)) == {"live", "late"}
    assert set(JoinToken.objects.values_list("pk", flat=True)) == set(joins[1:])
    row = UsageRecord.objects.get()
    assert (row.key_id, row.key_prefix) == (made["gone"].pk, made["gone"].prefix)


def test_a_certificate_is_forgotten_when_it_could_be_shown_no_more() -> None:
    node = Machine().node
    for serial, days in (("old", 91), ("new", 89), ("live", -100)):
        Certificate.objects.create(serial=serial, node=node, expires_at=ago(days), revoked_at=ago(200))
    sweep.prune()
    assert set(Certificate.objects.exclude(revoked_at=None).values_list("serial", flat=True)) == {"new", "live"}


def test_measurements_of_what_runs_no_more_are_forgotten() -> None:
    for digest, days in (("old", 31), ("new", 29)):
        Measurement.objects.create(digest=digest, memory=1, replica_id="r", measured_at=ago(days))
    sweep.prune()
    assert list(Measurement.objects.values_list("digest", flat=True)) == ["new"]
