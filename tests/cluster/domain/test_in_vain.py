"""Room is made for nobody who would not keep it, and nothing is placed where another, who waits, has it taken at once."""

from __future__ import annotations

from dataclasses import replace

from cluster.domain.plan import Keep, Plan, Release, Start, Stop
from cluster.domain.reconcile import reconcile
from cluster.domain.states import ReplicaState
from cluster.domain.types import Amount, Claim, ScopeView, Share, Standing, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_model, a_node, a_profile, a_replica, applied, nodes_work
from tests.cluster.crowd import HIGH, LOW, MID, NOW, ORG, OTHER, on, scoped, sized

GROWS = Standing(grown=1, quiet_since=NOW - 1)


def ring() -> World:
    """Four cores, all in use. `grows` may have the core of `second`, of a lower class of its own scope; this one is within the
    guarantee of that scope and may have the core that `lent` has borrowed; and `lent`, which shall have one in any case, may
    have what is kept for the load of `grows`."""
    scope = ScopeView(id=ORG, kind="organisation", name="one", guarantee=Amount(cores=4))
    node = a_node("one", memory=64 * GIB, cores=4, cards=(a_card(),))
    carded = a_profile("grows", threads=1, cards=1, card_memory=GIB, card_classes=("L4",))
    grows = a_model("grows", klass=MID, base=1, most=2, owner=ORG, standing=GROWS, profiles=(carded,))
    second = a_model("second", klass=LOW, base=1, owner=ORG, profiles=(a_profile("second", threads=1),))
    lent = a_model("lent", klass=MID, base=1, profiles=(a_profile("lent", threads=1),))
    other = a_model("other", klass=HIGH, base=1, profiles=(a_profile("other", threads=1),))
    share = Share(node_id=node.id, memory=GIB, cores=1, cards=((node.cards[0].uuid, GIB),))
    replicas = (a_replica(grows, node, shares=(share,)), *(on(node, item) for item in (second, lent, other)))
    return World(models=(grows, second, lent, other), nodes=(node,), replicas=replicas, scopes=(scope,))


def test_nobody_stops_in_a_ring_at_whose_end_all_would_be_where_they_were() -> None:
    world = ring()
    plan = reconcile(world, NOW)
    assert plan.ops == ()
    assert [(wait.model_id, wait.code) for wait in plan.waits] == [("mod_grows", "no_cores_now")]
    grows, second, *others = world.models
    free = replace(world, models=(grows, replace(second, owner=""), *others))
    assert [op.subject for op in reconcile(free, NOW).ops if isinstance(op, Stop)] == [world.replicas[1].id], (
        "who cannot have it back gives way"
    )


def test_two_models_do_not_swap_their_places() -> None:
    """`back`, of a lower class, is within its guarantee only of the class of cards that `lent` runs on; where its other
    replica is, `lent` may run, too, and would take that instead."""
    scope = ScopeView(id=ORG, kind="organisation", name="one", guarantee=Amount(cards=(("L4", 1),)))
    first, second = a_node("one", cards=(a_card("A"),)), a_node("two", cards=(a_card("B", klass="T4"),))
    profiles = [a_profile(name, memory=0, cards=1, card_memory=20 * GIB) for name in ("back", "lent")]
    back = a_model("back", klass=LOW, base=2, owner=ORG, profiles=(profiles[0],))
    lent = a_model("lent", klass=MID, base=1, profiles=(profiles[1],))
    on_card = [Share(node_id=node.id, cards=((node.cards[0].uuid, 20 * GIB),)) for node in (first, second)]
    replicas = (a_replica(lent, first, shares=on_card[:1]), a_replica(back, second, shares=on_card[1:]))
    world = World(models=(back, lent), nodes=(first, second), replicas=replicas, scopes=(scope,))
    assert reconcile(world, NOW).ops == ()
    alone = replace(world, nodes=(first,), replicas=replicas[:1], models=(replace(back, base=1), lent))
    assert [op.subject for op in reconcile(alone, NOW).ops if isinstance(op, Stop)] == [replicas[0].id]


def test_what_load_asks_for_comes_after_what_all_of_a_class_shall_have_without() -> None:
    """By name `grows` would be first, and `waits` would take its new replica back at the next look."""
    node = a_node("one", memory=10 * GIB, memory_available=6 * GIB)
    grows = sized("grows", 4, MID, base=1, most=2, standing=GROWS)
    waits = sized("waits", 4, MID, base=1)
    world = World(models=(grows, waits), nodes=(node,), replicas=(on(node, grows),))
    plan = reconcile(world, NOW)
    assert [op.model_id for op in plan.ops if isinstance(op, Start)] == [waits.id]
    world = nodes_work(nodes_work(applied(world, plan)))
    assert reconcile(world, NOW + 5).ops == ()
    alone = replace(world, models=(grows,), replicas=world.replicas[:1])
    assert [op.model_id for op in reconcile(alone, NOW).ops if isinstance(op, Start)] == [grows.id]


def kept_for(lower: int, guarantee: int, owner: str = "", *, leaving: bool = False) -> tuple[World, Plan]:
    """Room is kept for a model of class `lower`, which another may still be leaving; one of the middle class needs it."""
    node = a_node("one", memory=8 * GIB)
    other = sized("other", 6, (LOW, MID, HIGH)[lower], base=1, owner=OTHER)
    model = sized("model", 6, MID, base=1, owner=owner)
    claim = Claim(model_id=other.id, shares=(Share(node_id=node.id, memory=6 * GIB),), until=NOW + 300)
    gone = on(node, sized("gone", 6), run=False, state=ReplicaState.DRAINING, state_since=NOW - 5)
    there = (gone,) if leaving else ()
    world = World(models=(other, model), nodes=(node,), replicas=there, claims=(claim,), scopes=scoped(guarantee))
    return world, reconcile(world, NOW)


def test_free_room_that_is_kept_for_a_lower_class_is_taken_before_anybody_stands_there() -> None:
    world, plan = kept_for(lower=0, guarantee=0)
    assert [(type(op), op.subject) for op in plan.ops] == [(Release, "mod_other"), (Keep, "mod_model")]
    assert "kept for other" in plan.ops[0].reason
    assert [op.subject for op in reconcile(applied(world, plan), NOW + 5).ops] == ["mod_model"]


def test_room_that_is_kept_for_who_would_borrow_it_goes_to_who_is_guaranteed_it() -> None:
    """As its replica would at the next look, whatever its class."""
    world, plan = kept_for(lower=2, guarantee=6, owner=ORG, leaving=True)
    assert [op.subject for op in plan.ops if isinstance(op, Release)] == ["mod_other"]
    assert plan.ops[-1] == Keep(
        claim=replace(world.claims[0], model_id="mod_model", until=NOW + 330), reason=plan.ops[-1].reason
    )
    for guarantee, owner in ((5, ORG), (6, "")):
        _, plan = kept_for(lower=2, guarantee=guarantee, owner=owner, leaving=True)
        assert plan.ops == (), "then it is the other's"
