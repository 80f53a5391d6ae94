"""Several controllers: two reconcilers at once, each with its own picture of the moment, do no harm."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.db import connection

from catalog.models import Model
from catalog.services import served
from cluster import selectors
from cluster.domain import invariants
from cluster.domain.plan import SURGE, Plan, Stop, running
from cluster.domain.reconcile import reconcile
from cluster.domain.states import ReplicaState
from cluster.models import ModelStanding, Replica
from cluster.services import apply, maintenance
from tests.cluster.rows import ACTOR, Machine, a_model_row, report, tick
from tests.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
WORKERS = 3


def ticks_at_once() -> None:
    """One tick on each of several workers, all having read before any writes where the scheduler lets them."""
    gate = threading.Barrier(WORKERS)
    errors: list[BaseException] = []

    def worker() -> None:
        try:
            gate.wait()
            tick()
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=worker) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def nodes_work(machines: list[Machine]) -> None:
    """Each node reports its replicas a step further: what is wanted loads and gets ready, what is not stops."""
    order = {"pending": "starting", "starting": "ready"}
    for machine in machines:
        rows = Replica.objects.filter(node_id=machine.node.id)
        machine.heartbeat(*(report(r, order.get(r.state, r.state) if r.run else "stopped") for r in rows))


def test_two_reconcilers_at_once_place_move_and_stop_as_one_would() -> None:
    machines = [Machine(f"n{number}") for number in range(4)]
    for machine in machines:
        machine.heartbeat()
    for name, wanted in (("one", 1), ("two", 2), ("three", 3)):
        a_model_row(name, replicas=wanted)
    happenings: dict[int, Callable[[], object]] = {
        4: lambda: maintenance.drain(actor=ACTOR, node_id=machines[0].node.id, why="disk"),
        9: lambda: Model.objects.filter(name="three").update(replicas=1),
        12: lambda: Model.objects.filter(name="one").update(replicas=3),
        15: lambda: maintenance.drain(actor=ACTOR, node_id=machines[1].node.id, why="fan"),
        16: lambda: maintenance.uncordon(actor=ACTOR, node_id=machines[0].node.id),
    }
    for step in range(28):
        happenings.get(step, lambda: None)()
        ticks_at_once()
        world = selectors.world()
        assert invariants.check(world) == ()
        for model in world.models:
            assert len(running(world, model.id)) <= model.target + SURGE + (step in range(9, 12)) * 2
        nodes_work(machines)
    world = selectors.world()
    ready = {m.name: sum(r.run and r.state is ReplicaState.READY for r in world.of_model(m.id)) for m in world.models}
    assert ready == {"one": 3, "two": 2, "three": 1}
    assert len(world.replicas) == 6
    assert machines[1].node.id not in {r.node_id for r in world.replicas}


def test_two_that_saw_different_moments_never_stop_two_for_one() -> None:
    machines = [Machine(f"n{number}") for number in range(3)]
    for machine in machines:
        machine.heartbeat()
    a_model_row(replicas=2)
    for _ in range(3):
        tick()
        nodes_work(machines)
    Model.objects.update(replicas=1)
    a, b = Replica.objects.order_by("id")
    earlier = Plan(ops=(Stop(replica_id=a.id, reason="it looked worse a moment ago"),))
    now = selectors.database_now()
    later = reconcile(selectors.world(now), now)
    assert [op.replica_id for op in later.ops if isinstance(op, Stop)] == [b.id]
    assert apply.commit(earlier).refused == ()
    assert [why for _, why in apply.commit(later).refused] == ["the model has no replica too many any more"]
    assert Replica.objects.filter(run=True).count() == 1


def somebody_waits_for_me() -> bool:
    """Whether another connection waits for a lock that this one holds."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        )
        return bool(cursor.fetchone()[0])


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="only PostgreSQL locks single rows")
def test_a_model_that_is_deleted_while_a_plan_about_it_is_written_makes_neither_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = a_model_row("small")
    machine = Machine()
    machine.heartbeat()
    ModelStanding.objects.create(model=model)
    errors: list[BaseException] = []
    begun = threading.Event()

    def delete() -> None:
        begun.set()
        try:
            served.remove(actor=ACTOR, model=model)
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    deleting = threading.Thread(target=delete)
    start = apply._start

    def while_it_is_deleted(*args: object) -> None:
        """The plan holds the standing here, and is about to place a replica of the model."""
        apply._written(model.id, grown=1)
        deleting.start()
        assert begun.wait(30)
        wait_for(somebody_waits_for_me, seconds=15, what="the other to wait for a lock")  # which takes 20 s at most
        start(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(apply, "_start", while_it_is_deleted)
    assert len(tick().done) == 1
    deleting.join(60)
    assert errors == []
    assert not Model.objects.exists()
