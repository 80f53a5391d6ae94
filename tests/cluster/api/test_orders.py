"""/api/v1/models/…/restart, retry, scale, target, why: what is answered to whom."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from cluster.models import ModelStanding
from tests.cluster.rows import a_model_row, a_ready_replica

pytestmark = pytest.mark.django_db
ORDERS = ["restart", "retry", "scale", "target"]


def post(client: Client, order: str, body: Any = None, *, name: str = "small") -> Any:
    return client.post(f"/api/v1/models/{name}/{order}", body or {}, content_type="application/json")


@pytest.fixture
def admin(admin_client: Client) -> Client:
    return admin_client


@pytest.mark.parametrize("order", ORDERS)
def test_who_may_only_look_gives_no_orders(client: Client, order: str) -> None:
    a_ready_replica()
    assert post(client, order).status_code == 401
    user = User.objects.create_user("reader", password="x")
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_model", "view_replica"]))
    client.force_login(user)
    assert post(client, order).json()["error"]["code"] == "permission_denied"
    assert client.get("/api/v1/models/small/why").status_code == 200


def test_orders_answer_what_will_be(admin: Client) -> None:
    a_ready_replica("org/small")
    name = "org/small"
    assert post(admin, "restart", name=name).json() == {"replicas": 1}
    answer = post(admin, "scale", {"max_replicas": 4, "rest_after": 30}, name=name)
    assert answer.status_code == 200
    assert {key: answer.json()[key] for key in ("replicas", "max_replicas", "rest_after")} == {
        "replicas": 1,
        "max_replicas": 4,
        "rest_after": 30.0,
    }
    assert admin.get(f"/api/v1/models/{name}").json()["max_replicas"] == 4
    for order, body, status, code in (
        ("retry", {}, 409, "nothing_to_retry"),
        ("target", {"tps": 10}, 409, "not_measured"),
        ("target", {}, 400, "missing_field"),
        ("scale", {"replicas": 400}, 409, "min_not_placeable"),
        ("scale", {"replicas": -1}, 400, "invalid_value"),
        ("scale", {"minimum": 1}, 400, "unknown_field"),
    ):
        answer = post(admin, order, body, name=name)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert post(admin, "restart", name="nobody").status_code == 404


def test_a_min_that_finds_no_place_is_refused_as_a_change_of_the_model_too(admin: Client) -> None:
    a_ready_replica()
    answer = admin.patch("/api/v1/models/small", {"replicas": 400, "description": "d"}, content_type="application/json")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (409, "min_not_placeable", "replicas")
    assert "small cannot have 400 replicas now" in error["message"]
    told = admin.get("/api/v1/models/small").json()
    assert (told["replicas"], told["description"]) == (1, "")
    answer = admin.patch("/api/v1/models/small", {"replicas": 2}, content_type="application/json")
    assert (answer.status_code, answer.json()["replicas"]) == (200, 2)


def test_why_tells_status_standing_waits_and_decisions(admin: Client) -> None:
    row = a_model_row()
    ModelStanding.objects.create(model=row, parked_at=1.0, failures=5, parked_code="engine_start_failed")
    told = admin.get("/api/v1/models/small/why").json()
    assert told["status"] == {"wanted": 1, "ready": 0, "code": "no_node", "reason": told["status"]["reason"]}
    assert told["klass"] == "standard"
    assert told["standing"]["failures"] == 5
    assert [wait["code"] for wait in told["waits"]] == ["no_node"]
    assert told["decisions"] == []
