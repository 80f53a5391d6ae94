"""Room that is taken for another model, from rows to what the nodes are told and back."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import F

from catalog.models import Event, Model
from cluster import selectors
from cluster.domain.plan import Keep, Release, Stop
from cluster.domain.reconcile import reconcile
from cluster.models import ModelStanding, Replica
from cluster.services import apply
from llmgw_site.lib.units import GIB
from tests.cluster.rows import HARDWARE, Machine, a_model_row, report, tick

BIG = {"memory": (HARDWARE.memory_total - GIB) // 4 * 3}
"""So much of the machine that no second one fits beside it."""


@pytest.fixture
def machine(db: None) -> Machine:
    machine = Machine()
    machine.heartbeat()
    return machine


@pytest.fixture
def taken(machine: Machine) -> tuple[Machine, Replica, Model]:
    """A ready replica of an opportunistic model, and a critical one that has just come and needs its room."""
    a_model_row("low", profile=BIG, priority_class="opportunistic")
    tick()
    row = Replica.objects.get()
    machine.heartbeat(report(row, "ready"))
    return machine, row, a_model_row("high", profile=BIG, priority_class="critical")


def test_the_victim_has_its_grace_and_the_room_is_kept(taken: tuple[Machine, Replica, Model]) -> None:
    machine, row, model = taken
    done = tick().done
    assert [type(op) for op in done] == [Stop, Keep]
    row.refresh_from_db()
    assert (row.run, row.grace) == (False, 30.0)
    (wanted,) = machine.heartbeat(report(row, "ready"))
    assert (wanted.run, wanted.grace) == (False, 30.0)
    standing = ModelStanding.objects.get(model=model)
    assert standing.claim is not None
    assert standing.claim_until > selectors.database_now() + 300
    event = Event.objects.get(kind="replica_preempted")
    assert "gives way to high" in event.message
    assert "opportunistic" in event.why
    assert "critical" in event.why


def test_nothing_more_is_stopped_while_it_drains_and_then_the_room_is_used(
    taken: tuple[Machine, Replica, Model],
) -> None:
    machine, row, model = taken
    tick()
    machine.heartbeat(report(row, "draining"))
    assert tick().done == ()
    machine.heartbeat(report(row, "stopped"))
    tick()
    now = Replica.objects.get()
    assert (now.model_id, now.run) == (model.id, True)
    assert ModelStanding.objects.get(model=model).claim is None


def test_the_victim_comes_back_when_the_other_leaves(taken: tuple[Machine, Replica, Model]) -> None:
    machine, row, model = taken
    tick()
    machine.heartbeat(report(row, "stopped"))
    tick()
    now = Replica.objects.get()
    machine.heartbeat(report(now, "ready"))
    assert tick().done == ()
    Model.objects.filter(id=model.id).update(replicas=0)
    tick()
    machine.heartbeat(report(now, "stopped"))
    tick()
    assert Replica.objects.get().model.name == "low"


def test_room_is_kept_no_longer_once_the_model_wants_none(taken: tuple[Machine, Replica, Model]) -> None:
    _, _, model = taken
    tick()
    Model.objects.filter(id=model.id).update(replicas=0)
    assert Release in {type(op) for op in tick().done}
    assert ModelStanding.objects.get(model=model).claim is None


@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [
        (lambda row, model: Replica.objects.filter(id=row.id).update(in_flight=2), "in use again"),
        (
            lambda row, model: Model.objects.filter(id=row.model_id).update(priority_class="critical"),
            "may not be taken",
        ),
        (lambda row, model: Model.objects.filter(id=model.id).update(replicas=F("replicas") * 0), "not wanted"),
        (lambda row, model: Replica.objects.filter(id=row.id).update(run=False), "being stopped already"),
    ],
)
def test_what_changed_since_the_plan_protects_the_victim(
    taken: tuple[Machine, Replica, Model], meanwhile: Any, why: str
) -> None:
    _, row, model = taken
    now = selectors.database_now()
    plan = reconcile(selectors.world(now), now)
    meanwhile(row, model)
    applied = apply.commit(plan)
    stops = [text for op, text in applied.refused if isinstance(op, Stop)]
    assert len(stops) == 1
    assert why in stops[0]
    assert not [op for op in applied.done if isinstance(op, Stop)]


def test_two_planners_of_one_moment_take_one_room(taken: tuple[Machine, Replica, Model]) -> None:
    now = selectors.database_now()
    plan = reconcile(selectors.world(now), now)
    apply.commit(plan)
    assert apply.commit(plan).done[:1] in ((), (plan.ops[-1],))  # the same room may be kept once more
    assert Replica.objects.filter(run=False).count() == 1
