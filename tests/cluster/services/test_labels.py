"""cluster.services.labels: labels and fabric of nodes, and what placement makes of them."""

from __future__ import annotations

import pytest
from django.test import Client

from catalog.models import Event
from cluster import selectors
from cluster.models import Node, Replica
from cluster.services import labels
from llmgw_site.lib.errors import Refused
from tests.cluster.rows import ACTOR, Machine, a_model_row, tick

pytestmark = pytest.mark.django_db


def test_labels_are_given_changed_and_taken_away_with_who_and_why() -> None:
    node = Machine("alpha").node
    labels.label(actor="user:ann", node_id=node.id, changes={"zone": "b", "llmgw.io/rack": "12"}, why="moved")
    labels.label(actor="user:ann", node_id=node.id, changes={"zone": "c", "llmgw.io/rack": None, "gone": None})
    labels.label(actor="user:ann", node_id=node.id, changes={"zone": "c"})  # nothing new, nothing recorded
    assert Node.objects.get().labels == {"zone": "c"}
    found = Event.objects.filter(kind="node_labelled").order_by("at", "id")
    assert [(item.before, item.after, item.why) for item in found] == [
        ({"labels": {}}, {"labels": {"zone": "b", "llmgw.io/rack": "12"}}, "moved"),
        ({"labels": {"zone": "b", "llmgw.io/rack": "12"}}, {"labels": {"zone": "c"}}, ""),
    ]


@pytest.mark.parametrize("changes", [{"a b": "c"}, {"zone": "b c"}, {"": "x"}, {"x y": None}])
def test_what_is_no_label_is_refused_and_nothing_is_written(changes: dict[str, str | None]) -> None:
    node = Machine("alpha").node
    with pytest.raises(Refused) as refused:
        labels.label(actor=ACTOR, node_id=node.id, changes=changes)
    assert (refused.value.code, refused.value.param) == ("invalid_value", "labels")
    assert Node.objects.get().labels == {}


def test_a_fabric_is_named_and_left() -> None:
    node = Machine("alpha").node
    assert labels.fabric(actor=ACTOR, node_id=node.id, name="ib-1").fabric == "ib-1"
    with pytest.raises(Refused):
        labels.fabric(actor=ACTOR, node_id=node.id, name="two words")
    assert labels.fabric(actor=ACTOR, node_id=node.id, name="").fabric == ""
    with pytest.raises(Refused) as refused:
        labels.fabric(actor=ACTOR, node_id="node_none", name="x")
    assert refused.value.code == "node_unknown"


def test_a_model_waits_for_a_node_with_its_label_and_runs_there_when_there_is_one() -> None:
    machine = Machine("alpha")
    machine.heartbeat()
    a_model_row(profile={"labels": {"zone": "b"}})
    now = selectors.database_now()
    plan, _ = selectors.statuses(selectors.world(now), now)
    assert "it lacks the label zone=b" in plan.waits[0].message
    labels.label(actor=ACTOR, node_id=machine.node.id, changes={"zone": "b"})
    tick()
    assert Replica.objects.get().node_id == machine.node.id
    labels.label(actor=ACTOR, node_id=machine.node.id, changes={"zone": None})
    tick()
    assert Replica.objects.get().run  # asked for when it is placed; what runs stays


def test_they_are_set_and_shown_by_the_admin_api(admin_client: Client) -> None:
    machine = Machine("alpha")
    path, kind = "/api/v1/nodes/alpha", "application/json"
    answer = admin_client.post(f"{path}/label", {"labels": {"zone": "b", "rack": "1"}}, content_type=kind)
    assert (answer.status_code, answer.json()["labels"]) == (200, {"zone": "b", "rack": "1"})
    answer = admin_client.post(f"{path}/label", {"labels": {"rack": None}, "reason": "moved"}, content_type=kind)
    assert answer.json()["labels"] == {"zone": "b"}
    answer = admin_client.post(f"{path}/fabric", {"fabric": "ib-1"}, content_type=kind)
    assert answer.json()["fabric"] == "ib-1"
    assert admin_client.post(f"{path}/label", {"labels": {"a b": "c"}}, content_type=kind).status_code == 400
    assert admin_client.post(f"{path}/label", {"labels": []}, content_type=kind).status_code == 400
    assert admin_client.post(f"{path}/fabric", {}, content_type=kind).status_code == 400
    assert Client().post(f"{path}/label", {"labels": {}}, content_type=kind).status_code in (401, 403)
    assert machine.node.id == admin_client.get(path).json()["id"]
