"""/api/v1/budgets."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from cluster.selectors import database_now
from routing import services
from tests.routing.test_services import a_record
from tests.rows import a_key, a_user

pytestmark = pytest.mark.django_db


def put(client: Client, path: str, body: dict[str, Any]) -> Any:
    return client.put(f"/api/v1/budgets/{path}", body, content_type="application/json")


def test_budgets_are_set_changed_listed_and_removed(admin_client: Client) -> None:
    key, _ = a_key("bot")
    made = put(admin_client, "key:bot/day", {"amount": "12.5", "zone": "Europe/Berlin", "why": "launch"})
    assert made.status_code == 200, made.content
    row = made.json()
    assert (row["kind"], row["amount"], row["zone"], row["hard"], row["warn_at"]) == (
        "key", "12.500000", "Europe/Berlin", True, 0.8,
    )  # fmt: skip
    assert put(admin_client, "bot/day", {"hard": False}).json()["amount"] == "12.500000"
    team = key.project.team
    assert put(admin_client, f"{team.pk}/month", {"amount": 1}).json()["path"] == [team.organisation.name, team.name]
    fields = {"started_at": database_now(), "key_id": key.pk, "project_id": key.project_id, "cost": 13_000_000}
    services.store_usage(node_id="n", records=[a_record("a", **fields)])
    rows = admin_client.get("/api/v1/budgets").json()["results"]
    assert [(row["kind"], row["spent"], row["standing"]) for row in rows] == [
        ("team", "13.000000", "spent"),
        ("key", "13.000000", "spent"),
    ]
    assert admin_client.delete("/api/v1/budgets/bot/day").status_code == 204
    assert admin_client.get("/api/v1/budgets/bot/day").status_code == 404
    assert admin_client.get("/api/v1/budgets/bot/month").status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("bot/week", {"amount": 1}, 400),
        ("bot/day", {}, 400),
        ("bot/day", {"amount": "much"}, 400),
        ("bot/day", {"amount": 1, "zone": "nowhere"}, 400),
        ("bot/day", {"amount": 1, "colour": "red"}, 400),
        ("nobody/day", {"amount": 1}, 404),
    ],
)
def test_what_is_wrong_is_refused(admin_client: Client, path: str, body: dict[str, Any], status: int) -> None:
    a_key("bot")
    assert put(admin_client, path, body).status_code == status


def test_setting_one_needs_both_permissions(client: Client) -> None:
    a_key("bot")
    client.force_login(a_user("ann", "catalog.add_budget"))
    assert put(client, "bot/day", {"amount": 1}).status_code == 403
    client.force_login(a_user("bob", "catalog.add_budget", "catalog.change_budget"))
    assert put(client, "bot/day", {"amount": 1}).status_code == 200
    assert client.get("/api/v1/budgets").status_code == 403
