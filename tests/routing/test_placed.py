"""What the snapshot says about replicas: where they are and how they stand, lost ones included; why a model is short."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from cluster.domain.states import NodeState
from cluster.models import ClusterIdentity
from cluster.selectors import database_now, world
from cluster.services import maintenance
from routing.domain.snapshot import ModelEntry, Placed
from routing.selectors import compile_snapshot
from tests.cluster.rows import Machine, a_model_row, a_ready_replica, age, report, tick

pytestmark = pytest.mark.django_db


def the_model() -> ModelEntry:
    return compile_snapshot(now=database_now()).models[0]


def goes_off(machine: Machine) -> None:
    """Silent for ten minutes, and controllers have listened all the while."""
    now = timezone.now()
    ClusterIdentity.objects.update(listening_since=now - timedelta(hours=1), listening_at=now)
    age(machine.node, 600)
    assert [node.state for node in world().nodes if node.id == machine.node.id] == [NodeState.OFFLINE]


def test_a_ready_replica_stands_with_its_node_and_slots() -> None:
    machine, row = a_ready_replica()
    machine.heartbeat(report(row, "ready", slots=3))
    assert the_model().placed == (Placed(replica_id=row.id, node_id=machine.node.id, state="ready", slots=3),)
    assert the_model().replicas == (row.id,)


def test_a_replica_that_nobody_reported_yet_is_pending() -> None:
    a_model_row()
    Machine().heartbeat()
    tick()
    assert [(item.state, item.slots) for item in the_model().placed] == [("pending", 1)]


def test_a_replica_of_a_node_that_is_offline_is_lost() -> None:
    machine, _ = a_ready_replica()
    goes_off(machine)
    assert [item.state for item in the_model().placed] == ["lost"]
    assert the_model().code == "node_offline"


def test_f69_the_model_of_a_node_in_maintenance_that_is_switched_off_says_why() -> None:
    machine, _ = a_ready_replica()
    maintenance.drain(actor="user:ann", node_id=machine.node.id, why="new disk")
    assert the_model().code == ""  # nothing to replace it: it serves on
    goes_off(machine)
    assert the_model().code == "node_offline"
    assert "is offline and drained for maintenance (new disk)" in the_model().reason
