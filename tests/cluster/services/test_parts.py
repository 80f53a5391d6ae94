"""cluster.services.parts: replicas over several nodes, from the plan to each node's orders and back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from catalog.models import Event, Model
from cluster import selectors
from cluster.models import ModelStanding, Node, Replica, ReplicaPart
from cluster.services import labels, measuring
from cluster.wire import CardReport, EngineBuild, Hardware, ReplicaReport, WantedReplica
from llmgw_site.console.selectors.cluster import cluster
from llmgw_site.console.selectors.nodes import machines
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.units import GIB
from tests.cluster.rows import ACTOR, Machine, a_model_row, tick

pytestmark = pytest.mark.django_db
VLLM = (EngineBuild(kind="vllm", version="1", spans=True),)


class Member(Machine):
    """A node with a card on a fabric. It says what `wanted` says of it the last time, unless a test says else."""

    def __init__(self, name: str, address: str) -> None:
        super().__init__(name)
        labels.fabric(actor=ACTOR, node_id=self.node.id, name="ib0", address=address)
        card = CardReport(uuid=f"GPU-{name}", name="L4", memory_total=24 * GIB, memory_used=0, memory_foreign=0)
        self.hardware = Hardware(cores=8, memory_total=64 * GIB, memory_available=64 * GIB, cards=(card,))
        self.say()

    def say(self, state: str = "", *, generation: int = 1, replica: str = "", **fields: Any) -> WantedReplica | None:
        """What the node is told of its part."""
        self.node = Node.objects.get(id=self.node.id)
        row = Replica.objects.filter(id=replica).first() if replica else Replica.objects.first()
        said = [ReplicaReport(replica_id=row.id, generation=generation, state=state, **fields)] if row and state else []
        found = self.heartbeat(*said, hardware=self.hardware, engines=VLLM)
        return found[0] if found else None


@pytest.fixture
def pair() -> tuple[Member, Member]:
    """A model placed on two nodes; neither has spoken of it."""
    alpha, beta = Member("alpha", "10.9.0.1"), Member("beta", "10.9.0.2")
    profile = {"engine": "vllm", "tp": 1, "pp": 2, "card_memory": 8 * GIB, "memory": 4 * GIB}
    a_model_row("wide", weights_path="/w", profile=profile)
    tick()
    return alpha, beta


def row() -> Replica:
    return Replica.objects.get(run=True)


def ready(pair: tuple[Member, Member]) -> None:
    for member in pair:
        member.say("starting", code="waiting_for_parts")
    for at, member in enumerate(pair):
        member.say("ready", pid=40 + at, memory=(at + 1) * GIB, card_memory=(at + 5) * GIB, port=4000)
    assert row().state == "ready"


def test_each_node_is_told_its_rank_its_cards_and_where_they_meet(pair: tuple[Member, Member]) -> None:
    told = [member.say() for member in pair]
    assert [item and (item.run, item.hold, item.generation) for item in told] == [(True, True, 1)] * 2
    serves = [item.serve for item in told if item]
    assert [(item.nodes, item.rank, item.address) for item in serves] == [(2, 0, "10.9.0.1"), (2, 1, "10.9.0.2")]
    assert {(item.master, item.master_port) for item in serves} == {("10.9.0.1", row().serve["master_port"])}
    assert [item.cards for item in serves] == [("GPU-alpha",), ("GPU-beta",)]
    assert 23000 <= serves[0].master_port < 24000
    assert row().node_id == pair[0].node.id


def test_they_begin_when_all_have_what_it_takes_and_are_ready_together(pair: tuple[Member, Member]) -> None:
    alpha, beta = pair
    told = alpha.say("starting", code="waiting_for_parts")
    assert told
    assert told.hold
    told = beta.say("fetching", code="fetching", message="1 GiB of 2")
    assert told
    assert told.hold
    assert (row().state, row().message) == ("fetching", "part 2 of 2, on node beta: 1 GiB of 2")
    told = beta.say("starting", code="waiting_for_parts")
    assert told
    assert not told.hold
    told = alpha.say("starting", code="waiting_for_parts")
    assert told
    assert not told.hold
    beta.say("ready", pid=41)
    assert row().state == "starting"
    alpha.say("ready", pid=40, port=4000, slots=2, context=512)
    assert (row().state, row().pid, row().port, row().slots, row().proven) == ("ready", 40, 4000, 2, 1)


def test_memory_is_that_of_the_node_that_has_most(pair: tuple[Member, Member]) -> None:
    ready(pair)
    assert (row().memory, row().card_memory) == (2 * GIB, 6 * GIB)


def test_an_engine_over_several_nodes_that_gives_no_token_again_and_again_is_parked(
    pair: tuple[Member, Member],
) -> None:
    """1. what its leader counts stands in the row, and counts as failed starts; 2. whatever the others say of their ends; 3. and no
    other node's word undoes it; 4. parked, it begins anew no more."""
    ready(pair)
    alpha, beta = pair
    beta.say("backoff", code="engine_died", message="Its leader is gone.")
    for count in range(1, 6):
        alpha.say("backoff", code="engine_wedged", message="No token.", wedged=count)
        assert row().wedged == count  # 1, 2
        beta.say("stopped")
        assert row().wedged == count  # 3
    tick()
    assert ModelStanding.objects.get().parked_at is not None
    Replica.objects.update(state_since=timezone.now() - timedelta(hours=1))
    tick()
    assert not Replica.objects.filter(run=True, generation__gt=1).exists()  # 4


@pytest.mark.parametrize("dead", [0, 1])
def test_the_end_of_one_part_ends_all_and_they_begin_anew_elsewhere_met(pair: tuple[Member, Member], dead: int) -> None:
    ready(pair)
    port = row().serve["master_port"]
    victim, other = pair[dead], pair[1 - dead]
    told = victim.say("backoff", code="engine_died", message="The engine was ended by signal 9.", log_tail="last words")
    assert told
    assert (told.run, told.grace) == (False, 0.0)
    replica = row()
    words = f"part {dead + 1} of 2, on node {victim.node.name}: The engine was ended by signal 9"
    assert (replica.state, replica.code, replica.message, replica.log_tail) == (
        "backoff",
        "engine_died",
        words,
        "last words",
    )
    told = other.say("ready", pid=41 - dead)
    assert told
    assert (told.run, told.grace) == (False, 0.0)
    other.say("stopped")
    victim.say("stopped")  # as it is told, too: what it said of its end stays
    assert row().state == "backoff"
    # a moment ago, however slow the machine is
    Replica.objects.update(state_since=timezone.now() + timedelta(minutes=5))
    tick()
    assert row().generation == 1  # another part may yet say how it ended
    Replica.objects.update(state_since=timezone.now() - timedelta(seconds=3))
    tick()
    replica = row()
    assert (replica.generation, replica.state, replica.attempt, replica.proven) == (2, "starting", 2, 1)
    assert replica.serve["master_port"] != port
    assert words in Event.objects.filter(kind="replica_renewed").latest("at").why
    both = [member.say("starting", generation=2, code="waiting_for_parts") for member in pair]
    assert [item and (item.generation, item.run, item.hold) for item in both] == [(2, True, True), (2, True, False)]
    for at, member in enumerate(pair):
        member.say("ready", generation=2, pid=50 + at)
    assert (row().state, row().proven) == ("ready", 2)


def test_a_machine_that_began_anew_has_lost_its_part(pair: tuple[Member, Member]) -> None:
    ready(pair)
    told = pair[1].say("starting", code="waiting_for_parts")
    assert told
    assert not told.run
    assert (row().state, row().code) == ("backoff", "part_lost")


def test_the_leader_finishes_first_and_what_a_part_held_is_free_when_it_has_stopped(
    pair: tuple[Member, Member],
) -> None:
    ready(pair)
    alpha, beta = pair
    Replica.objects.update(run=False, grace=30.0)
    told = beta.say("ready", pid=41)
    assert told
    assert told.run
    told = alpha.say("ready", pid=40)
    assert told
    assert (told.run, told.grace) == (False, 30.0)
    alpha.say("draining", pid=40)
    told = beta.say("ready", pid=41)
    assert told
    assert told.run
    alpha.say("stopped")
    replica = Replica.objects.get()
    assert (replica.state, [share["node_id"] for share in replica.shares]) == ("draining", [beta.node.id])
    told = beta.say("ready", pid=41)
    assert told
    assert not told.run
    assert beta.say("stopped") is None
    assert Replica.objects.get().state == "stopped"
    tick()
    assert not Replica.objects.filter(run=False).exists()
    assert ReplicaPart.objects.filter(replica__run=False).count() == 0


def test_a_node_with_a_part_stays_on_its_fabric(pair: tuple[Member, Member]) -> None:
    node = pair[1].node
    for changes in ({"name": ""}, {"name": "ib1"}, {"name": "ib0", "address": "10.9.0.77"}):
        with pytest.raises(Refused) as refused:
            labels.fabric(actor=ACTOR, node_id=node.id, **changes)
        assert refused.value.code == "fabric_in_use"
        assert "wide" in refused.value.message
    assert labels.fabric(actor=ACTOR, node_id=node.id, name="ib0", address="10.9.0.2").fabric == "ib0"
    with pytest.raises(Refused) as refused:
        labels.fabric(actor=ACTOR, node_id=node.id, name="ib0", address="beta.example")
    assert (refused.value.code, refused.value.param) == ("invalid_value", "address")


def test_a_node_whose_listener_is_on_loopback_takes_no_part_until_it_has_an_address() -> None:
    for name in ("alpha", "beta"):
        Member(name, "")
    a_model_row(
        "wide", weights_path="/w", profile={"engine": "vllm", "tp": 1, "pp": 2, "card_memory": GIB, "memory": GIB}
    )
    tick()
    assert not Replica.objects.exists()
    for at, node in enumerate(Node.objects.all()):
        labels.fabric(actor=ACTOR, node_id=node.id, name="ib0", address=f"10.9.0.{at + 1}")
    tick()
    assert Replica.objects.count() == 1


def test_each_node_shows_its_part(pair: tuple[Member, Member]) -> None:
    ready(pair)
    shown = {item.node.name: item for item in machines().machines}
    assert [replica.model for replica in shown["alpha"].replicas] == ["wide"]
    (part,) = shown["beta"].replicas
    assert (part.model, part.state, part.memory) == ("wide, part 2", "ready", 2 * GIB)
    assert (shown["alpha"].node.replicas, shown["beta"].node.replicas) == (1, 1)
    assert {node.name: node.replica_count for node in selectors.nodes()} == {"alpha": 1, "beta": 1}  # type: ignore[attr-defined]
    assert {node.name: node.replicas for node in cluster().nodes} == {"alpha": 1, "beta": 1}


def test_what_the_node_that_takes_most_was_seen_to_take_is_reserved_of_each_from_then_on(
    pair: tuple[Member, Member],
) -> None:
    ready(pair)
    now = selectors.database_now()
    pair[0].say("ready", pid=40, memory=GIB, card_memory=5 * GIB, ready_at=now - 120, last_used_at=now - 10)
    pair[1].say("ready", pid=41, memory=2 * GIB, card_memory=6 * GIB)
    assert measuring.record(timezone.now()) == 1
    (model,) = selectors.world().models
    assert model.profiles[0].memory == 2 * GIB + 2 * GIB // 10
    assert model.profiles[0].card_memory == 8 * GIB  # vLLM takes of its cards what it is given


def test_a_replica_that_gives_way_drains_for_half_a_minute_and_its_other_part_ends_after_it(
    pair: tuple[Member, Member],
) -> None:
    ready(pair)
    Model.objects.update(priority_class="opportunistic")
    profile = {"engine": "vllm", "tp": 1, "card_memory": 20 * GIB, "memory": 4 * GIB}
    a_model_row("urgent", weights_path="/u", priority_class="critical", profile=profile)
    tick()
    assert not Replica.objects.get(model__name="wide").run
    wide = Replica.objects.get(model__name="wide").id
    told = [member.say("ready", pid=40 + at, replica=wide) for at, member in enumerate(pair)]
    assert [item and (item.run, item.grace) for item in told] == [(False, 30.0), (True, None)]
    pair[0].say("stopped", replica=wide)
    pair[1].say("ready", pid=41, replica=wide)
    pair[1].say("stopped", replica=wide)
    tick()
    assert Replica.objects.get(model__name="urgent").run
    assert not Replica.objects.filter(model__name="wide").exists()
