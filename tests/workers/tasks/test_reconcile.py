"""workers.tasks.reconcile: the tick, and what it may say about nodes that are silent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from catalog.models import Model
from cluster import selectors
from cluster.domain.states import NodeState
from cluster.domain.types import World
from cluster.models import ClusterIdentity, PublishedMap, Replica
from cluster.services import identity, members
from routing.models import PublishedSnapshot
from tests.cluster.rows import Machine, a_model_row, a_ready_replica, age
from workers import dispatch
from workers.tasks import reconcile

pytestmark = pytest.mark.django_db


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> None:
    """This controller hears nodes, as long as the test lasts."""

    def heard() -> bool:
        identity.listened(now=selectors.database_now())
        return True

    monkeypatch.setattr(reconcile.hearing, "ask", heard)


def states() -> list[NodeState]:
    return [node.state for node in selectors.world().nodes]


def listened(since: float, at: float) -> None:
    """As if controllers had processed heartbeats from so long ago to so long ago."""
    now = timezone.now()
    ClusterIdentity.objects.update(
        listening_since=now - timedelta(seconds=since), listening_at=now - timedelta(seconds=at)
    )


def test_a_look_places_what_is_wanted_and_publishes_it() -> None:
    a_model_row()
    Machine().heartbeat()
    assert len(reconcile.look().done) == 1
    assert Replica.objects.count() == 1
    assert Replica.objects.get().id in PublishedSnapshot.objects.get().payload
    assert reconcile.look().done == ()


def test_a_plan_that_breaks_a_truth_for_one_model_is_done_for_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And what nodes need to know is published all the same."""
    Machine().heartbeat()
    a_model_row("a")
    wrong = a_model_row("b")
    a_model_row("c")
    there = [wrong.pk]

    def broken(before: World, after: World) -> tuple[str, ...]:
        return tuple(f"{item.model_id} is wrong" for item in after.replicas if item.model_id in there)

    monkeypatch.setattr(reconcile.apply.invariants, "broken", broken)
    applied = reconcile.look()
    assert sorted(Replica.objects.values_list("model__name", flat=True)) == ["a", "c"]
    assert [(op.subject, why) for op, why in applied.refused] == [(wrong.pk, f"{wrong.pk} is wrong")]
    assert len(applied.done) == 2
    assert {record.message for record in caplog.records} >= {"plan_broken", "plan_op_broken"}
    payload = PublishedSnapshot.objects.get().payload
    assert all(row.id in payload for row in Replica.objects.all())
    there.clear()
    reconcile.look()
    assert Replica.objects.filter(model=wrong).exists()


def test_a_change_without_a_signal_is_found_by_the_next_look() -> None:
    a_ready_replica()
    Model.objects.update(enabled=False)
    reconcile.look()
    assert not Replica.objects.get().run


def test_f05_after_a_stall_of_the_controllers_no_replica_is_lost(web: None) -> None:
    machine, row = a_ready_replica()
    Machine("spare").heartbeat()
    age(machine.node, 600)
    listened(since=3600, at=599)  # everything stood still for ten minutes
    assert reconcile.look().done == ()
    assert states() == [NodeState.ONLINE, NodeState.ONLINE]
    assert list(Replica.objects.values_list("id", flat=True)) == [row.id]


def test_f05_a_silence_that_was_heard_all_the_while_counts(web: None) -> None:
    machine, row = a_ready_replica()
    spare = Machine("spare")
    spare.heartbeat()
    age(machine.node, 600)
    listened(since=3600, at=1)
    reconcile.look()
    assert states() == [NodeState.OFFLINE, NodeState.ONLINE]
    assert Replica.objects.exclude(id=row.id).get().node_id == spare.node.id


@pytest.mark.usefixtures("web")
def test_while_nodes_are_heard_the_span_of_listening_grows() -> None:
    Machine()
    listened(since=100, at=5)
    reconcile.look()
    own = ClusterIdentity.objects.get()
    assert (own.listening_at - own.listening_since).total_seconds() > 99


def test_while_nothing_answers_nobody_listens() -> None:
    Machine()
    listened(since=100, at=5)
    before = ClusterIdentity.objects.get().listening_at
    reconcile.look()
    assert ClusterIdentity.objects.get().listening_at == before


def test_a_look_publishes_the_map_and_nudges_those_who_have_something_to_do(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    a_model_row()
    machine = Machine()
    machine.heartbeat()
    told: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(
        dispatch.nudges, "send", lambda reason, *, nodes=(), removed=(): told.append((reason, list(nodes)))
    )
    with django_capture_on_commit_callbacks(execute=True):
        reconcile.look()
    assert sorted(told) == [("map", []), ("snapshot", []), ("wanted", [machine.node.id])]
    assert machine.node.id in PublishedMap.objects.get().payload
    told.clear()
    reconcile.look()
    assert told == []


def test_a_node_that_falls_silent_is_stale_then_offline_in_the_map(web: None) -> None:
    machine = Machine()
    machine.heartbeat()
    states_told = []
    for silence in (0, 100, 400):
        age(machine.node, silence)
        listened(since=3600, at=1)
        reconcile.look()
        states_told.append(members.current_map().nodes[0].state)
    assert states_told == ["online", "stale", "offline"]
    machine.heartbeat()
    reconcile.look()
    assert members.current_map().nodes[0].state == "online"


def test_a_busy_database_puts_the_tick_off_and_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    a_model_row()
    Machine().heartbeat()
    asked = []

    def busy(*args: Any) -> None:
        asked.append(args)
        raise OperationalError("database is locked")

    with monkeypatch.context() as patched:
        patched.setattr(reconcile.apply, "commit", busy)
        reconcile.reconcile()
    assert len(asked) == 1
    assert not Replica.objects.exists()
    reconcile.reconcile()
    assert Replica.objects.count() == 1
