"""/api/v1/cluster/setup, and cordon, drain, uncordon of nodes."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from cluster.domain.modules import ModuleReport
from cluster.models import ClusterSetup, Node
from cluster.services import setup
from cluster.wire import CardReport, Hardware
from tests.cluster.rows import Machine, a_ready_replica, report

pytestmark = pytest.mark.django_db
PATH = "/api/v1/cluster/setup"
HEAD = ["controller", "router", "edge"]


@pytest.fixture
def head() -> Machine:
    machine = Machine("head")
    machine.heartbeat(modules=tuple(ModuleReport(name=name) for name in HEAD), roles=("controller", "edge"))
    return machine


def put(client: Client, body: Any) -> Any:
    return client.put(PATH, body, content_type="application/json")


def post(client: Client, path: str, body: Any = None) -> Any:
    return client.post(f"/api/v1/nodes/{path}", body or {}, content_type="application/json")


@pytest.mark.usefixtures("head")
def test_the_setup_is_shown_put_and_cleared(admin_client: Client) -> None:
    empty = {"controller_tier": [], "nodes": {}, "version": 0, "updated_at": None, "updated_by": ""}
    assert admin_client.get(PATH).json() == empty
    answer = put(admin_client, {"controller_tier": ["data"], "nodes": {"head": HEAD}, "version": 0})
    assert answer.status_code == 200
    shown = answer.json()
    assert shown["nodes"] == {"head": ["controller", "edge", "router"]}
    assert (shown["controller_tier"], shown["version"], shown["updated_by"]) == (["data"], 1, "user:admin")
    assert admin_client.get(PATH).json() == shown
    cleared = put(admin_client, {}).json()
    assert (cleared["controller_tier"], cleared["nodes"], cleared["version"]) == ([], {}, 2)


@pytest.mark.usefixtures("head")
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"nodes": {"head": ["emperor"]}}, 400, "unknown_role"),
        ({"nodes": {"x": ["edge"]}}, 400, "unknown_node"),
        ({"nodes": {"head": ["edge", "router"]}}, 409, "setup_without_controller"),
        ({"nodes": {"head": ["controller", "edge"]}}, 409, "edge_without_upstream"),
        ({"nodes": {"head": HEAD}, "version": 5}, 409, "setup_changed"),
        ({"nodes": {"head": "edge"}}, 400, "invalid_value"),
        ({"nodes": ["head"]}, 400, "invalid_value"),
        ({"tier": []}, 400, "unknown_field"),
        ({"nodes": {"\x00": ["edge"]}}, 400, "unknown_node"),
    ],
)
def test_what_is_refused_changes_nothing(admin_client: Client, body: Any, status: int, code: str) -> None:
    answer = put(admin_client, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert not ClusterSetup.objects.exists()


def test_a_reader_looks_and_changes_nothing(client: Client, head: Machine) -> None:
    user = User.objects.create_user("reader", password="x")
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_node", "view_clustersetup"]))
    client.force_login(user)
    assert client.get(PATH).status_code == 200
    assert put(client, {}).status_code == 403
    for verb in ("cordon", "drain", "uncordon"):
        assert post(client, f"head/{verb}").status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="change_node"))
    client.force_login(User.objects.get(id=user.id))
    assert post(client, "head/cordon").status_code == 200


def test_a_node_shows_roles_modules_and_who_gives_them(admin_client: Client, head: Machine) -> None:
    shown = admin_client.get("/api/v1/nodes/head").json()
    assert shown["roles"] == ["controller", "edge"]
    assert shown["assigned_roles"] is None
    assert shown["modules"][0] == {"name": "controller", "state": "running", "code": "", "message": ""}
    assert 0 <= shown["last_seen_age_s"] < 60
    setup.put(actor="t", controller_tier=[], nodes={"head": HEAD})
    assert admin_client.get("/api/v1/nodes/head").json()["assigned_roles"] == ["controller", "edge", "router"]


def test_maintenance_is_set_shown_and_ended(admin_client: Client, head: Machine) -> None:
    shown = post(admin_client, "head/drain", {"reason": "new disk"}).json()
    assert (shown["maintenance"], shown["maintenance_why"], shown["maintenance_by"]) == (
        "drained",
        "new disk",
        "user:admin",
    )
    assert shown["maintenance_at"]
    assert post(admin_client, f"{head.node.id}/cordon").json()["maintenance"] == "cordoned"
    assert post(admin_client, "head/uncordon").json()["maintenance"] == ""
    assert post(admin_client, "nobody/cordon").status_code == 404


def test_a_card_is_named_by_its_uuid(admin_client: Client, head: Machine) -> None:
    head.heartbeat(hardware=Hardware(cores=4, cards=(CardReport(uuid="GPU-1"),)))
    shown = post(admin_client, "head/cordon", {"card": "GPU-1", "reason": "XID"}).json()
    assert shown["maintenance"] == ""
    assert shown["cards_maintenance"]["GPU-1"]["why"] == "XID"
    wrong = post(admin_client, "head/cordon", {"card": "GPU-2"})
    assert (wrong.status_code, wrong.json()["error"]["code"], wrong.json()["error"]["param"]) == (
        400,
        "unknown_card",
        "card",
    )


def test_a_drained_node_shows_what_cannot_leave_it(admin_client: Client) -> None:
    machine, row = a_ready_replica()
    shown = post(admin_client, f"{machine.node.name}/drain", {"reason": "disk"}).json()
    assert [(item["replica"], item["model"]) for item in shown["waiting_to_move"]] == [(row.id, "small")]
    assert "no suitable node for small" in shown["waiting_to_move"][0]["message"]
    machine.heartbeat(report(row, "ready"))
    assert admin_client.get("/api/v1/nodes").json()["results"][0]["waiting_to_move"]
    assert post(admin_client, f"{machine.node.name}/uncordon").json()["waiting_to_move"] == []


def test_a_drained_node_can_be_taken_out(admin_client: Client, head: Machine) -> None:
    name = Machine("gpu1").node.name
    post(admin_client, f"{name}/drain")
    assert admin_client.delete(f"/api/v1/nodes/{name}").status_code == 204


def test_the_only_controller_cannot_be_taken_out(admin_client: Client, head: Machine) -> None:
    Machine("gpu1").heartbeat()
    answer = admin_client.delete("/api/v1/nodes/head")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "last_controller")
    assert Node.objects.get(name="head").removed_at is None
