"""The watch sees what it looks for: each rule is broken on purpose."""

from __future__ import annotations

from dataclasses import replace

from cluster.domain.board import Board
from cluster.domain.plan import Op, Plan, Start, Stop, do
from cluster.domain.simulation.watch import HOLD, LOOK_EVERY, STARVING, TURN, Watch
from cluster.domain.types import Amount, Klass, ModelView, ScopeView, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_model, a_node, a_profile, a_replica

NOW = 1_000_000.0
LOW = a_model("low", klass=Klass.OPPORTUNISTIC)
HIGH = a_model("high", klass=Klass.CRITICAL)
NODE = a_node(memory=8 * GIB)


def rules(watch: Watch) -> list[str]:
    return [item.rule for item in watch.found]


def seen(world: World, *ops: Op, now: float = NOW, watch: Watch | None = None) -> Watch:
    watch, board = watch or Watch(0.0), Board(world)
    for op in ops:
        watch.op(op, board, now)
        do(op, board)
    return watch


def start(model: ModelView, replica_id: str) -> Start:
    profile = model.profiles[0]
    shares = a_replica(model, NODE).shares
    return Start(
        model_id=model.id, profile_id=profile.id, slot=0, digest=profile.digest, shares=shares, reason="why",
        replica_id=replica_id,
    )  # fmt: skip


def test_a_lower_class_may_give_way_and_no_higher_one() -> None:
    low, high = a_replica(LOW, NODE), a_replica(HIGH, NODE)
    world = World(models=(LOW, HIGH), nodes=(NODE,), replicas=(low, high))
    assert rules(seen(world, Stop(replica_id=low.id, reason="why", for_model=HIGH.id))) == []
    watch = seen(world, Stop(replica_id=high.id, reason="why", for_model=LOW.id))
    assert rules(watch) == ["class_inversion"]
    assert "of high (CRITICAL) for low (OPPORTUNISTIC)" in watch.found[0].text


def test_within_a_class_only_what_was_added_under_load_gives_way_to_one_below_its_base() -> None:
    one, two = a_model("one"), a_model("two")
    plain, grown = a_replica(one, NODE), a_replica(one, NODE, slot=1, grown=True)
    world = World(models=(one, two), nodes=(NODE,), replicas=(plain, grown))
    assert rules(seen(world, Stop(replica_id=grown.id, reason="why", for_model=two.id))) == []
    assert rules(seen(world, Stop(replica_id=plain.id, reason="why", for_model=two.id))) == ["class_inversion"]
    full = replace(world, replicas=(*world.replicas, a_replica(two, NODE)))
    assert rules(seen(full, Stop(replica_id=grown.id, reason="why", for_model=two.id))) == ["class_inversion"]


def test_a_model_on_demand_has_its_turn_before_it_gives_way_to_another() -> None:
    asked = {"base": 0, "most": 1, "klass": Klass.OPPORTUNISTIC}
    one, two = a_model("one", **asked), a_model("two", **asked)
    two = replace(two, standing=replace(two.standing, asked_at=NOW))
    for age, found in ((TURN, []), (TURN - 1, ["class_inversion"])):
        replica = a_replica(one, NODE, state_since=NOW - age)
        world = World(models=(one, two), nodes=(NODE,), replicas=(replica,))
        assert rules(seen(world, Stop(replica_id=replica.id, reason="why", for_model=two.id))) == found


def test_room_within_a_guarantee_is_not_taken_for_another_scope() -> None:
    scope = ScopeView(id="org_a", kind="organisation", name="a", guarantee=Amount(cores=2))
    model = a_model("owned", klass=Klass.OPPORTUNISTIC, owner="org_a", profiles=(a_profile("owned", threads=2),))
    one, two = a_replica(model, NODE), a_replica(model, NODE, slot=1)
    world = World(models=(model, HIGH), nodes=(NODE,), replicas=(one, two), scopes=(scope,))
    first = Stop(replica_id=one.id, reason="why", for_model=HIGH.id)
    assert rules(seen(world, first)) == []  # two cores of four are left, as guaranteed
    assert rules(seen(world, first, Stop(replica_id=two.id, reason="why", for_model=HIGH.id))) == ["guarantee_broken"]


def test_more_than_a_limit_is_seen_where_it_is_given() -> None:
    scope = ScopeView(id="org_a", kind="organisation", name="a", limit=Amount(cores=3))
    model = a_model("owned", owner="org_a", profiles=(a_profile("owned", threads=2),))
    one, two = a_replica(model, NODE), a_replica(model, NODE, slot=1)
    before = World(models=(model,), nodes=(NODE,), replicas=(one,), scopes=(scope,))
    after = replace(before, replicas=(one, two))
    for was, found in ((before, ["limit_broken"]), (after, [])):
        watch = Watch(0.0)
        watch.step(was, after, Plan(), Board(after), NOW, stale=True)
        assert rules(watch) == found


def test_what_is_undone_within_its_hold_time_is_flapping_unless_somebody_asked_for_it() -> None:
    world, stop = World(models=(LOW,), nodes=(NODE,)), Stop(replica_id="rep_1", reason="one too many")
    watch = seen(world, start(LOW, "rep_1"))
    placed = replace(world, replicas=(a_replica(LOW, NODE, id="rep_1"),))
    assert rules(seen(placed, stop, now=NOW + HOLD - 1, watch=watch)) == ["flapping"]
    assert rules(seen(world, start(LOW, "rep_2"), now=NOW + HOLD, watch=watch)) == ["flapping", "flapping"]
    later = seen(placed, stop, now=NOW + HOLD, watch=seen(world, start(LOW, "rep_1")))
    assert rules(later) == []
    asked = seen(world, start(LOW, "rep_1"))
    asked.disturbed_model(LOW.id, NOW + 5)
    assert rules(seen(placed, stop, now=NOW + 10, watch=asked)) == []


def test_a_replica_that_was_added_under_load_is_held_longer() -> None:
    world = World(models=(LOW,), nodes=(NODE,), replicas=(a_replica(LOW, NODE, id="rep_1"),))
    watch = seen(replace(world, replicas=()), replace(start(LOW, "rep_1"), grown=True))
    assert rules(seen(world, Stop(replica_id="rep_1", reason="quiet"), now=NOW + 300, watch=watch)) == ["flapping"]


def test_operations_without_a_reason_and_models_that_nobody_explains_are_seen() -> None:
    replica = a_replica(LOW, NODE)
    world = World(models=(LOW,), nodes=(NODE,), replicas=(replica,))
    assert rules(seen(world, Stop(replica_id=replica.id, reason=""))) == ["unexplained"]
    short = World(models=(LOW,), nodes=(NODE,))
    watch = Watch(0.0)
    watch.step(short, short, Plan(), Board(short), NOW, stale=False)
    assert rules(watch) == ["unexplained"]
    assert watch.found[0].text == "low has 0 of 1, and nobody says why"


def test_memory_that_is_promised_twice_is_seen() -> None:
    before = World(models=(LOW,), nodes=(NODE,))
    after = replace(before, replicas=tuple(a_replica(LOW, NODE, slot=slot, reserved=5 * GIB) for slot in range(2)))
    watch = Watch(0.0)
    watch.step(before, after, Plan(), Board(after), NOW, stale=True)
    assert rules(watch) == ["promised_twice"]


def test_a_model_that_waits_for_room_of_a_lower_class_starves() -> None:
    high = replace(HIGH, profiles=(a_profile("high", memory=6 * GIB),))
    low = a_replica(LOW, NODE, reserved=4 * GIB)
    world = World(models=(LOW, high), nodes=(NODE,), replicas=(low,))
    watch = Watch(0.0)
    for moment in (NOW, NOW + STARVING, NOW + STARVING + LOOK_EVERY):
        watch._starving({high.id: high}, Board(world), moment)
    assert rules(watch) == ["starved", "starved"]
    assert watch.found[0].text == "high waits since 900 s, and lower classes hold one"
