"""/api/v1/aliases: added, listed, changed, removed; what is wrong is refused by field; who may."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from catalog.models import Alias, Event
from catalog.services import roles
from tests.rows import ACTOR, a_model, a_token, a_user

pytestmark = pytest.mark.django_db
PATH = "/api/v1/aliases"


@pytest.fixture(autouse=True)
def models() -> None:
    a_model("org/tiny:v1")
    a_model("small")


def post(client: Client, body: Any) -> Any:
    return client.post(PATH, body, content_type="application/json")


BODY = {"name": "chat", "targets": [{"model": "org/tiny:v1", "weight": 3}, {"model": "small"}]}


def test_an_alias_is_added_listed_changed_and_removed(admin_client: Client) -> None:
    answer = post(admin_client, {**BODY, "description": "for agents", "why": "a canary"})
    assert answer.status_code == 201, answer.content
    made = answer.json()
    assert [(item["model"], item["weight"], item["share"]) for item in made["targets"]] == [
        ("org/tiny:v1", 3, 0.75),
        ("small", 1, 0.25),
    ]
    assert made["description"] == "for agents"
    assert Event.objects.get(kind="alias_added").why == "a canary"
    assert admin_client.get(PATH).json()["results"] == [made]
    assert admin_client.get(f"{PATH}/chat").json() == admin_client.get(f"{PATH}/{made['id']}").json() == made
    body = {"name": "team/chat", "targets": [{"model": "small", "weight": 5}]}
    answer = admin_client.patch(f"{PATH}/chat", body, content_type="application/json")
    assert answer.status_code == 200, answer.content
    assert [item["share"] for item in answer.json()["targets"]] == [1.0]
    assert admin_client.get(f"{PATH}/chat").status_code == 404
    assert admin_client.delete(f"{PATH}/team/chat").status_code == 204
    assert not Alias.objects.exists()


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({**BODY, "name": "small"}, 409, "name_taken", "name"),
        ({"name": "chat"}, 400, "missing_field", "targets"),
        ({**BODY, "targets": []}, 400, "invalid_value", "targets"),
        ({**BODY, "targets": [{"model": "small", "weight": 0}]}, 400, "invalid_value", "targets"),
        ({**BODY, "targets": [{"model": "absent"}]}, 400, "invalid_value", "targets"),
        ({**BODY, "enabled": True}, 400, "unknown_field", "enabled"),
    ],
)
def test_what_is_wrong_is_refused_by_field(
    admin_client: Client, body: dict[str, Any], status: int, code: str, param: str
) -> None:
    answer = post(admin_client, body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], str(error["param"]).split(".")[0]) == (status, code, param)


def test_operators_of_the_cluster_may_and_viewers_and_people_of_a_scope_may_not(client: Client) -> None:
    from tests.rows import a_project

    project = a_project()
    for name, role, scope, seen, made in (
        ("op", "operator", None, 200, 201),
        ("see", "viewer", None, 200, 403),
        ("own", "admin", project, 403, 403),
    ):
        user = a_user(name)
        roles.give(actor=ACTOR, user=user, role=role, scope=scope)
        headers: Any = {"HTTP_AUTHORIZATION": f"Bearer {a_token(user, name)}"}
        assert client.get(PATH, **headers).status_code == seen
        answer = client.post(PATH, {**BODY, "name": name}, content_type="application/json", **headers)
        assert answer.status_code == made, answer.content
