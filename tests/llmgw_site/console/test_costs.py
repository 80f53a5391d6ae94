"""The page of usage and costs, and that of one request."""

from __future__ import annotations

import html
import re
from decimal import Decimal

import pytest
from django.test import Client

from catalog.models import RoleGrant
from catalog.services import budgets
from cluster.selectors import database_now
from routing import services
from tests.routing.test_services import a_record
from tests.rows import a_key, a_user

pytestmark = pytest.mark.django_db


def text_of(client: Client, path: str) -> str:
    page = html.unescape(client.get(path).content.decode())
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


@pytest.fixture(autouse=True)
def key() -> object:
    key, _ = a_key("bot")
    fields = {"started_at": database_now(), "key_id": key.pk, "project_id": key.project_id, "model_served": "m1"}
    fields |= {"model_asked": "m1", "queue_s": 0.5, "first_token_s": 1.0, "total_s": 3.0, "stream": True}
    batch = [
        a_record("rec_a", request_id="req-1", cost=8_500_000, **fields),
        a_record("rec_b", request_id="req-1", cost=None, **fields),
        a_record(
            "rec_c",
            request_id="req-2",
            audio_seconds=3600,
            **{**fields, "project_id": "proj_gone", "key_id": "key_gone"},
        ),
    ]
    services.store_usage(node_id="n", records=batch)
    budgets.put(actor="t", of=key, period="month", amount=Decimal(10))
    return key


def test_usage_shows_sums_tables_and_budgets(admin_client: Client) -> None:
    text = text_of(admin_client, "/admin/usage")
    for words in (
        "8.50 USD",
        "Cost by day",
        "m1 3",
        "bot 2",
        "nearly spent 85 % once spent, refused",
        "of 10.00 USD",
    ):
        assert words in text
    assert "% from caches; 3,600 s of sound" in text
    for days in ("7", "365", "no", "99999"):
        assert admin_client.get(f"/admin/usage?days={days}").status_code == 200


def test_one_request_shows_its_time_in_parts(admin_client: Client) -> None:
    text = text_of(admin_client, "/admin/requests/rec_a")
    for words in (
        "req-1",
        "In the queue 500 ms",
        "Until its first token 500 ms",
        "Until its end 2.0 s",
        "8.50 USD",
        "rec_b",
        "stream true",
    ):
        assert words in text
    assert admin_client.get("/admin/requests/none").status_code == 404
    assert "Sound" not in text
    assert "Sound 3,600 s" in text_of(admin_client, "/admin/requests/req-2")


def test_who_sees_one_project_sees_no_more(client: Client, key: object) -> None:
    user = a_user("ann")
    RoleGrant.objects.create(user=user, role="viewer", project=key.project)  # type: ignore[attr-defined]
    client.force_login(user)
    text = text_of(client, "/admin/usage")
    assert "m1 2" in text
    assert "key_gone" not in text
    assert "of 10.00 USD" in text  # the budget of a key in it
    assert client.get("/admin/requests/req-1").status_code == 200
    assert client.get("/admin/requests/req-2").status_code == 404
    client.force_login(a_user("bob"))
    assert client.get("/admin/usage").status_code == 403
