"""/api/v1/quotas: set, shown with what is held, refused with the sums; and a limit in what a model waits for."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from catalog.models import Event, Quota
from catalog.services import scopes, served
from cluster import selectors
from cluster.models import Replica
from cluster.services import nodes
from cluster.wire import CardReport, Hardware
from llmgw_site.lib.units import GIB
from tests.cluster.rows import Machine, a_model_row, a_ready_replica, tick

pytestmark = pytest.mark.django_db
PATH = "/api/v1/quotas"


@pytest.fixture
def tree() -> tuple[Any, Any, Any]:
    organisation = scopes.create_organisation(actor="t", name="acme")
    team = scopes.create_team(actor="t", organisation=organisation, name="search")
    return organisation, team, scopes.create_project(actor="t", team=team, name="web")


def put(client: Client, ref: str, body: Any) -> Any:
    return client.put(f"{PATH}/{ref}", body, content_type="application/json")


def test_a_quota_is_put_listed_shown_and_removed(admin_client: Client, tree: Any) -> None:
    machine, _ = a_ready_replica()
    served.update(actor="t", model=Replica.objects.get().model, project=tree[2])
    assert admin_client.get(PATH).json()["results"] == []
    answer = put(admin_client, "search", {"guarantee": {"memory": GIB // 2}, "limit": {"cores": 4}, "why": "as agreed"})
    assert answer.status_code == 200, answer.content
    shown = answer.json()
    assert shown == {
        "scope": tree[1].pk,
        "kind": "team",
        "name": "search",
        "path": ["acme", "search"],
        "guarantee": {"memory": GIB // 2},
        "limit": {"cores": 4},
        "held": {"memory": GIB},
        "borrowed": {"memory": GIB - GIB // 2},
        "models": [],
        "problems": [],
    }
    assert admin_client.get(f"{PATH}/{tree[1].pk}").json() == shown
    listed = admin_client.get(PATH).json()
    assert (listed["results"], listed["count"]) == ([shown], 1)
    assert put(admin_client, "team:search", {"limit": {"cores": 3}}).json()["guarantee"] == {}
    assert Event.objects.filter(kind="quota_changed").count() == 1
    assert admin_client.delete(f"{PATH}/search").status_code == 204
    assert admin_client.get(f"{PATH}/search").status_code == 404
    assert admin_client.delete(f"{PATH}/search").json()["error"]["code"] == "not_found"
    assert not Quota.objects.exists()
    assert machine.node.name


def test_a_guarantee_over_the_fleet_is_refused_with_the_sums_and_changes_nothing(
    admin_client: Client, tree: Any
) -> None:
    card = CardReport(uuid="GPU-1", name="NVIDIA L4", memory_total=24 * GIB)
    hardware = Hardware(cores=4, memory_total=8 * GIB, memory_available=8 * GIB, cards=(card,))
    Machine().heartbeat(hardware=hardware)
    other = scopes.create_organisation(actor="t", name="umbrella")
    assert put(admin_client, "acme", {"guarantee": {"cards": {"NVIDIA L4": 1}, "cores": 3}}).status_code == 200
    answer = put(admin_client, "umbrella", {"guarantee": {"cores": 2}})
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "guarantees_over_fleet"
    message = "The guarantees add up to 5 cores (acme 3, umbrella 2), and the fleet has 4."
    assert answer.json()["error"]["message"] == message
    answer = put(admin_client, "umbrella", {"guarantee": {"cards": {"H100": 1}}})
    assert "the fleet has none: its cards are of NVIDIA L4" in answer.json()["error"]["message"]
    answer = put(admin_client, "web", {"guarantee": {"cores": 4}})
    assert answer.json()["error"]["code"] == "guarantees_over_parent"
    answer = put(admin_client, "acme", {"guarantee": {"cores": 3}, "limit": {"cores": 2}})
    assert answer.json()["error"]["code"] == "guarantee_over_limit"
    assert Quota.objects.get().organisation == tree[0]
    assert not Quota.objects.filter(organisation=other).exists()
    assert Event.objects.filter(subject_kind="quota").count() == 1


def test_when_the_fleet_has_shrunk_it_says_so_and_a_smaller_guarantee_goes_through(
    admin_client: Client, tree: Any
) -> None:
    first, second = Machine(), Machine()
    for machine in (first, second):
        machine.heartbeat()
    put(admin_client, "acme", {"guarantee": {"cores": 8}})
    nodes.remove(node_id=second.node.id, actor="t")
    (shown,) = admin_client.get(PATH).json()["results"]
    assert shown["problems"] == ["the guarantees add up to 8 cores (acme 8), and the fleet has 4"]
    assert put(admin_client, "acme", {"guarantee": {"cores": 9}}).status_code == 409
    assert put(admin_client, "acme", {"guarantee": {"cores": 6}}).status_code == 200
    assert put(admin_client, "search", {"limit": {"cores": 1}}).status_code == 200
    assert admin_client.delete(f"{PATH}/acme").status_code == 204


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "invalid_value", "guarantee"),
        ({"guarantee": {"cores": -1}}, "invalid_value", "guarantee"),
        ({"guarantee": {"gpus": 1}}, "unknown_field", "guarantee"),
        ({"guarantee": {"cards": {"L4": "many"}}}, "invalid_value", "guarantee"),
        ({"guarantee": 5}, "invalid_value", "guarantee"),
        ({"limits": {}}, "unknown_field", "limits"),
    ],
)
@pytest.mark.usefixtures("tree")
def test_what_is_malformed_is_refused(admin_client: Client, body: Any, code: str, param: str) -> None:
    answer = put(admin_client, "acme", body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == code, error
    assert (error["param"] or "").startswith(param), error


@pytest.mark.usefixtures("tree")
def test_each_verb_wants_its_permission() -> None:
    user = User.objects.create_user("somebody", password="x", is_staff=True)
    client = Client()
    assert client.get(PATH).status_code == 401
    client.force_login(user)
    for verb, names in (("get", ["view_quota"]), ("put", ["add_quota", "change_quota"]), ("delete", ["delete_quota"])):
        call = {
            "get": lambda: client.get(PATH),
            "put": lambda: put(client, "acme", {"limit": {"cores": 1}}),
            "delete": lambda: client.delete(f"{PATH}/acme"),
        }[verb]
        assert call().status_code == 403
        for name in names:
            user.user_permissions.add(Permission.objects.get(codename=name))
        client.force_login(User.objects.get(pk=user.pk))
        assert call().status_code in (200, 204)


def test_a_limit_stops_a_model_before_it_starts_and_its_status_says_the_sums(admin_client: Client, tree: Any) -> None:
    Machine().heartbeat()
    put(admin_client, "search", {"limit": {"memory": GIB + 1}})
    first, second = a_model_row("first", team=tree[1]), a_model_row("second", project=tree[2])
    tick()
    assert [row.model_id for row in Replica.objects.all()] == [first.pk]
    now = selectors.database_now()
    _, found = selectors.statuses(selectors.world(now), now)
    assert found[second.pk].code == "over_limit"
    assert found[second.pk].reason == (
        "the team search may have at most 1.0 GiB of memory, it holds 1.0 GiB (first 1.0 GiB), and one more replica of "
        "second takes 1.0 GiB: raise the limit with `llmgw quota set team:search`, or let another of its models rest"
    )
    put(admin_client, "search", {"limit": {"memory": 2 * GIB}})
    tick()
    assert Replica.objects.count() == 2
