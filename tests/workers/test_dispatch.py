"""workers.dispatch: what signals lead to."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.services import keys
from cluster.models import Job
from cluster.services import jobs
from routing import selectors
from tests.cluster.rows import a_ready_replica, report
from tests.rows import a_key
from workers import dispatch


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Messages that would go to the broker; whether a real worker takes them is tested in test_celery."""
    messages: list[tuple[str, Any]] = []
    monkeypatch.setattr(dispatch.app, "send_task", lambda task, args, **options: messages.append((task, args)))
    return messages


@pytest.mark.django_db
def test_an_opened_job_wakes_a_worker_after_the_commit(
    sent: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        job = jobs.open(kind="serve", subject="m", args={}, actor="t")
        assert sent == []
    assert sent == [("workers.tasks.advance.advance", (job.id,))]


@pytest.mark.django_db
def test_a_revoked_key_is_out_of_the_snapshot_at_once(sent: list[Any], django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        key, _ = a_key()
    before = selectors.published_version()
    with django_capture_on_commit_callbacks(execute=True):
        keys.revoke(actor="t", key=key)
    assert selectors.published_version() != before
    assert key.sha256 not in (selectors.published() or pytest.fail("nothing published")).payload
    assert sent[-1] == ("workers.tasks.reconcile.reconcile", ())


@pytest.mark.django_db
def test_only_a_heartbeat_with_news_wakes_the_reconciler(
    sent: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    machine, row = a_ready_replica()
    with django_capture_on_commit_callbacks(execute=True):
        machine.heartbeat(report(row, "ready", port=1234, pid=42, in_flight=5))
    assert sent == []
    with django_capture_on_commit_callbacks(execute=True):
        machine.heartbeat(report(row, "backoff", code="oom"))
    assert sent == [("workers.tasks.reconcile.reconcile", ())]


@pytest.mark.django_db(transaction=True)
def test_without_a_broker_a_job_is_opened_all_the_same_and_the_sweep_finds_it() -> None:
    job = jobs.open(kind="serve", subject="m", args={}, actor="t")
    assert jobs.orphans() == [job.id]
    assert Job.objects.get().state == "queued"
