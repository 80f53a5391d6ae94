"""/api/v1/usage and its summary."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from routing import services
from tests.routing.test_services import a_record

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def records() -> None:
    services.store_usage(
        node_id="n",
        records=[
            a_record("a", model_asked="m1", key_id="key_1", request_id="r-a"),
            a_record("b", model_asked="m1", key_id="key_2", outcome="failed", started_at=1_700_000_060.0),
            a_record("c", model_asked="m2", key_id="key_1", started_at=1_700_000_120.0),
        ],
    )


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("", "cba"),
        ("model=m1", "ba"),
        ("key=key_1", "ca"),
        ("outcome=failed", "b"),
        ("request_id=r-a", "a"),
        ("since=2023-11-14T22:14:20Z", "cb"),
        ("until=2023-11-14T22:14:20Z", "a"),
        ("since=2023-11-14T22:14:20Z&until=2023-11-14T22:15:20Z", "b"),
        ("model=none", ""),
        ("model=%00", ""),
    ],
)
def test_records_are_listed_newest_first_by_filter(admin_client: Client, query: str, ids: str) -> None:
    found = admin_client.get(f"/api/v1/usage?{query}").json()
    assert "".join(row["record_id"] for row in found["results"]) == ids


def test_a_summary_is_by_the_column_asked_for(admin_client: Client) -> None:
    found = admin_client.get("/api/v1/usage/summary?by=key&model=m1").json()
    assert {row["value"]: row["requests"] for row in found["results"]} == {"key_1": 1, "key_2": 1}


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("by=colour", "by"),
        ("since=soon", "since"),
        ("until=2023-13-45", "until"),
        ("since=0001-01-01T00:00:00%2B23:59", "since"),
    ],
)
def test_a_wrong_filter_is_refused_by_name(admin_client: Client, query: str, param: Any) -> None:
    response = admin_client.get(f"/api/v1/usage/summary?{query}")
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
