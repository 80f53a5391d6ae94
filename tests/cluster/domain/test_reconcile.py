"""Cases of cluster.domain.reconcile, by the numbers in its docstring."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain import invariants
from cluster.domain.plan import Keep, Plan, Remember, Remove, Renew, Start, Stop, running
from cluster.domain.reconcile import reconcile
from cluster.domain.starting import free_slot
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import ModelView, ProfileView, Standing, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import READY, a_model, a_node, a_profile, a_replica, applied, nodes_work, with_replica

NOW = 1_000_000.0


def newer(model: ModelView, **fields: object) -> ModelView:
    """The model with its first profile changed."""
    profile = replace(model.profiles[0], digest=model.profiles[0].digest + "+", **fields)  # type: ignore[arg-type]
    return replace(model, profiles=(profile, *model.profiles[1:]))


def only(plan: Plan) -> object:
    assert len(plan.ops) == 1, plan
    return plan.ops[0]


def test_an_empty_cluster_plans_nothing() -> None:
    assert reconcile(World(), NOW) == Plan()


def test_a_world_as_wanted_plans_nothing() -> None:
    model, node = a_model(), a_node()
    assert reconcile(World(models=(model,), nodes=(node,), replicas=(a_replica(model, node),)), NOW) == Plan()


def test_case_1_a_stopped_replica_that_shall_not_run_is_removed() -> None:
    model, node = a_model(enabled=False), a_node()
    gone = a_replica(model, node, run=False, state=ReplicaState.STOPPED)
    assert isinstance(only(reconcile(World(models=(model,), nodes=(node,), replicas=(gone,)), NOW)), Remove)


@pytest.mark.parametrize("state", sorted(set(ReplicaState) - {ReplicaState.STOPPED}))
def test_case_1_a_replica_of_which_something_may_run_is_never_removed(state: ReplicaState) -> None:
    model, node = a_model(enabled=False), a_node()
    there = a_replica(model, node, run=False, state=state)
    assert reconcile(World(models=(model,), nodes=(node,), replicas=(there,)), NOW).ops == ()


def test_case_1_a_replica_of_a_removed_node_is_removed_and_placed_anew() -> None:
    model, node, removed = a_model(), a_node("one"), a_node("removed")
    plan = reconcile(World(models=(model,), nodes=(node,), replicas=(a_replica(model, removed),)), NOW)
    assert [type(op) for op in plan.ops] == [Remove, Start]


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"enabled": False}, "disabled"), ({"base": 0}, "no replica"), ({"profiles": ()}, "no enabled profile")],
)
def test_case_2_a_model_that_is_not_wanted_is_stopped_with_the_reason(fields: dict[str, object], words: str) -> None:
    before, node = a_model(), a_node()
    replica = a_replica(before, node)
    model = replace(before, **fields)  # type: ignore[arg-type]
    op = only(reconcile(World(models=(model,), nodes=(node,), replicas=(replica,)), NOW))
    assert isinstance(op, Stop)
    assert words in op.reason


def test_case_3_of_a_surplus_the_least_useful_goes_first() -> None:
    model, node = a_model(base=2), a_node(memory=64 * GIB)
    ready, loading, failing = (
        a_replica(model, node, slot=slot, state=state)
        for slot, state in enumerate((READY, ReplicaState.STARTING, ReplicaState.BACKOFF))
    )
    op = only(reconcile(World(models=(model,), nodes=(node,), replicas=(ready, loading, failing)), NOW))
    assert isinstance(op, Stop)
    assert op.replica_id == failing.id


def test_case_3_among_equals_the_newest_goes_first() -> None:
    model, node = a_model(), a_node()
    old, new = (a_replica(model, node, slot=slot) for slot in (0, 1))
    op = only(reconcile(World(models=(model,), nodes=(node,), replicas=(old, new)), NOW))
    assert isinstance(op, Stop)
    assert op.replica_id == new.id


def test_f66_replicas_of_a_node_that_returns_after_they_were_replaced_are_stopped() -> None:
    model, away, here = a_model(), a_node("away", state=NodeState.OFFLINE), a_node("here")
    lost = a_replica(model, away)
    world = World(models=(model,), nodes=(away, here), replicas=(lost,))
    world = nodes_work(nodes_work(applied(world, reconcile(world, NOW))))
    plan = reconcile(world, NOW)
    assert isinstance(only(plan), Stop)
    assert only(plan).replica_id == lost.id  # type: ignore[attr-defined]
    world = replace(applied(world, plan), nodes=(replace(away, state=NodeState.ONLINE), here))
    world = nodes_work(world)
    world = applied(world, reconcile(world, NOW))
    assert [item.node_id for item in world.replicas] == [here.id]


def test_case_3_a_node_that_returns_before_the_other_is_ready_keeps_its_replica() -> None:
    model, away, here = a_model(), a_node("away", state=NodeState.OFFLINE), a_node("here")
    old = a_replica(model, away)
    world = World(models=(model,), nodes=(away, here), replicas=(old,))
    world = applied(world, reconcile(world, NOW))
    world = replace(world, nodes=(replace(away, state=NodeState.ONLINE), here))
    op = only(reconcile(world, NOW))
    assert isinstance(op, Stop)
    assert op.replica_id != old.id


def test_case_4a_a_changed_profile_is_rolled_out_without_a_gap_where_there_is_room() -> None:
    model, node = a_model(), a_node()
    world = World(models=(newer(model),), nodes=(node,), replicas=(a_replica(model, node),))
    kinds = []
    for _ in range(8):
        plan = reconcile(world, NOW)
        kinds += [type(op) for op in plan.ops]
        world = nodes_work(applied(world, plan))
        assert sum(r.state is READY and r.run for r in world.replicas) >= 1
    assert kinds == [Start, Stop, Remove]
    assert [r.digest for r in world.replicas] == [newer(model).profiles[0].digest]


def test_case_4b_without_room_for_two_the_one_is_renewed_in_place_and_says_so() -> None:
    model, node = a_model(), a_node(memory=int(1.7 * GIB))
    replica = a_replica(model, node)
    op = only(reconcile(World(models=(newer(model),), nodes=(node,), replicas=(replica,)), NOW))
    assert isinstance(op, Renew)
    assert (op.replica_id, op.generation) == (replica.id, 2)
    assert "no room for a second" in op.reason


def test_case_4b_one_that_does_not_serve_is_renewed_at_once() -> None:
    model, node = a_model(), a_node()
    failing = a_replica(model, node, state=ReplicaState.BACKOFF)
    op = only(reconcile(World(models=(newer(model),), nodes=(node,), replicas=(failing,)), NOW))
    assert isinstance(op, Renew)


def test_case_4_one_that_failed_is_renewed_in_place_when_its_profile_changes() -> None:
    model, node = a_model(), a_node(memory=int(1.7 * GIB))
    world = World(models=(newer(model),), nodes=(node,), replicas=(a_replica(model, node, state=ReplicaState.FAILED),))
    assert isinstance(only(reconcile(world, NOW)), Renew)
    for _ in range(6):
        world = nodes_work(applied(world, reconcile(world, NOW)))
    assert [(r.state, r.digest) for r in world.replicas] == [(READY, newer(model).profiles[0].digest)]


def test_f19_case_4c_a_change_that_fits_nowhere_leaves_the_old_one_serving_and_says_so() -> None:
    model, node = a_model(), a_node(memory=2 * GIB)
    world = World(models=(newer(model, memory=9 * GIB),), nodes=(node,), replicas=(a_replica(model, node),))
    plan = reconcile(world, NOW)
    assert plan.ops == ()
    assert [wait.code for wait in plan.waits] == ["update_pending"]
    assert "9.0 GiB" in plan.waits[0].message


def test_case_4_of_several_replicas_one_is_replaced_after_the_other() -> None:
    model, node = a_model(base=3), a_node(memory=64 * GIB)
    world = World(
        models=(newer(model),), nodes=(node,), replicas=tuple(a_replica(model, node, slot=n) for n in range(3))
    )
    for _ in range(24):
        world = nodes_work(applied(world, reconcile(world, NOW)))
        assert sum(r.state is READY and r.run for r in world.replicas) >= 3
        assert len(running(world, model.id)) <= 4
    assert {r.digest for r in world.replicas} == {newer(model).profiles[0].digest}
    assert len(world.replicas) == 3


def test_case_4_of_two_definitions_that_are_both_over_the_later_one_serves_until_the_newest_does() -> None:
    """A second adapter is added before the replica with the first has taken the place of the one without."""
    model, node = a_model(), a_node(memory=64 * GIB)
    replicas = tuple(a_replica(model, node, slot=n, id=f"rep_{n}", digest=f"d{n}") for n in range(2))
    plan = reconcile(World(models=(newer(model),), nodes=(node,), replicas=replicas), NOW)
    assert [op.replica_id for op in plan.ops if isinstance(op, Stop)] == ["rep_0"]


def test_case_5_replicas_are_spread_and_each_gets_a_slot_of_its_own() -> None:
    model = a_model(base=3)
    world = World(models=(model,), nodes=tuple(a_node(name) for name in "abc"))
    plan = reconcile(world, NOW)
    starts = [op for op in plan.ops if isinstance(op, Start)]
    assert sorted(op.node_id for op in starts) == ["node_a", "node_b", "node_c"]
    assert sorted(op.slot for op in starts) == [0, 1, 2]


def test_case_5_a_model_that_fits_nowhere_waits_with_each_node_named() -> None:
    model = a_model(profiles=(a_profile(memory=20 * GIB),))
    world = World(models=(model,), nodes=(a_node("one"), a_node("two", memory=32 * GIB, state=NodeState.STALE)))
    plan = reconcile(world, NOW)
    assert plan.ops == ()
    assert plan.waits[0].code == "no_room_now"
    assert "one: it needs 20.0 GiB" in plan.waits[0].message
    assert "two: it is stale" in plan.waits[0].message


def test_case_5_a_model_of_higher_priority_is_placed_first() -> None:
    low = a_model("alpha", profiles=(a_profile("a", priority=1, memory=5 * GIB),))
    high = a_model("zeta", profiles=(a_profile("z", priority=9, memory=5 * GIB),))
    plan = reconcile(World(models=(low, high), nodes=(a_node(),)), NOW)
    assert [op.model_id for op in plan.ops if isinstance(op, Start)] == [high.id]
    assert [wait.model_id for wait in plan.waits] == [low.id]


@pytest.mark.parametrize(
    ("state", "since", "attempt", "code"),
    [
        (ReplicaState.FAILED, 0.0, 1, "weights_missing"),
        (ReplicaState.BACKOFF, 60.0, 1, "weights_missing"),
        (ReplicaState.BACKOFF, 1.0, 2, "weights_missing"),
        (ReplicaState.BACKOFF, 1.0, 1, None),
    ],
)
def test_case_6_an_engine_that_keeps_failing_is_a_visible_reason(
    state: ReplicaState, since: float, attempt: int, code: str | None
) -> None:
    model, node = a_model(), a_node()
    replica = a_replica(
        model,
        node,
        state=state,
        state_since=NOW - since,
        attempt=attempt,
        code="weights_missing",
        message="no file at /m.gguf",
    )
    plan = reconcile(World(models=(model,), nodes=(node,), replicas=(replica,)), NOW)
    assert plan.ops == ()
    assert [wait.code for wait in plan.waits] == ([code] if code else [])
    assert all("no file at /m.gguf" in wait.message and "node one" in wait.message for wait in plan.waits)


def test_f42_a_load_of_minutes_is_no_failure() -> None:
    model, node = a_model(), a_node()
    replica = a_replica(model, node, state=ReplicaState.STARTING, state_since=NOW - 1200)
    assert reconcile(World(models=(model,), nodes=(node,), replicas=(replica,)), NOW) == Plan()


def test_f10_room_that_was_given_back_is_seen_at_the_next_look() -> None:
    big, other = (
        a_model("big", profiles=(a_profile(memory=6 * GIB),)),
        a_model("other", profiles=(a_profile("o", memory=6 * GIB),)),
    )
    node = a_node()
    world = World(models=(replace(big, enabled=False), other), nodes=(node,), replicas=(a_replica(big, node),))
    plan = reconcile(world, NOW)
    assert [type(op) for op in plan.ops] == [Stop, Keep]  # what leaves is kept for the one that waits
    world = nodes_work(applied(world, plan))
    assert [type(op) for op in reconcile(world, NOW).ops] == [Remove, Start]


def test_a_slot_in_the_middle_is_taken_first() -> None:
    model, node = a_model(), a_node()
    assert free_slot([a_replica(model, node, slot=slot) for slot in (0, 2)]) == 1


# --- any world

names = st.sampled_from("abcd")


@st.composite
def worlds(draw: st.DrawFn) -> World:
    nodes = tuple(
        a_node(
            name,
            memory=draw(st.integers(0, 16)) * GIB,
            state=draw(st.sampled_from(NodeState)),
            engines=draw(st.sampled_from([{"llama.cpp": ""}, {}, {"llama.cpp": "no wheel"}])),
        )
        for name in draw(st.sets(names, max_size=4))
    )
    models = []
    for name in draw(st.sets(names, max_size=4)):
        profiles = tuple(
            ProfileView(
                id=f"prof_{name}{n}",
                name=f"{n}",
                engine="llama.cpp",
                digest=f"{name}{n}v{draw(st.integers(1, 2))}",
                memory=draw(st.integers(0, 6)) * GIB,
                threads=draw(st.sampled_from([0, 2, 8])),
                priority=draw(st.integers(0, 2)),
            )
            for n in range(draw(st.integers(0, 2)))
        )
        models.append(a_model(name, profiles=profiles, base=draw(st.integers(0, 3)), enabled=draw(st.booleans())))
    return World(models=tuple(models), nodes=nodes)


changes = st.lists(
    st.tuples(
        st.sampled_from(
            ["work", "lose", "return", "toggle", "scale", "renew", "fail", "free", "maintain", "switch", "pin"]
        ),
        st.integers(0, 99),
    ),
    max_size=12,
)


def changed(world: World, change: str, pick: int) -> World:
    """Something that happens to a cluster."""
    if change == "work":
        return nodes_work(world)
    if change in ("lose", "return", "free") and world.nodes:
        chosen = world.nodes[pick % len(world.nodes)]
        state = NodeState.OFFLINE if change == "lose" else NodeState.ONLINE
        new = (
            replace(chosen, memory_available=chosen.memory_total) if change == "free" else replace(chosen, state=state)
        )
        return replace(world, nodes=tuple(new if node is chosen else node for node in world.nodes))
    if change in ("maintain", "switch") and world.nodes:
        chosen = world.nodes[pick % len(world.nodes)]
        new = replace(chosen, maintenance=("", "cordoned", "drained")[pick % 3])
        if change == "switch":
            new = replace(chosen, modules=frozenset({"inference"} if pick % 2 else {"router"}))
        return replace(world, nodes=tuple(new if node is chosen else node for node in world.nodes))
    if change == "fail" and world.replicas:
        chosen_replica = world.replicas[pick % len(world.replicas)]
        return with_replica(world, chosen_replica.id, state=ReplicaState.FAILED)
    if change in ("toggle", "scale", "renew", "pin") and world.models:
        model = world.models[pick % len(world.models)]
        if change in ("renew", "pin"):
            fields: dict[str, Any] = {"nodes": ("a", "b")[pick % 3 :]} if change == "pin" else {}
            profiles = tuple(replace(p, **(fields or {"digest": f"{p.digest}+{pick}"})) for p in model.profiles)
            after = replace(model, profiles=profiles)
        else:
            after = replace(model, enabled=not model.enabled) if change == "toggle" else replace(model, base=pick % 4)
        return replace(world, models=tuple(after if item is model else item for item in world.models))
    return world


@given(worlds(), changes)
def test_whatever_happens_no_truth_is_broken_and_every_planned_operation_can_be_done(
    world: World, happenings: list[tuple[str, int]]
) -> None:
    for change, pick in happenings:
        world = changed(world, change, pick)
        before = set(invariants.check(world))
        world = applied(world, reconcile(world, NOW))
        assert set(invariants.check(world)) <= before


@given(worlds(), changes)
def test_a_cluster_left_alone_comes_to_rest_as_wanted_or_says_why_not(
    world: World, happenings: list[tuple[str, int]]
) -> None:
    for change, pick in happenings:
        world = applied(changed(world, change, pick), reconcile(changed(world, change, pick), NOW))
    plans = []
    for _ in range(60):
        plan = reconcile(world, NOW)
        plans.append(plan.ops)
        world = nodes_work(applied(world, plan))
    assert plans[-1] == (), "it never comes to rest"
    plan = reconcile(world, NOW)
    for model in world.models:
        ready = sum(
            r.run and world.state(r) is READY and r.digest in {p.digest for p in model.profiles}
            for r in world.of_model(model.id)
        )
        if ready < model.target:
            assert any(wait.model_id == model.id for wait in plan.waits), model
        else:
            assert len(running(world, model.id)) <= max(model.target, ready)


@given(worlds())
def test_the_same_world_gives_the_same_plan_in_whatever_order_it_is_read(world: World) -> None:
    turned = World(models=world.models[::-1], nodes=world.nodes[::-1], replicas=world.replicas[::-1])
    assert reconcile(world, NOW) == reconcile(turned, NOW)


def test_ids_of_equals_differ() -> None:
    model, node = a_model(), a_node()
    assert all(a.id < b.id for a, b in pairwise(a_replica(model, node) for _ in range(4)))


# --- a change that cannot start


def refused(world: World, digest: str, *, served: set[str]) -> World:
    """Nodes refuse for good whatever is started with this digest; `served`: replicas that are ready since before."""
    wrong = {"state": ReplicaState.FAILED, "code": "engine_args_refused", "message": "--no-such is no option"}
    for item in world.replicas:
        if item.run and item.digest == digest and f"{item.id}:{item.generation}" not in served:
            world = with_replica(world, item.id, **wrong)
    return world


@pytest.mark.parametrize("memory", [8 * GIB, int(1.7 * GIB)])
@pytest.mark.parametrize("count", [1, 3])
def test_f19_a_change_that_fails_for_good_stops_no_replica_that_serves_but_the_one_it_was_tried_with(
    count: int, memory: int
) -> None:
    """Where there is room beside, none; else the one that had to make room. And nothing is tried again and again."""
    model = a_model(base=count)
    after, nodes = newer(model), tuple(a_node(name, memory=memory) for name in ("a", "b", "c"))
    world = World(
        models=(after,), nodes=nodes[:count], replicas=tuple(a_replica(model, nodes[n], slot=n) for n in range(count))
    )
    served = {item.name_now for item in world.replicas}
    ops = []
    for _ in range(20):
        plan = reconcile(world, NOW)
        ops += plan.ops
        world = refused(nodes_work(applied(world, plan)), after.profiles[0].digest, served=served)
    ready = [item for item in world.replicas if item.run and item.state is READY]
    assert len(ready) == (count if memory == 8 * GIB else count - 1)
    assert [type(op) for op in ops] == [Start if memory == 8 * GIB else Renew]
    codes = [wait.code for wait in reconcile(world, NOW).waits]
    assert codes.count("update_pending") == len(ready)
    assert "engine_args_refused" in codes


def test_f19_once_it_is_mended_the_change_rolls_on() -> None:
    model, node = a_model(), a_node()
    bad = newer(model)
    failed = a_replica(bad, node, slot=1, state=ReplicaState.FAILED, code="engine_args_refused")
    world = World(models=(newer(bad),), nodes=(node,), replicas=(a_replica(model, node), failed))
    for _ in range(8):
        world = nodes_work(applied(world, reconcile(world, NOW)))
        assert any(item.run and item.state is READY for item in world.replicas)
    assert [item.digest for item in world.replicas] == [newer(bad).profiles[0].digest]


def test_what_failed_for_good_as_what_nobody_wants_any_more_is_not_kept() -> None:
    """However many changes that cannot start follow each other, one of them at most is there."""
    model, node = a_model(), a_node(memory=32 * GIB)
    world = World(models=(model,), nodes=(node,), replicas=(a_replica(model, node),))
    served = {item.name_now for item in world.replicas}
    for _ in range(6):
        world = replace(world, models=(newer(world.models[0]),))
        for _ in range(4):
            world = nodes_work(applied(world, reconcile(world, NOW)))
            world = refused(world, world.models[0].profiles[0].digest, served=served)
        assert [item.state for item in world.replicas] == [READY, ReplicaState.FAILED]


def test_a_successor_that_failed_for_good_is_tried_again_when_somebody_asks() -> None:
    model, node = a_model(), a_node()
    after = newer(model)
    failed = a_replica(after, node, slot=1, state=ReplicaState.FAILED, code="engine_args_refused")
    after = replace(after, standing=Standing(restarting=(failed.name_now,)))
    world = World(models=(after,), nodes=(node,), replicas=(a_replica(model, node), failed))
    op = only(reconcile(world, NOW))
    assert isinstance(op, Renew)
    assert op.replica_id == failed.id
    for _ in range(8):
        world = nodes_work(applied(world, reconcile(world, NOW)))
    assert [(item.id, item.generation, item.state) for item in world.replicas] == [(failed.id, 2, READY)]
    assert world.models[0].standing == Standing()


def test_a_restart_whose_new_one_fails_for_good_is_given_up_and_the_old_one_runs_on() -> None:
    model, node = a_model(), a_node()
    old = a_replica(model, node)
    asked = replace(model, standing=Standing(restarting=(old.name_now,)))
    world = World(models=(asked,), nodes=(node,), replicas=(old,))
    reasons = []
    for _ in range(8):
        plan = reconcile(world, NOW)
        reasons += [op.reason for op in plan.ops if isinstance(op, Remember)]
        world = refused(nodes_work(applied(world, plan)), old.digest, served={old.name_now})
    assert [(item.id, item.generation, item.state) for item in world.replicas] == [(old.id, 1, READY)]
    assert world.models[0].standing == Standing()
    assert len(reasons) == 1
    assert f"the restart of {old.id} is given up, it runs on" in reasons[0]
    assert "--no-such is no option" in reasons[0]


def test_a_model_whose_weights_nodes_are_asked_for_waits_with_these_words() -> None:
    model = a_model("m", base=2, asking=True)
    plan = reconcile(World(models=(model,), nodes=(a_node("one"),)), NOW)
    assert [op for op in plan.ops if isinstance(op, Start)] == []
    assert [(item.code, item.message) for item in plan.waits] == [
        ("asking_nodes", "nodes are being asked whether they have the weights of m")
    ]
