"""cluster.domain.explain: how a model stands, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.domain.explain import model_status, public_words
from cluster.domain.plan import Plan, Renew
from cluster.domain.reconcile import reconcile
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import Amount, Claim, ModelView, ReplicaView, ScopeView, Standing, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_model, a_node, a_replica

T = 1_000_000.0
NODE = a_node()


@pytest.mark.parametrize(
    ("model", "state", "node_state", "code", "counts"),
    [
        (a_model(), ReplicaState.READY, NodeState.ONLINE, "", "1/1"),
        (a_model(), ReplicaState.PENDING, NodeState.ONLINE, "replica_starting", "0/1"),
        (a_model(), ReplicaState.STARTING, NodeState.ONLINE, "replica_starting", "0/1"),
        (a_model(), ReplicaState.FAILED, NodeState.ONLINE, "engine_failed", "0/1"),
        (a_model(), ReplicaState.READY, NodeState.STALE, "", "1/1"),
        (a_model(), ReplicaState.READY, NodeState.OFFLINE, "node_offline", "0/1"),
        (a_model(enabled=False), ReplicaState.READY, NodeState.ONLINE, "model_disabled", "0/0"),
        (a_model(base=0), ReplicaState.READY, NodeState.ONLINE, "model_not_wanted", "0/0"),
        (a_model(base=0, most=1), None, NodeState.ONLINE, "model_at_rest", "0/0"),
        (a_model(base=0, most=1, standing=Standing(asked_at=T)), ReplicaState.READY, NodeState.ONLINE, "", "1/1"),
        (
            a_model(base=0, most=1, standing=Standing(asked_at=T)),
            ReplicaState.LOST,
            NodeState.OFFLINE,
            "node_offline",
            "0/1",
        ),
        (a_model(), None, NodeState.ONLINE, "replica_planned", "0/1"),
        (a_model(profiles=()), None, NodeState.ONLINE, "no_profile", "0/1"),
    ],
)
def test_a_model_is_counted_against_what_it_should_have_now(
    model: ModelView, state: ReplicaState | None, node_state: NodeState, code: str, counts: str
) -> None:
    node = replace(NODE, state=node_state)
    replicas = (a_replica(model, node, state=state),) if state else ()
    world = World(models=(model,), nodes=(node,), replicas=replicas)
    status = model_status(world, reconcile(world, T), model)
    assert status.code == code
    assert f"{status.ready}/{status.wanted}" == counts
    assert status.short == (status.ready < status.wanted)
    assert bool(status.reason) == bool(code)


def test_a_model_on_demand_that_was_asked_for_and_fits_nowhere_is_short() -> None:
    model = a_model(base=0, most=1, standing=Standing(asked_at=T))
    world = World(models=(model,), nodes=(replace(NODE, memory_total=1, memory_available=1),))
    status = model_status(world, reconcile(world, T), model)
    assert (status.code, status.short, status.wanted) == ("too_little_memory", True, 1)


def test_of_a_replica_that_fails_and_cannot_move_the_status_says_why_it_fails() -> None:
    model = a_model()
    node = replace(NODE, maintenance="drained")
    broken = a_replica(
        model, node, state=ReplicaState.BACKOFF, attempt=3, code="engine_start_failed", message="half a file"
    )
    world = World(models=(model,), nodes=(node,), replicas=(broken,))
    plan = reconcile(world, T)
    assert [wait.code for wait in plan.waits] == ["waiting_to_move", "engine_start_failed"]
    status = model_status(world, plan, model)
    assert (status.code, "half a file" in status.reason) == ("engine_start_failed", True)


def test_words_for_who_asks_for_a_model_name_no_other_model() -> None:
    sums = (
        "the team a (b) may have at most 2 cores, it holds 2 (secret 1, other 1), and one more replica of mine takes 1: "
        "raise the limit with `llmgw quota set 'team:a (b)'`, or let another of its models rest"
    )
    told = (
        "the team a (b) may have at most 2 cores, it holds 2, and one more replica of mine takes 1: "
        "an administrator can raise the limit"
    )
    assert public_words("over_limit", sums) == told
    assert public_words("update_pending", f"r1 runs with an older profile: for the new one {sums}").endswith(told)
    gave = "room was taken of mine: secret (critical) gets room on node n of 1 replica of mine (standard)"
    for code in ("gave_way", "waiting_for_turn"):
        assert "secret" not in public_words(code, gave)
        assert public_words(code, gave)
    plain = "no suitable node for mine, because n: it has 1.0 GiB (of 2.0 GiB) of room, and 3.0 GiB are needed"
    assert public_words("too_little_memory", plain) == plain
    assert public_words("waiting_for_turn", plain) == plain


@pytest.mark.parametrize("kept", [False, True])
def test_however_many_models_hold_a_limit_none_is_named_to_others(kept: bool) -> None:
    models = tuple(a_model(f"secret.{number}", owner="team") for number in range(9))
    mine = a_model("mine", owner="team")
    node = a_node("n", memory=64 * GIB)
    replicas = tuple(a_replica(model, node) for model in models)
    claim = Claim(model_id=models[0].id, shares=replicas[0].shares, until=1e12)
    scope = ScopeView(id="team", kind="team", name="t", limit=Amount(memory=9 * GIB))
    world = World(
        models=(*models, mine), nodes=(node,), replicas=replicas, scopes=(scope,), claims=(claim,) if kept else ()
    )
    plan = reconcile(world, 100.0)
    status = model_status(world, plan, mine)
    assert status.code == "over_limit"
    assert "secret.0" in status.reason
    assert "secret" not in status.public
    assert "it holds" in status.public


def test_what_is_done_to_another_model_places_nothing_of_this_one() -> None:
    model, other = a_model(), a_model("other")
    mine, renewed = a_replica(model, NODE, id="mine"), a_replica(other, NODE, id="renewed")
    asked = replace(model, base=2)
    world = World(models=(asked, other), nodes=(NODE,), replicas=(mine, renewed))

    def reason(replica: ReplicaView) -> str:
        renew = Renew(
            replica_id=replica.id, profile_id="p", digest="d", generation=2, shares=replica.shares, reason="changed"
        )
        return model_status(world, Plan(ops=(renew,)), asked).reason

    assert reason(renewed) == "no replica runs yet"
    assert reason(mine) == "a replica is being placed"
