"""cluster.services.demands: orders of requests as rows, and what gateways are told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from catalog.models import Model
from cluster import selectors, signals
from cluster.domain.demand import AGAIN, USED_EVERY
from cluster.models import ModelStanding, Replica
from cluster.services import apply, demands
from cluster.wire import Demand, DemandAnswer
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.units import GIB
from tests.cluster.rows import Machine, a_model_row, report

pytestmark = pytest.mark.django_db


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.heartbeat()
    return machine


@pytest.fixture
def woken() -> Iterator[list[str]]:
    """Models for which the reconciler was woken."""
    found: list[str] = []

    def note(*, model_id: str, **kwargs: Any) -> None:
        found.append(model_id)

    signals.model_asked.connect(note, weak=False)
    yield found
    signals.model_asked.disconnect(note)


def asleep(name: str = "small", **fields: Any) -> Model:
    return a_model_row(name, replicas=0, max_replicas=1, **fields)


def ask(name: str = "small", attempt: float | None = None, *, now: float | None = None) -> DemandAnswer:
    now = selectors.database_now() if now is None else now
    return demands.asked(Demand(model=name, attempt=attempt), now=now)


def look(*, now: float | None = None) -> None:
    """One look of the reconciler, as the worker makes it."""
    now = selectors.database_now() if now is None else now
    world = selectors.world(now)
    plan, _ = selectors.statuses(world, now)
    apply.commit(plan)
    demands.looked(world=world, plan=plan, now=now)


def test_the_first_request_for_a_model_at_rest_wakes_it(
    machine: Machine, woken: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    model = asleep()
    look()
    assert not Replica.objects.exists()
    with django_capture_on_commit_callbacks(execute=True):
        answer = ask()
    assert answer.state == "waiting"
    assert woken == [model.pk]
    standing = ModelStanding.objects.get()
    assert standing.asked_at == standing.used_at == standing.attempt_at == answer.attempt
    assert standing.version == 1
    look()
    row = Replica.objects.get()
    begun = ask(attempt=answer.attempt)
    assert (begun.state, begun.message) == ("starting", "its node is about to start a replica")
    machine.heartbeat(report(row, "starting"))
    later = ask(attempt=answer.attempt, now=selectors.database_now() + 40)
    assert later.state == "starting"
    assert later.message in {f"a replica has been loading its weights for {seconds} s" for seconds in range(40, 160)}
    machine.heartbeat(report(row, "ready", port=1))
    assert ask(attempt=answer.attempt).state == "ready"


def test_a_thousand_requests_make_one_attempt(
    machine: Machine, woken: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    asleep()
    with django_capture_on_commit_callbacks(execute=True):
        attempts = {ask().attempt for _ in range(20)}
        look()
        attempts |= {ask().attempt for _ in range(20)}
    assert len(attempts) == 1
    assert len(woken) == 1


def test_what_fits_nowhere_is_answered_by_the_next_look_with_why(machine: Machine) -> None:
    asleep(profile={"memory": 64 * GIB})
    first = ask()
    assert first.state == "waiting"
    look()
    told = ask(attempt=first.attempt)
    assert told.state == "nowhere"
    assert told.code
    assert "64" in told.message


def test_a_later_request_for_what_had_no_place_makes_one_fresh_attempt(
    machine: Machine, woken: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    asleep(profile={"memory": 64 * GIB})
    first = ask()
    look(now=first.attempt)  # however slow the machine is, before the next attempt
    soon = ask(now=first.attempt + AGAIN / 2)
    assert (soon.state, soon.attempt) == ("nowhere", first.attempt)
    with django_capture_on_commit_callbacks(execute=True):
        second = ask(now=first.attempt + AGAIN)
    assert (second.state, second.attempt) == ("waiting", first.attempt + AGAIN)
    assert len(woken) == 1
    ModelStanding.objects.update(why_at=second.attempt)
    assert ask(attempt=second.attempt).state == "nowhere"
    assert ask(attempt=first.attempt).state == "nowhere"


@pytest.mark.django_db(transaction=True)
def test_two_controllers_that_are_asked_at_once_make_one_attempt(woken: list[str]) -> None:
    machine = Machine()
    machine.heartbeat()
    asleep()
    gate = threading.Barrier(4)
    answers: list[DemandAnswer] = []

    def gateway(number: int) -> None:
        try:
            gate.wait()
            answers.append(ask(now=1000.0 + number))
        finally:
            connection.close()

    threads = [threading.Thread(target=gateway, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert len({answer.attempt for answer in answers}) == 1
    assert len(woken) == 1
    assert ModelStanding.objects.get().version == 4


def test_a_start_that_failed_is_told_at_once(machine: Machine) -> None:
    asleep()
    first = ask()
    look()
    row = Replica.objects.get()
    machine.heartbeat(report(row, "backoff", code="engine_exited", message="invalid magic"))
    told = ask(attempt=first.attempt)
    assert (told.state, told.code) == ("failed", "engine_exited")
    assert "invalid magic" in told.message


def test_waiting_requests_count_as_use_and_stop_to_once_they_are_gone(machine: Machine) -> None:
    asleep()
    now = selectors.database_now()
    attempt = ask(now=now).attempt
    ask(attempt=attempt, now=now + USED_EVERY - 1)
    assert ModelStanding.objects.get().used_at == now
    ask(attempt=attempt, now=now + USED_EVERY)
    assert ModelStanding.objects.get().used_at == now + USED_EVERY


def test_a_parked_model_is_not_woken(machine: Machine) -> None:
    model = asleep()
    ModelStanding.objects.create(
        model=model, failures=5, parked_at=1.0, parked_digest="d", parked_message="broken file"
    )
    told = ask()
    assert (told.state, told.code) == ("parked", "model_parked")
    assert "broken file" in told.message
    assert ModelStanding.objects.get().asked_at is None


def test_an_order_for_what_cannot_be_asked_for_writes_nothing(machine: Machine) -> None:
    a_model_row("off", replicas=0, max_replicas=1, enabled=False)
    assert ask("off").code == "model_disabled"
    assert not ModelStanding.objects.exists()
    with pytest.raises(Refused) as error:
        ask("nobody")
    assert error.value.code == "model_not_found"


def test_a_model_that_came_to_rest_just_then_is_asked_for_again(machine: Machine) -> None:
    asleep()
    first = ask()
    ModelStanding.objects.update(asked_at=None)
    again = ask(attempt=first.attempt, now=first.attempt + 1)  # SQLite's clock counts milliseconds
    assert again.attempt > first.attempt
    assert ModelStanding.objects.get().asked_at == again.attempt


def test_a_model_was_last_used_when_its_replica_was(machine: Machine) -> None:
    model = asleep()
    now = selectors.database_now()
    ask(now=now)
    look()
    row = Replica.objects.get()
    machine.heartbeat(report(row, "ready", port=1, last_used_at=now + 50))
    view = selectors.world(now).model(model.pk)
    assert view is not None
    assert view.standing.used_at == pytest.approx(now + 50, abs=1e-3)


def test_a_request_for_one_that_always_runs_and_has_no_place_is_a_fresh_attempt_and_answered_by_its_look(
    machine: Machine, woken: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    a_model_row("large", replicas=1, profile={"memory": 64 * GIB})
    look()
    with django_capture_on_commit_callbacks(execute=True):
        first = ask("large")
    assert (first.state, len(woken)) == ("waiting", 1)
    look(now=first.attempt)
    told = ask("large", attempt=first.attempt)
    assert told.state == "nowhere"
    assert told.code
    assert "64" in told.message
    with django_capture_on_commit_callbacks(execute=True):
        second = ask("large", now=first.attempt + AGAIN)
    assert (second.state, second.attempt, len(woken)) == ("waiting", first.attempt + AGAIN, 2)


def test_a_request_for_one_that_always_runs_finds_the_room_that_came_free(machine: Machine) -> None:
    model = a_model_row("large", replicas=1, profile={"memory": 6 * GIB})
    other = a_model_row("other", replicas=1, profile={"memory": 6 * GIB})
    Model.objects.filter(pk=model.pk).update(priority_class="opportunistic")
    look()
    first = ask("large")
    look(now=first.attempt)
    assert ask("large", attempt=first.attempt).state == "nowhere"
    Model.objects.filter(pk=other.pk).update(enabled=False)
    look()
    machine.heartbeat()
    second = ask("large", now=first.attempt + AGAIN)
    look()
    assert ask("large", attempt=second.attempt).state == "starting"
    row = Replica.objects.get(model=model)
    machine.heartbeat(report(row, "ready", port=1))
    assert ask("large", attempt=second.attempt).state == "ready"


def test_looks_at_a_model_for_which_nobody_asked_write_nothing(machine: Machine) -> None:
    a_model_row("large", replicas=1, profile={"memory": 64 * GIB})
    look()
    assert not ModelStanding.objects.exclude(why_at=None).exists()
