"""routing.services.publish: of publishers at once, and what it costs."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from django.db import connection, transaction

from catalog.models import Model
from cluster import selectors as cluster
from cluster.services import locks
from routing import selectors, services
from routing.models import PublishedSnapshot
from tests.api.calls import a_caller
from tests.cluster.rows import a_model_row, a_ready_replica
from workers import dispatch
from workers.tasks import reconcile


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each plan that is made: whether a transaction was open around it."""
    made: list[bool] = []
    statuses = cluster.statuses

    def counted(*args: Any) -> Any:
        made.append(connection.in_atomic_block)
        return statuses(*args)

    monkeypatch.setattr(cluster, "statuses", counted)
    return made


@pytest.mark.django_db(transaction=True)
def test_nothing_is_planned_while_a_lock_is_held(plans: list[bool]) -> None:
    a_model_row()
    services.publish()
    services.publish()
    assert plans == [False, False]


@pytest.mark.django_db(transaction=True)
def test_a_look_without_news_is_planned_once_and_one_with_news_twice(plans: list[bool]) -> None:
    a_ready_replica()
    reconcile.look()
    plans.clear()
    reconcile.look()
    assert plans == [False]
    Model.objects.update(enabled=False)
    reconcile.look()  # once to decide, once for what it leaves, which is told after the commit
    assert plans == [False] * 3


@pytest.mark.django_db(transaction=True)
def test_a_new_model_is_planned_once_though_it_brings_a_profile(
    plans: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[str] = []
    monkeypatch.setattr(dispatch, "reconcile_now", lambda **options: woken.append("reconcile"))
    caller = a_caller()
    plans.clear()
    woken.clear()
    dispatch._looks.forget()
    answer = caller("POST", "models", {"name": "new", "weights_path": "/srv/new.gguf", "profile": {"memory": 1 << 30}})
    assert answer.status == 201, answer
    assert plans == [False]
    assert woken == ["reconcile"]
    assert "new" in (selectors.published() or pytest.fail("nothing published")).payload


@pytest.mark.django_db(transaction=True)
def test_a_change_that_is_rolled_back_is_told_nobody_and_hides_no_other(
    plans: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "reconcile_now", lambda **options: None)
    caller = a_caller()
    plans.clear()
    body = {"name": "new", "weights_path": "/srv/new.gguf", "profile": {"memory": 1 << 30}}
    with transaction.atomic():
        assert caller("POST", "models", body).status == 201
        transaction.set_rollback(True)
    assert plans == []
    assert caller("POST", "models", body).status == 201
    assert plans == [False]


@pytest.mark.django_db(transaction=True)
def test_whoever_saw_older_rows_never_has_the_higher_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers that stop at random moments, while a model's name counts on: as the counter rises, so does the name."""
    model = a_model_row("m0000")
    dice = random.Random(4)
    told: list[tuple[int, str]] = []
    errors: list[BaseException] = []
    compiled, lock = selectors.compile_snapshot, threading.Lock()

    def slowly(**given: Any) -> Any:
        snapshot = compiled(**given)
        threading.Event().wait(dice.random() * 0.02)
        return snapshot

    monkeypatch.setattr(selectors, "compile_snapshot", slowly)
    over = threading.Event()

    def publisher() -> None:
        try:
            while not over.is_set():
                services.publish()
                row = PublishedSnapshot.objects.get()
                with lock:
                    told.append((row.counter, row.payload.partition('"name":"m')[2][:4]))
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=publisher) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 60):
        with locks.plan_lock():
            Model.objects.filter(id=model.id).update(name=f"m{number:04}")
        threading.Event().wait(0.01)
    over.set()
    for thread in threads:
        thread.join()
    assert errors == []
    services.publish()
    row = PublishedSnapshot.objects.get()
    told.append((row.counter, row.payload.partition('"name":"m')[2][:4]))
    assert len({counter for counter, _ in told}) > 5
    assert [name for _, name in sorted(told)] == sorted(name for _, name in told)
    assert max(told)[1] == "0059"
