"""Whatever is changed of a model that has room enough, and however its nodes take their time: it serves as it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cluster.domain import invariants
from cluster.domain.plan import Remember
from cluster.domain.reconcile import reconcile
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, ReplicaView, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import READY, a_model, a_node, a_replica, applied

T = 1_000_000.0
NODES = ("a", "b", "c", "d")
S = ReplicaState
STEPS = {S.PENDING: S.STARTING, S.STARTING: READY}


def ready(world: World) -> list[ReplicaView]:
    return [item for item in world.replicas if item.run and world.state(item) is READY]


def changed(world: World, pick: int) -> World:
    """Another argument of its profile."""
    return with_model(world, lambda model: replace(model, profiles=(replace(model.profiles[0], digest=f"d{pick}"),)))


def spoiled(world: World, pick: int) -> World:
    """An argument with which nothing starts: for good, or again and again."""
    name = ("refused", "failing")[pick % 2] + str(pick)
    return with_model(world, lambda model: replace(model, profiles=(replace(model.profiles[0], digest=name),)))


def restarted(world: World, pick: int) -> World:
    names = tuple(item.name_now for item in world.replicas if item.run)
    return with_model(world, lambda model: replace(model, standing=replace(model.standing, restarting=names)))


def drained(world: World, pick: int) -> World:
    """One node, and no other: there is always room elsewhere."""
    nodes = tuple(replace(node, maintenance="drained" if n == pick % 4 else "") for n, node in enumerate(world.nodes))
    return replace(world, nodes=nodes)


def nothing(world: World, pick: int) -> World:
    return world


def with_model(world: World, change: Callable[[ModelView], ModelView]) -> World:
    return replace(world, models=(change(world.models[0]),))


def works(replica: ReplicaView) -> ReplicaView:
    """A replica a step further."""
    if not replica.run:
        return replace(replica, state=S.STOPPED)
    after = STEPS.get(replica.state, replica.state)
    if after is READY and replica.state is not READY and replica.digest.startswith("refused"):
        return replace(replica, state=S.FAILED, attempt=1, code="engine_args_refused")
    if replica.state in (S.STARTING, S.BACKOFF) and replica.digest.startswith("failing"):
        return replace(replica, state=S.BACKOFF, attempt=replica.attempt + 1, code="engine_start_failed")
    return replace(replica, state=after)


def some_work(world: World, slow: int) -> World:
    """Each replica goes a step further, or not yet; `slow`: a bit for each."""

    def moved(number: int, item: ReplicaView) -> ReplicaView:
        if slow >> number % 16 & 1:
            return item
        return works(item)

    return replace(world, replicas=tuple(moved(n, item) for n, item in enumerate(world.replicas)))


happenings = st.lists(
    st.tuples(
        st.sampled_from([nothing, nothing, changed, spoiled, restarted, drained]),
        st.integers(0, 99),
        st.integers(0, 65535),
    ),
    max_size=12,
)


@given(count=st.integers(1, 4), happenings=happenings)
def test_f19_no_change_costs_a_ready_replica_where_there_is_room_for_one_more(
    count: int, happenings: list[tuple[Callable[[World, int], World], int, int]]
) -> None:
    model, nodes = a_model(base=count), tuple(a_node(name, memory=16 * GIB) for name in NODES)
    replicas = tuple(a_replica(model, nodes[slot % 4], slot=slot) for slot in range(count))
    world, now = World(models=(model,), nodes=nodes, replicas=replicas), T
    for change, pick, slow in happenings:
        world = change(world, pick)
        for _ in range(2):
            world, now = applied(world, reconcile(world, now)), now + 2
            assert len(ready(world)) >= count
            assert sum(item.run for item in world.replicas) <= count + 1 + len(NODES)
            assert invariants.check(world) == ()
            world = some_work(world, slow)
    for _ in range(12 * (count + 1)):
        plan = reconcile(world, now)
        before, world, now = world, some_work(applied(world, plan), 0), now + 2
        assert len(ready(world)) >= count
        if not plan.ops and world == before:
            break
    digest = world.models[0].profiles[0].digest
    if digest.startswith(("refused", "failing")):  # those that serve stay, and the model says what is amiss
        assert {wait.model_id for wait in reconcile(world, now).waits} == {model.id}
        assert len([op for op in reconcile(world, now).ops if not isinstance(op, Remember)]) == 0
        return
    assert reconcile(world, now).ops == ()
    assert [item.digest for item in world.replicas] == [digest] * count
    assert not any(node.drained for node in world.nodes for item in world.replicas if item.node_id == node.id)
    assert world.models[0].standing.restarting == ()
