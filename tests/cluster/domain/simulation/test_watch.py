"""The watch sees what it looks for: each rule is broken on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.domain.board import Board
from cluster.domain.plan import Keep, Op, Plan, Release, Remember, Renew, Start, Stop, do
from cluster.domain.simulation.taking import TURN
from cluster.domain.simulation.watch import GROWN_HOLD, HOLD, IDLE, STARVING, Watch
from cluster.domain.states import NodeState
from cluster.domain.types import Amount, Claim, Klass, ModelView, ScopeView, Standing, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_model, a_node, a_profile, a_replica

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


def test_room_that_goes_back_and_forth_is_flapping_also_where_a_third_took_some_in_between() -> None:
    """1. back and forth; 2. once, after a third has taken what was left: nobody is to blame; 3. and forth and back again."""
    one, two, third = (a_model(name, base=9) for name in ("one", "two", "third"))
    mine = [a_replica(one, NODE, slot=slot, grown=True, state_since=NOW - 5000) for slot in range(3)]
    yours = [a_replica(two, NODE, slot=slot, grown=True, state_since=NOW - 5000) for slot in range(3)]
    world = World(models=(one, two, third), nodes=(NODE,), replicas=(*mine, *yours))

    def taken(*moves: tuple[float, Any, ModelView]) -> list[str]:
        watch = Watch(0.0)
        for after, replica, model in moves:
            seen(world, Stop(replica_id=replica.id, reason="why", for_model=model.id), now=NOW + after, watch=watch)
        return [item.text for item in watch.found if "gives it back now" in item.text]

    forth, back = (0.0, mine[0], two), (100.0, yours[0], one)
    robbed = (50.0, mine[1], third)
    assert taken(forth, back) == ["two took room of one 100 s ago, and gives it back now"]  # 1
    assert taken(forth, robbed, back) == []  # 2
    assert len(taken(forth, robbed, back, (150.0, mine[2], two), (200.0, yours[1], one))) == 2  # 3


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


def starving(world: World, model: ModelView, *moments: float) -> Watch:
    watch = Watch(0.0)
    for moment in moments:
        watch._starving({model.id: model}, Board(world), moment)
    return watch


def test_a_model_that_waits_for_room_of_a_lower_class_starves() -> None:
    high = replace(HIGH, profiles=(a_profile("high", memory=6 * GIB),))
    low = a_replica(LOW, NODE, reserved=4 * GIB)
    world = World(models=(LOW, high), nodes=(NODE,), replicas=(low,))
    assert rules(starving(world, high, NOW, NOW + STARVING, NOW + STARVING + IDLE - 1)) == []
    watch = starving(world, high, NOW, NOW + STARVING, NOW + STARVING + IDLE)
    assert [item.text for item in watch.found] == ["high waits for 120 s, and lower classes hold one"]
    kept = replace(world, claims=(Claim(model_id=high.id, shares=low.shares, until=NOW + 300),))
    assert rules(starving(kept, high, NOW, NOW + STARVING, NOW + STARVING + IDLE)) == []
    scope = ScopeView(id="org_a", kind="organisation", name="a", guarantee=Amount(memory=GIB))
    guarded = replace(world, models=(replace(LOW, owner="org_a"), high), scopes=(scope,))
    assert rules(starving(guarded, high, NOW, NOW + STARVING, NOW + STARVING + IDLE)) == [], "a guarantee may say no"


def test_a_model_that_waits_though_it_fits_is_seen_at_the_third_look() -> None:
    world = World(models=(LOW,), nodes=(NODE,))
    assert rules(starving(world, LOW, NOW, NOW + IDLE - 1)) == []
    watch = starving(world, LOW, NOW, NOW + IDLE)
    assert [item.text for item in watch.found] == ["low waits for 30 s, and fits on one"]
    parked = replace(LOW, standing=Standing(parked_at=NOW))
    assert rules(starving(replace(world, models=(parked,)), parked, NOW, NOW + IDLE)) == []


@pytest.mark.parametrize(
    ("node", "profile", "rule"),
    [
        ({}, {}, ""),
        ({"maintenance": "cordoned"}, {}, "misplaced"),
        ({"state": NodeState.STALE}, {}, "misplaced"),
        ({"engines": {"llama.cpp": "it is broken"}}, {}, "misplaced"),
        ({}, {"labels": (("zone", "a"),)}, "misplaced"),
        ({}, {"nodes": ("two",)}, "misplaced"),
        ({}, {"cards": 1, "card_memory": GIB}, "misplaced"),
        ({}, {"span": 2}, "misplaced"),
        ({"memory_available": GIB}, {}, "promised_twice"),
        ({"memory_total": GIB}, {}, "promised_twice"),
        ({"lacks": frozenset({"w"})}, {}, "misplaced"),
    ],
)
def test_a_replica_that_is_put_where_it_must_not_be_is_seen(node: Any, profile: Any, rule: str) -> None:
    model = replace(LOW, profiles=(replace(LOW.profiles[0], **profile),), weights="w")
    world = World(models=(model,), nodes=(replace(NODE, **node),))
    assert rules(seen(world, start(model, "rep_1"))) == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("foreign", "taken", "problem", "rule"),
    [(0, 0, "", ""), (10, 0, "", "promised_twice"), (0, 10, "", "promised_twice"), (0, 0, "XID 79", "misplaced")],
)
def test_memory_of_a_card_that_others_hold_is_not_promised(foreign: int, taken: int, problem: str, rule: str) -> None:
    node = replace(NODE, cards=(a_card("GPU-0", foreign=foreign * GIB, problem=problem),))
    model = a_model("carded", profiles=(a_profile("carded", cards=1, card_memory=20 * GIB),))
    share = replace(a_replica(model, node).shares[0], cards=(("GPU-0", 20 * GIB),))
    other = a_replica(LOW, node, shares=(replace(share, cards=(("GPU-0", taken * GIB),)),))
    world = World(models=(model, LOW), nodes=(node,), replicas=(other,) if taken else ())
    found = rules(seen(world, replace(start(model, "rep_1"), shares=(share,))))
    assert set(found) - {"promised_twice" if problem else ""} == ({rule} if rule else set())


def test_nobody_is_placed_before_one_of_a_higher_class_that_fits() -> None:
    world = World(models=(LOW, HIGH), nodes=(NODE,))
    assert rules(seen(world, start(LOW, "rep_1"))) == ["class_inversion"]
    assert rules(seen(world, start(HIGH, "rep_1"), start(LOW, "rep_2"))) == []


def test_who_is_not_needed_or_dearer_than_another_is_seen_where_room_is_kept() -> None:
    high = replace(HIGH, profiles=(a_profile("high", memory=4 * GIB),))
    idle, busy = (a_replica(LOW, NODE, slot=n, reserved=3 * GIB, in_flight=n) for n in range(2))
    world = World(models=(LOW, high), nodes=(NODE,), replicas=(idle, busy))
    claim = Claim(model_id=high.id, shares=a_replica(high, NODE).shares, until=NOW + 300)
    one, two = (Stop(replica_id=item.id, reason="why", for_model=high.id) for item in (idle, busy))
    keep = Keep(claim=claim, reason="why")
    assert rules(seen(world, one, keep)) == []
    assert rules(seen(world, two, keep)) == ["dearer"]
    assert rules(seen(world, one, two, keep)) == ["in_vain", "in_vain"], "each of them would have done"


def test_room_that_is_given_up_for_nothing_is_seen() -> None:
    high = replace(HIGH, profiles=(a_profile("high", memory=6 * GIB),))
    low = a_replica(LOW, NODE, reserved=4 * GIB)
    world = World(models=(LOW, high), nodes=(NODE,), replicas=(low,))
    claim = Claim(model_id=high.id, shares=a_replica(high, NODE).shares, until=NOW + 300)
    stop, keep = Stop(replica_id=low.id, reason="why", for_model=high.id), Keep(claim=claim, reason="why")
    release = Release(model_id=high.id, reason="its time is over")
    watch, board = Watch(0.0), Board(world)
    for op, moment in ((stop, NOW), (keep, NOW), (release, NOW + 330)):
        do(op, board)
        watch.op(op, board, moment)
    assert rules(watch) == ["in_vain"]
    watch = Watch(0.0)
    watch.step(
        world, world, Plan(), Board(replace(world, claims=(replace(claim, until=NOW - HOLD - 1),))), NOW, stale=False
    )
    assert "in_vain" in rules(watch)


def test_load_that_is_answered_twice_and_models_that_rest_in_use_are_flapping() -> None:
    def remember(before: Standing, after: Standing) -> Remember:
        return Remember(model_id=LOW.id, before=before, standing=after, reason="why")

    world = World(models=(replace(LOW, base=0, most=3),), nodes=(NODE,), replicas=(a_replica(LOW, NODE),))
    one, two = Standing(grown=1), Standing(grown=2)
    assert rules(seen(world, remember(Standing(), two))) == ["flapping"]
    grew = seen(world, remember(one, two))
    assert rules(seen(world, remember(two, one), now=NOW + GROWN_HOLD - 1, watch=grew)) == ["flapping"]
    assert rules(seen(world, remember(two, one), now=NOW + GROWN_HOLD, watch=seen(world, remember(one, two)))) == []
    awake = Standing(asked_at=NOW - 2000, used_at=NOW - 10)
    asked = replace(world, models=(replace(LOW, base=0, most=3, standing=awake),))
    assert rules(seen(asked, remember(awake, replace(awake, asked_at=None)))) == ["flapping"]
    idle = replace(awake, used_at=NOW - 1000)
    assert rules(seen(asked, remember(idle, replace(idle, asked_at=None)))) == []


def test_a_replica_that_starts_anew_twice_in_a_minute_is_flapping() -> None:
    replica = a_replica(LOW, NODE)
    world = World(models=(LOW,), nodes=(NODE,), replicas=(replica,))
    renew = Renew(
        replica_id=replica.id,
        profile_id=LOW.profiles[0].id,
        digest="d",
        generation=2,
        shares=replica.shares,
        reason="why",
    )
    assert rules(seen(world, renew, now=NOW + HOLD - 1, watch=seen(world, renew))) == ["flapping"]
    assert rules(seen(world, renew, now=NOW + HOLD, watch=seen(world, renew))) == []
