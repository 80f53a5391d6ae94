"""Reconcilers at once, with pictures of any age, on connections of their own: no schedule of them does harm."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest
from django.db import IntegrityError, OperationalError

from catalog.models import Model, Profile, Quota
from catalog.services import scopes, served
from cluster import selectors
from cluster.domain import invariants
from cluster.domain.plan import Plan, Renew, Stop
from cluster.domain.reconcile import reconcile
from cluster.domain.states import ReplicaState
from cluster.models import ModelStanding, Node, Replica
from cluster.services import apply, maintenance, quotas
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.units import GIB
from tests.cluster.rows import ACTOR, Machine, a_model_row, a_ready_replica, report, tick
from tests.cluster.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)


def planned() -> Plan:
    now = selectors.database_now()
    return reconcile(selectors.world(now), now)


def test_what_was_decided_of_a_generation_is_not_done_to_the_next() -> None:
    _, row = a_ready_replica()
    Model.objects.update(enabled=False)
    plan = planned()
    assert [type(op) for op in plan.ops] == [Stop]
    assert dict(plan.seen) == {row.id: 1}
    Replica.objects.update(generation=2, state="pending")
    applied = apply.commit(plan)
    assert [why for _, why in applied.refused] == ["the replica has begun anew meanwhile, as generation 2"]
    assert Replica.objects.get().run
    assert [type(op) for op in tick().done] == [Stop]


def test_a_second_renewal_of_one_generation_is_refused() -> None:
    a_ready_replica()
    Profile.objects.update(args=["-b", "64"])
    Node.objects.update(hardware={"cores": 4, "memory_total": 1_500_000_000, "memory_available": 400_000_000})
    plan = planned()
    assert [type(op) for op in plan.ops] == [Renew]
    assert len(apply.commit(plan).done) == 1
    assert len(apply.commit(plan).refused) == 1
    assert Replica.objects.get().generation == 2


class Town:
    """Machines that work, people who change their minds, and reconcilers that are late."""

    NAMES = ("one", "two", "three")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.machines = [Machine(f"n{number}") for number in range(3)]
        for machine in self.machines:
            machine.heartbeat()
        self.owner = scopes.create_organisation(actor=ACTOR, name="acme")
        for name in self.NAMES:
            a_model_row(name, replicas=2, organisation=self.owner, profile={"memory": GIB, "threads": 1})
        self.over = threading.Event()
        self.looked = threading.Condition()
        self.committed = self.late = self.put_off = 0

    def planner(self, number: int) -> Callable[[], None]:
        def work() -> None:
            dice = random.Random(f"{self.seed} planner {number}")
            while not self.over.is_set():
                plan = planned()
                # the pause is what is tested: of one that lost its lease comes a picture of before
                time.sleep(dice.choice((0.0, 0.0, 0.01, 0.05)))
                self.commit(plan)
                with self.looked:
                    self.looked.notify_all()

        return work

    def commit(self, plan: Plan) -> None:
        try:
            applied = apply.commit(plan)
        except (IntegrityError, OperationalError) as error:
            if "deadlock" in str(error):
                raise
            self.put_off += 1  # a row went while a plan about it was written, or SQLite is busy: the next look
            return
        self.committed += len(applied.done)
        self.late += len(applied.refused)

    def after_a_look(self) -> None:
        """Until one planner has ended a look; the other is anywhere in its own. For a while only: they may have failed."""
        with self.looked:
            self.looked.wait(1)

    def work(self) -> None:
        while not self.over.is_set():
            self.machines_work()
            self.after_a_look()

    def machines_work(self) -> None:
        order = {"pending": "starting", "starting": "ready"}
        for machine in self.machines:
            rows = Replica.objects.filter(node_id=machine.node.id)
            machine.heartbeat(*(report(r, order.get(r.state, r.state) if r.run else "stopped") for r in rows))

    def people(self) -> None:
        try:
            self.change_their_minds()
        finally:
            self.over.set()

    def change_their_minds(self) -> None:
        dice = random.Random(f"{self.seed} people")
        for _ in range(40):
            name = dice.choice(self.NAMES)
            model = Model.objects.filter(name=name).first()
            node = dice.choice(self.machines).node.id
            try:
                match dice.randrange(7):
                    case 0 | 1 if model:
                        served.update(actor=ACTOR, model=model, replicas=dice.randrange(4))
                    case 2 if model:
                        Profile.objects.filter(model=model).update(context=512 + dice.randrange(9))
                    case 3 if model:
                        served.remove(actor=ACTOR, model=model)
                    case 4 if not model:
                        a_model_row(name, replicas=2, organisation=self.owner, profile={"memory": GIB, "threads": 1})
                    case 5:
                        change = dice.choice((maintenance.drain, maintenance.uncordon))
                        change(actor=ACTOR, node_id=node, why="")
                    case 6:
                        quotas.put(actor=ACTOR, scope=self.owner, guarantee={}, limit={"cores": dice.randrange(3, 9)})
            except Refused:
                pass
            self.after_a_look()


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.prove), pytest.param(2, marks=pytest.mark.prove)]
)
def test_no_schedule_of_late_reconcilers_does_harm(seed: int) -> None:
    town = Town(seed)
    assert at_once(town.planner(0), town.planner(1), town.work, town.people) == []
    assert town.committed
    assert town.late
    world = selectors.world()
    assert invariants.check(world) == ()
    for machine in town.machines:
        maintenance.uncordon(actor=ACTOR, node_id=machine.node.id, why="")
    Quota.objects.all().delete()
    for _ in range(20):
        tick()
        town.machines_work()
    world = selectors.world()
    assert invariants.check(world) == ()
    for model in world.models:
        mine = [item for item in world.of_model(model.id) if item.run]
        assert len(mine) == model.base, model
        assert {item.state for item in mine} <= {ReplicaState.READY}
        assert {item.digest for item in mine} <= {profile.digest for profile in model.profiles}
    assert {item.model_id for item in world.replicas} <= {model.id for model in world.models}
    assert planned().ops == ()
    assert ModelStanding.objects.exclude(claim=None).count() == 0
