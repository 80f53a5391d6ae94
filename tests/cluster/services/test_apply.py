"""cluster.services.apply: the sole committer. Stale plans, two planners, events."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from catalog.models import Event, Model, Profile
from cluster import selectors
from cluster.domain import invariants
from cluster.domain.plan import Plan, Remember, Remove, Start, Stop
from cluster.domain.reconcile import reconcile
from cluster.models import Node, Replica
from cluster.services import apply
from llmgw_site.lib.units import GIB
from tests.cluster.rows import HARDWARE, Machine, a_model_row, a_ready_replica, report, tick


def planned() -> Plan:
    now = selectors.database_now()
    return reconcile(selectors.world(now), now)


@pytest.fixture
def ready(db: None) -> tuple[Machine, Replica]:
    return a_ready_replica()


@pytest.fixture
def machine(db: None) -> Machine:
    machine = Machine()
    machine.heartbeat()
    return machine


def test_a_start_becomes_a_row_that_tells_the_node_everything(machine: Machine) -> None:
    model = a_model_row(profile={"context": 512, "slots": 3, "args": ["-b", "64"], "env": {"A": "1"}, "memory": 1000})
    applied = tick()
    row = Replica.objects.get()
    assert [type(op) for op in applied.done] == [Start]
    assert (row.model_id, row.node_id, row.slot, row.generation, row.state) == (
        model.id,
        machine.node.id,
        0,
        1,
        "pending",
    )
    (wanted,) = machine.heartbeat()
    assert (wanted.replica_id, wanted.run, wanted.serve.context, wanted.serve.slots) == (row.id, True, 512, 3)
    assert (wanted.serve.args, wanted.serve.env) == (("-b", "64"), {"A": "1"})
    event = Event.objects.get(kind="replica_placed")
    assert event.subject_id == row.id
    assert "room" in event.why
    assert event.actor == "reconciler"


def test_a_node_whose_memory_shrank_holds_up_no_decision(machine: Machine) -> None:
    """More is promised there than it can give, whatever anybody decides: what gives some back goes through all the same."""
    for name in ("one", "two", "three"):
        a_model_row(name, profile={"memory": 2 * GIB})
    tick()
    first, *others = Replica.objects.order_by("id")
    small = replace(HARDWARE, memory_total=2 * GIB, memory_available=GIB)
    machine.heartbeat(report(first, "failed"), *(report(row, "ready") for row in others), hardware=small)
    Model.objects.filter(id=first.model_id).update(replicas=0)
    Machine("elsewhere").heartbeat()
    a_model_row("four")
    assert {type(op) for op in tick().done} - {Remember} == {Stop, Start}


def test_a_plan_that_is_committed_twice_places_once(machine: Machine) -> None:
    a_model_row()
    plan = planned()
    apply.commit(plan)
    again = apply.commit(plan)
    assert Replica.objects.count() == 1
    assert [why for _, why in again.refused] == ["the model has enough replicas"]


@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [
        (lambda: Model.objects.update(enabled=False), "the model is not wanted any more"),
        (lambda: Model.objects.all().delete(), "the model is not wanted any more"),
        (lambda: Profile.objects.update(context=77), "the profile changed meanwhile"),
        (lambda: Profile.objects.update(enabled=False), "the profile changed meanwhile"),
        (lambda: Node.objects.update(removed_at="2026-01-01T00:00:00Z"), "the node was removed"),
        (lambda: Node.objects.update(hardware={"cores": 4, "memory_total": 0}), "node"),
    ],
)
def test_a_stale_start_is_refused_and_nothing_is_written(machine: Machine, meanwhile: Any, why: str) -> None:
    a_model_row()
    plan = planned()
    meanwhile()
    applied = apply.commit(plan)
    assert applied.done == ()
    assert applied.refused[0][1].startswith(why)
    assert not Replica.objects.exists()
    assert not Event.objects.filter(kind="replica_placed").exists()


def test_a_replica_that_may_still_run_is_not_removed_by_a_stale_plan(ready: tuple[Machine, Replica]) -> None:
    row = ready[1]
    Replica.objects.update(run=False, state="stopped")
    plan = planned()
    assert isinstance(plan.ops[0], Remove)
    Replica.objects.update(state="draining")
    assert "may still run" in apply.commit(plan).refused[0][1]
    assert Replica.objects.filter(id=row.id).exists()


def test_f59_a_model_that_is_deleted_leaves_nothing_behind(ready: tuple[Machine, Replica]) -> None:
    machine, row = ready
    Model.objects.all().delete()
    assert machine.heartbeat(report(row, "ready")) == []  # not listed: the node stops it
    assert tick().done == ()
    assert invariants.check(selectors.world()) == ()


def test_f19_a_changed_argument_reaches_the_engine_as_a_new_replica_or_generation(
    ready: tuple[Machine, Replica],
) -> None:
    machine, old = ready
    Profile.objects.update(args=["-b", "64"])
    tick()
    new = Replica.objects.exclude(id=old.id).get()
    assert new.serve["args"] == ["-b", "64"]
    machine.heartbeat(report(old, "ready"), report(new, "ready"))
    tick()
    assert not Replica.objects.get(id=old.id).run
    machine.heartbeat(report(old, "stopped"), report(new, "ready"))
    tick()
    assert list(Replica.objects.all()) == [new]


def test_f19_without_room_for_two_the_generation_rises(ready: tuple[Machine, Replica]) -> None:
    _, old = ready
    Node.objects.update(hardware={"cores": 4, "memory_total": 1_500_000_000, "memory_available": 400_000_000})
    Profile.objects.update(args=["-b", "64"])
    tick()
    row = Replica.objects.get()
    assert (row.id, row.generation, row.state) == (old.id, 2, "pending")
    assert Event.objects.filter(kind="replica_renewed", subject_id=old.id).exists()


def test_a_better_estimate_of_memory_restarts_nobody(ready: tuple[Machine, Replica]) -> None:
    Profile.objects.update(memory=123_456)
    assert planned().ops == ()


def test_the_table_itself_refuses_two_live_replicas_in_a_slot(ready: tuple[Machine, Replica]) -> None:
    row = ready[1]
    with pytest.raises(IntegrityError), transaction.atomic():
        Replica.objects.create(model=row.model, node=row.node, slot=row.slot, serve=row.serve, digest=row.digest)


def test_stopping_leaves_the_reason_with_the_replica(ready: tuple[Machine, Replica]) -> None:
    Model.objects.update(enabled=False)
    applied = tick()
    assert [type(op) for op in applied.done] == [Stop]
    row = Replica.objects.get()
    assert (row.run, row.why) == (False, "the model is disabled")


def test_a_tick_costs_the_same_queries_however_large_the_cluster_is(
    machine: Machine, django_assert_num_queries: Any
) -> None:
    a_model_row("one", profile={"memory": 1000})
    tick()
    with django_assert_num_queries(11):
        selectors.statuses(selectors.world(1.0), 1.0)
        selectors.database_now()
    for n in range(10):
        a_model_row(f"m{n}", profile={"memory": 1000})
        Machine().heartbeat()
    tick()
    with django_assert_num_queries(11):
        selectors.statuses(selectors.world(1.0), 1.0)
        selectors.database_now()


@pytest.mark.django_db(transaction=True)
def test_two_planners_at_once_place_once() -> None:
    machine = Machine()
    machine.heartbeat()
    a_model_row()
    plan = planned()
    gate = threading.Barrier(4)
    results: list[apply.Applied] = []

    def planner() -> None:
        try:
            gate.wait()
            results.append(apply.commit(plan))
        finally:
            connection.close()

    threads = [threading.Thread(target=planner) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert sum(len(item.done) for item in results) == 1
    assert Replica.objects.count() == 1
