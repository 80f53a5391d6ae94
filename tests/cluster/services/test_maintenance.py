"""cluster.services.maintenance: cordon, drain and back, of a node or a card, and what becomes of its replicas."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.models import Event
from cluster import selectors
from cluster.models import Node, Replica
from cluster.services import maintenance, nodes
from cluster.wire import CardReport, Hardware
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.units import GIB
from tests.cluster.rows import ACTOR, Machine, a_model_row, a_ready_replica, report, tick

pytestmark = pytest.mark.django_db
CARDS = Hardware(
    cores=4,
    memory_total=8 * GIB,
    memory_available=8 * GIB,
    cards=tuple(CardReport(uuid=uuid, name="L4", memory_total=24 * GIB) for uuid in ("GPU-a", "GPU-b")),
)


def marks(machine: Machine) -> tuple[Any, ...]:
    node = Node.objects.get(id=machine.node.id)
    return node.maintenance, node.maintenance_why, node.maintenance_by, node.maintenance_at is not None


def test_a_node_is_cordoned_drained_and_back_with_who_and_why() -> None:
    machine = Machine("alpha")
    maintenance.cordon(actor="user:ann", node_id=machine.node.id, why="fan")
    assert marks(machine) == ("cordoned", "fan", "user:ann", True)
    maintenance.drain(actor="user:bob", node_id=machine.node.id, why="disk")
    assert marks(machine) == ("drained", "disk", "user:bob", True)
    for _ in range(2):  # the second time there is nothing to end, and nothing to record
        maintenance.uncordon(actor="user:ann", node_id=machine.node.id)
    assert marks(machine) == ("", "", "", False)
    found = Event.objects.filter(subject_id=machine.node.id).exclude(kind="node_enrolled").order_by("at", "id")
    assert [(e.kind, e.actor, e.why) for e in found] == [
        ("node_cordoned", "user:ann", "fan"),
        ("node_drained", "user:bob", "disk"),
        ("node_uncordoned", "user:ann", ""),
    ]
    assert [(e.before, e.after) for e in found][1] == ({"maintenance": "cordoned"}, {"maintenance": "drained"})


def test_a_card_is_cordoned_without_its_node() -> None:
    machine = Machine("alpha")
    machine.heartbeat(hardware=CARDS)
    node = maintenance.cordon(actor=ACTOR, node_id=machine.node.id, why="XID 79", card="GPU-b")
    assert node.maintenance == ""
    assert {card: (m["state"], m["why"], m["by"]) for card, m in node.cards_maintenance.items()} == {
        "GPU-b": ("cordoned", "XID 79", ACTOR)
    }
    assert maintenance.uncordon(actor=ACTOR, node_id=machine.node.id, card="GPU-b").cards_maintenance == {}


def test_a_card_that_the_node_does_not_have_is_refused_with_those_it_has() -> None:
    machine = Machine("alpha")
    machine.heartbeat(hardware=CARDS)
    for function in (maintenance.cordon, maintenance.drain, maintenance.uncordon):
        with pytest.raises(Refused, match="GPU-a, GPU-b") as refused:
            function(actor=ACTOR, node_id=machine.node.id, card="GPU-z")
        assert refused.value.code == "unknown_card"
    assert Node.objects.get().cards_maintenance == {}


def test_the_maintenance_of_a_card_that_was_pulled_out_can_be_ended() -> None:
    machine = Machine("alpha")
    machine.heartbeat(hardware=CARDS)
    maintenance.drain(actor=ACTOR, node_id=machine.node.id, card="GPU-b")
    machine.heartbeat()
    assert maintenance.uncordon(actor=ACTOR, node_id=machine.node.id, card="GPU-b").cards_maintenance == {}


def test_a_node_that_is_not_there_is_refused() -> None:
    machine = Machine()
    nodes.remove(node_id=machine.node.id, actor=ACTOR)
    with pytest.raises(Refused) as refused:
        maintenance.drain(actor=ACTOR, node_id=machine.node.id)
    assert refused.value.code == "node_unknown"


def test_a_heartbeat_leaves_maintenance_alone() -> None:
    machine = Machine()
    maintenance.drain(actor=ACTOR, node_id=machine.node.id, why="disk")
    machine.heartbeat()
    assert marks(machine) == ("drained", "disk", ACTOR, True)


def test_replicas_move_first_and_then_the_node_is_empty_and_may_be_removed() -> None:
    machine, old = a_ready_replica()
    spare = Machine("spare")
    spare.heartbeat()
    maintenance.drain(actor=ACTOR, node_id=machine.node.id, why="disk")
    tick()
    new = Replica.objects.get(node_id=spare.node.id)
    assert Replica.objects.get(id=old.id).run  # until the other is ready
    spare.heartbeat(report(new, "ready"))
    tick()
    assert [item.run for item in machine.heartbeat(report(old, "ready"))] == [False]
    machine.heartbeat(report(old, "stopped"))
    tick()
    assert list(Replica.objects.values_list("id", flat=True)) == [new.id]
    nodes.remove(node_id=machine.node.id, actor=ACTOR)


def test_a_drained_node_without_a_substitute_serves_on_and_shows_what_waits() -> None:
    machine, row = a_ready_replica()
    maintenance.drain(actor=ACTOR, node_id=machine.node.id, why="disk")
    assert tick().done == ()
    assert [item.run for item in machine.heartbeat(report(row, "ready"))] == [True]
    ((waiting,),) = selectors.waiting_to_move().values()
    assert (waiting["replica"], waiting["model"]) == (row.id, "small")
    assert "drained for maintenance (disk)" in waiting["message"]


ON_CARD = {"gpus_per_node": 1, "card_memory": 10 * GIB}


def test_what_starts_on_a_node_with_a_cordoned_card_gets_another_and_how_much_of_it() -> None:
    a_model_row(profile=ON_CARD)
    machine = Machine()
    machine.heartbeat(hardware=CARDS)
    maintenance.cordon(actor=ACTOR, node_id=machine.node.id, card="GPU-a")
    tick()
    (wanted,) = machine.heartbeat(hardware=CARDS)
    assert (wanted.serve.cards, wanted.serve.card_memory) == (("GPU-b",), (10 * GIB,))
    (share,) = selectors.world().replicas[0].shares
    assert (share.node_id, share.memory, share.cards) == (machine.node.id, GIB, (("GPU-b", 10 * GIB),))
    assert tick().done == ()  # it is what it should be


def test_a_drained_card_is_left_by_the_replica_that_uses_it() -> None:
    a_model_row(profile=ON_CARD)
    machine = Machine()
    machine.heartbeat(hardware=CARDS)
    tick()
    old = Replica.objects.get()
    machine.heartbeat(report(old, "ready"), hardware=CARDS)
    assert old.serve["cards"] == ["GPU-a"]
    maintenance.drain(actor=ACTOR, node_id=machine.node.id, card="GPU-b", why="dust")
    assert tick().done == ()  # it uses the other
    maintenance.uncordon(actor=ACTOR, node_id=machine.node.id, card="GPU-b")
    maintenance.drain(actor=ACTOR, node_id=machine.node.id, card="GPU-a", why="ECC")
    tick()
    new = Replica.objects.exclude(id=old.id).get()
    assert new.serve["cards"] == ["GPU-b"]
    machine.heartbeat(report(old, "ready"), report(new, "ready"), hardware=CARDS)
    tick()
    assert not Replica.objects.get(id=old.id).run
    assert "card GPU-a" in Replica.objects.get(id=old.id).why


def test_an_engine_on_the_processor_is_told_no_card_and_leaves_for_none() -> None:
    a_model_row()
    machine = Machine()
    maintenance_of = {"actor": ACTOR, "node_id": machine.node.id}
    machine.heartbeat(hardware=CARDS)
    for card in ("GPU-a", "GPU-b"):
        maintenance.drain(card=card, why="ECC", **maintenance_of)
    tick()
    (wanted,) = machine.heartbeat(hardware=CARDS)
    assert (wanted.serve.cards, wanted.serve.card_memory) == ((), ())
    assert tick().done == ()
