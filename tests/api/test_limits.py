"""/api/v1/limits: put, listed, shown, removed; what is wrong is refused by field."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from catalog.models import Event, Limit
from catalog.services import keys, roles, scopes
from tests.rows import a_user

pytestmark = pytest.mark.django_db
PATH = "/api/v1/limits"


@pytest.fixture
def tree() -> tuple[Any, ...]:
    organisation = scopes.create_organisation(actor="t", name="acme")
    team = scopes.create_team(actor="t", organisation=organisation, name="search")
    project = scopes.create_project(actor="t", team=team, name="web")
    return organisation, team, project, keys.issue(actor="t", project=project, name="ci")[0]


def put(client: Client, ref: str, body: Any) -> Any:
    return client.put(f"{PATH}/{ref}", body, content_type="application/json")


def test_a_limit_is_put_listed_shown_and_removed(admin_client: Client, tree: Any) -> None:
    answer = put(admin_client, "key:ci", {"requests_per_minute": 60, "parallel": 0, "why": "as agreed"})
    assert answer.status_code == 200, answer.content
    shown = answer.json()
    assert shown == {
        "id": tree[3].pk,
        "kind": "key",
        "name": "ci",
        "path": ["acme", "search", "web", "ci"],
        "requests_per_minute": 60,
        "tokens_per_minute": None,
        "parallel": 0,
    }
    assert admin_client.get(f"{PATH}/{tree[3].pk}").json() == shown
    assert put(admin_client, "acme", {"tokens_per_minute": 5}).status_code == 200
    listed = admin_client.get(PATH).json()
    assert [row["name"] for row in listed["results"]] == ["acme", "ci"]
    assert put(admin_client, "ci", {"tokens_per_minute": 7}).json()["requests_per_minute"] is None
    assert Event.objects.filter(kind="limit_changed").count() == 1
    assert admin_client.delete(f"{PATH}/ci").status_code == 204
    assert admin_client.get(f"{PATH}/ci").status_code == 404


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "requests_per_minute"),
        ({"requests_per_minute": -1}, "requests_per_minute"),
        ({"parallel": "many"}, "parallel"),
        ({"tokens": 5}, "tokens"),
        ({"parallel": 1 << 60}, "parallel"),
    ],
)
def test_what_is_wrong_is_refused_by_field(admin_client: Client, tree: Any, body: Any, param: str) -> None:
    answer = put(admin_client, "acme", body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert not Limit.objects.exists()


def test_setting_one_needs_both_permissions(client: Client, tree: Any) -> None:
    user = User.objects.create_user("ops", password="long-enough", is_staff=True)
    client.force_login(user)
    for codename in ("view_limit", "add_limit"):
        user.user_permissions.add(Permission.objects.get(codename=codename))
        assert put(client, "acme", {"parallel": 1}).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="change_limit"))
    assert put(client, "acme", {"parallel": 1}).status_code == 200


@pytest.mark.parametrize(("what", "body"), [("limits", {"parallel": 3}), ("budgets", {"amount": "5"})])
def test_roles_of_scopes_see_what_is_in_them_and_set_what_is_below(
    client: Client, tree: Any, what: str, body: Any
) -> None:
    """How much a scope may use is said by somebody above it; what is elsewhere is as if it were not there."""
    organisation, team, project, key = tree
    other = keys.issue(
        actor="t", project=scopes.create_project(actor="t", team=scopes.create_team(
            actor="t", organisation=organisation, name="else"), name="shop"), name="ci",
    )[0]  # fmt: skip
    more = "/day" if what == "budgets" else ""

    def path(row: Any) -> str:
        return f"/api/v1/{what}/{row.pk}{more}"

    def ask(row: Any) -> int:
        return client.put(path(row), body, content_type="application/json").status_code

    client.force_login(a_user("root", superuser=True))
    assert [ask(row) for row in (organisation, team, project, key, other)] == [200] * 5
    client.force_login(ann := a_user("ann"))
    assert client.get(f"/api/v1/{what}").status_code == 403
    grant = roles.give(actor="t", user=ann, role="viewer", scope=team)
    listed = client.get(f"/api/v1/{what}").json()["results"]
    assert [row["id"] for row in listed] == [team.pk, project.pk, key.pk]
    assert [client.get(path(row)).status_code for row in (team, key, organisation, other)] == [200, 200, 404, 404]
    assert client.get(f"/api/v1/{what}/key:ci{more}").json()["id"] == key.pk  # the other one is not there
    assert [ask(row) for row in (team, project, key, other)] == [403, 403, 403, 403]
    roles.take(actor="t", grant=grant)
    roles.give(actor="t", user=ann, role="admin", scope=team)
    assert [ask(row) for row in (team, project, key, organisation, other)] == [403, 200, 200, 404, 404]
    assert client.delete(path(team)).status_code == 403
    assert client.delete(path(other)).status_code == 404
    assert client.delete(path(key)).status_code == 204
