"""cluster.services.standing: restart, retry, scale and target on real tables, and what nodes report of failed starts."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from catalog.models import Event, Model, Profile
from catalog.selectors import events_about
from catalog.services import served
from cluster import selectors
from cluster.models import ModelStanding, Node, Replica
from cluster.services import demands, standing
from cluster.wire import Demand
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.units import GIB
from tests.cluster.rows import ACTOR, Machine, a_model_row, a_ready_replica, report, tick

pytestmark = pytest.mark.django_db
BROKEN = {"code": "engine_start_failed", "message": "The engine ended with exit code 1 before it was ready."}


def fail_until_parked(model: Model, machine: Machine) -> Replica:
    machine.heartbeat()
    tick()
    row = Replica.objects.get(model=model)
    for attempt in range(1, 6):
        machine.heartbeat(report(row, "starting", attempt=attempt, **BROKEN))
        tick()
        assert not ModelStanding.objects.filter(parked_at__isnull=False).exists()
        machine.heartbeat(report(row, "backoff", attempt=attempt, **BROKEN))
        tick()
    row.refresh_from_db()
    return row


def test_a_model_is_parked_after_five_failed_starts_and_retry_brings_it_back() -> None:
    model, machine = a_model_row(), Machine()
    row = fail_until_parked(model, machine)
    assert row.run is False
    parked = ModelStanding.objects.get(model=model)
    assert (parked.failures, parked.parked_code) == (5, "engine_start_failed")
    assert BROKEN["message"].rstrip(".") in parked.parked_message
    machine.heartbeat()  # it has stopped
    tick()
    tick()
    assert not Replica.objects.exists()
    status = selectors.statuses(selectors.world(), selectors.database_now())[1][model.pk]
    assert (status.code, status.short) == ("model_parked", True)
    standing.retry(actor=ACTOR, model=model, why="mended")
    tick()
    again = Replica.objects.get(model=model)
    machine.heartbeat(report(again, "ready", attempt=1, port=1, pid=2))
    tick()
    assert ModelStanding.objects.get(model=model).failures == 0
    kinds = [item.kind for item in events_about(model.pk)]
    assert {"model_decided", "model_retry", "replica_placed", "replica_stopping", "replica_failed"} <= {*kinds}


def test_what_proved_itself_counts_for_nothing_that_came_before() -> None:
    machine, row = a_ready_replica()
    machine.heartbeat(report(row, "ready", attempt=3))
    row.refresh_from_db()
    assert row.proven == 3
    machine.heartbeat(report(row, "backoff", attempt=5, **BROKEN))
    row.refresh_from_db()
    assert selectors.replica_view(row).failures == 2
    machine.heartbeat(report(row, "backoff", attempt=1, **BROKEN))  # its agent was started anew and counts from 1
    row.refresh_from_db()
    assert (row.proven, selectors.replica_view(row).failures) == (0, 1)


def test_retry_of_what_does_not_fail_is_refused() -> None:
    _, row = a_ready_replica()
    with pytest.raises(Refused) as refused:
        standing.retry(actor=ACTOR, model=row.model)
    assert refused.value.code == "nothing_to_retry"


def test_retry_starts_a_failing_replica_anew_at_once() -> None:
    machine, row = a_ready_replica()
    machine.heartbeat(report(row, "backoff", attempt=2, **BROKEN))
    standing.retry(actor=ACTOR, model=row.model)
    tick()
    row.refresh_from_db()
    assert (row.generation, row.state, row.attempt) == (2, "pending", 0)


def test_a_request_right_after_a_retry_waits_for_it_and_hears_nothing_of_what_failed_before() -> None:
    machine, row = a_ready_replica()
    machine.heartbeat(report(row, "backoff", attempt=2, **BROKEN))
    order = Demand(model=row.model.name)
    assert demands.asked(order, now=selectors.database_now()).state == "failed"
    standing.retry(actor=ACTOR, model=row.model)
    assert demands.asked(order, now=selectors.database_now()).state == "waiting"


@pytest.mark.parametrize("order", [standing.restart, standing.retry])
def test_restart_and_retry_read_one_model_under_the_lock_and_not_the_cluster(order: Any, monkeypatch: Any) -> None:
    machine, row = a_ready_replica()
    machine.heartbeat(report(row, "backoff", attempt=2, **BROKEN))
    monkeypatch.setattr(selectors, "world", None)
    order(actor=ACTOR, model=row.model)
    assert ModelStanding.objects.get().restarting == [f"{row.pk}:1"]


def test_a_restart_makes_a_new_one_beside_and_is_forgotten_when_it_is_done() -> None:
    machine, row = a_ready_replica()
    assert standing.restart(actor=ACTOR, model=row.model, why="a new driver") == 1
    tick()
    new = Replica.objects.exclude(pk=row.pk).get()
    machine.heartbeat(report(row, "ready"), report(new, "ready", port=2, pid=3))
    tick()
    row.refresh_from_db()
    assert row.run is False
    assert row.why == "it was to restart, and another replica is ready"
    tick()
    assert ModelStanding.objects.get(model=row.model).restarting == []
    assert Event.objects.filter(kind="model_restart", subject_id=row.model_id, why="a new driver").exists()


def test_a_restart_in_place_makes_a_new_generation() -> None:
    _, row = a_ready_replica()
    standing.restart(actor=ACTOR, model=row.model, in_place=True)
    tick()
    row.refresh_from_db()
    assert (row.generation, row.why) == (2, "it was to restart")
    tick()
    entry = ModelStanding.objects.get(model=row.model)
    assert (entry.restarting, entry.in_place) == ([], False)


def test_nothing_to_restart_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        standing.restart(actor=ACTOR, model=a_model_row())
    assert refused.value.code == "nothing_to_restart"


def test_a_min_that_finds_no_place_is_refused_with_the_reason_and_how_many_do() -> None:
    _, row = a_ready_replica()  # 8 GiB, a replica takes one
    with pytest.raises(Refused) as refused:
        standing.scale(actor=ACTOR, model=row.model, replicas=50)
    assert refused.value.code == "min_not_placeable"
    assert "no suitable node for small" in refused.value.message
    placeable = refused.value.extra["placeable"]
    assert 5 <= placeable <= 8
    row.model.refresh_from_db()
    assert row.model.replicas == 1
    assert standing.scale(actor=ACTOR, model=row.model, replicas=placeable).replicas == placeable


def test_others_who_would_give_way_count_for_a_min_as_far_as_they_go() -> None:
    """8 GiB, of which one model of each class takes one for each replica."""
    _, row = a_ready_replica()
    low = a_model_row("low")
    served.update(actor=ACTOR, model=low, priority_class="opportunistic", replicas=3)
    tick()
    assert Replica.objects.filter(model=low).count() == 3
    served.update(actor=ACTOR, model=row.model, priority_class="critical")
    with pytest.raises(Refused, match="cannot have 50 replicas now") as refused:
        standing.scale(actor=ACTOR, model=row.model, replicas=50)
    placeable = refused.value.extra["placeable"]
    assert 5 <= placeable <= 8  # those of the other model are counted in
    assert standing.scale(actor=ACTOR, model=row.model, replicas=placeable).replicas == placeable


def test_a_min_is_vetted_whoever_sets_it() -> None:
    _, row = a_ready_replica()
    model = row.model
    with pytest.raises(Refused) as refused:
        served.update(actor=ACTOR, model=model, replicas=50, description="larger")
    assert refused.value.code == "min_not_placeable"
    model.refresh_from_db()
    assert (model.replicas, model.description) == (1, "")
    assert served.update(actor=ACTOR, model=model, replicas=2).replicas == 2
    Node.objects.update(maintenance="cordoned")
    served.update(actor=ACTOR, model=model, replicas=2, description="as many as before")
    assert served.update(actor=ACTOR, model=model, replicas=1).replicas == 1
    served.update(actor=ACTOR, model=model, replicas=9, enabled=False)  # nothing of it shall run now


def test_one_that_is_enabled_with_a_larger_min_is_vetted_as_what_it_will_be() -> None:
    model, machine = a_model_row(enabled=False), Machine()
    machine.heartbeat()
    with pytest.raises(Refused, match="cannot have 50 replicas"):
        served.update(actor=ACTOR, model=model, replicas=50, enabled=True)
    assert served.update(actor=ACTOR, model=model, replicas=2, enabled=True).enabled


def test_scale_raises_the_maximum_with_the_minimum_and_sets_rest() -> None:
    _, row = a_ready_replica()
    model = standing.scale(actor=ACTOR, model=row.model, max_replicas=2)
    assert (model.replicas, model.max_replicas) == (1, 2)
    model = standing.scale(actor=ACTOR, model=model, replicas=3, rest_after=60.0)
    assert (model.replicas, model.max_replicas, model.rest_after) == (3, 3, 60.0)
    model = standing.scale(actor=ACTOR, model=model, replicas=0)
    assert (model.replicas, model.max_replicas) == (0, 3)
    assert selectors.world().models[0].on_demand


@pytest.mark.parametrize(("tps", "replicas"), [(1, 1), (100, 1), (100.5, 2), (250, 3)])
def test_a_target_is_met_by_as_many_replicas_as_were_measured_to_give_it(tps: float, replicas: int) -> None:
    _, row = a_ready_replica()
    Profile.objects.update(measured_tps=100.0, threads=2)
    sized = standing.target(actor=ACTOR, model=row.model, tps=tps)
    assert (sized.replicas, sized.each) == (replicas, 100.0)


def test_a_target_without_a_measurement_or_without_room_is_refused() -> None:
    _, row = a_ready_replica()
    with pytest.raises(Refused) as refused:
        standing.target(actor=ACTOR, model=row.model, tps=100)
    assert refused.value.code == "not_measured"
    Profile.objects.update(measured_tps=100.0)
    with pytest.raises(Refused) as refused:
        standing.target(actor=ACTOR, model=row.model, tps=10_000)
    assert refused.value.code == "min_not_placeable"
    assert "10000 tokens/s take 100 replicas of 100 each, and there is a place for " in refused.value.message
    assert refused.value.message.count("there is a place for") == 1
    assert refused.value.message.endswith(refused.value.extra["why"])
    with pytest.raises(Refused, match="2000000 replicas of 100 each, and a model has 10000 at most: aim lower"):
        standing.target(actor=ACTOR, model=row.model, tps=200_000_000)


def test_load_that_nodes_report_adds_a_replica_and_quiet_takes_it_back(settings: Any) -> None:
    machine, row = a_ready_replica()
    standing.scale(actor=ACTOR, model=row.model, max_replicas=2)
    machine.heartbeat(report(row, "ready", in_flight=3, slots=1))
    tick()
    ModelStanding.objects.update(pressed_since=selectors.database_now() - 60)
    tick()
    new = Replica.objects.exclude(pk=row.pk).get()
    assert new.grown
    machine.heartbeat(report(row, "ready", in_flight=0, slots=1), report(new, "ready", slots=1))
    tick()
    ModelStanding.objects.update(quiet_since=selectors.database_now() - 600)
    tick()
    assert list(Replica.objects.filter(run=True)) == [row]
    whys = [item.why for item in events_about(row.model_id) if item.kind == "model_decided"]
    assert whys[0].endswith("one replica less")
    assert whys[1].endswith("one replica more")


def test_weights_that_are_missing_park_nothing() -> None:
    model, machine = a_model_row(), Machine()
    machine.heartbeat()
    tick()
    row = Replica.objects.get(model=model)
    machine.heartbeat(report(row, "backoff", attempt=40, code="weights_missing", message="not there"))
    tick()
    assert not ModelStanding.objects.filter(parked_at__isnull=False).exists()
    assert Profile.objects.get(model=model).memory == GIB


@pytest.mark.django_db(transaction=True)
def test_f63_a_load_of_twenty_minutes_holds_no_lock_and_no_transaction() -> None:
    model, machine = a_model_row(), Machine()
    machine.heartbeat()
    tick()
    row = Replica.objects.get(model=model)
    machine.heartbeat(report(row, "starting"))
    Replica.objects.update(state_since=selectors.from_unix(selectors.database_now() - 1200))
    for _ in range(3):
        assert tick().done == ()
        assert not connection.in_atomic_block
    standing.restart(actor=ACTOR, model=model)  # orders and heartbeats go through meanwhile
    assert machine.heartbeat(report(row, "starting"))[0].run
    assert not connection.in_atomic_block
