"""/api/v1/usage and its summary."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from routing import selectors, services
from routing.admin import UsagePages
from tests.routing.test_services import a_record
from tests.rows import a_key

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
    found = admin_client.get("/api/v1/usage/summary?by=key&model=m1&since=2023-11-01").json()
    assert {row["value"]: row["requests"] for row in found["results"]} == {"key_1": 1, "key_2": 1}


@pytest.mark.parametrize(
    ("query", "count"),
    [("", 0), ("until=2023-11-14T23:00:00Z", 3), ("until=2023-11-15T22:14:00Z", 2), ("until=0001-01-01T00:00:00Z", 0)],
)
def test_a_summary_is_of_one_day_where_nobody_says_since_when(admin_client: Client, query: str, count: int) -> None:
    """It reads records, of which there may be ten millions each day."""
    found = admin_client.get(f"/api/v1/usage/summary?{query}").json()
    assert sum(row["requests"] for row in found["results"]) == count


PAGE = "/admin/routing/usagerecord/"


@pytest.mark.parametrize("path", ["/api/v1/usage?model=m1", PAGE, f"{PAGE}?q=r-a", f"{PAGE}?model_asked=m1"])
def test_no_list_of_records_reads_them_all(admin_client: Client, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UsagePages, "list_per_page", 1)  # a page of several
    with CaptureQueriesContext(connection) as queries:
        assert admin_client.get(path).status_code == 200
    read = [query["sql"] for query in queries if 'FROM "routing_usagerecord"' in query["sql"]]
    assert read
    assert all("LIMIT" in sql or "q=" in path for sql in read), read  # what is found by ids is one page
    assert not any("DISTINCT" in sql for sql in read)


def test_a_list_counts_no_further_than_it_turns_pages(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "MOST_COUNTED", 2)
    found = admin_client.get("/api/v1/usage?page_size=1").json()
    assert (found["count"], len(found["results"])) == (2, 1)
    assert admin_client.get("/api/v1/usage?page_size=1&page=3").status_code == 404


def test_records_are_found_by_whole_ids_and_by_what_keys_are_called(admin_client: Client) -> None:
    key, _ = a_key("bot")
    services.store_usage(
        node_id="n", records=[a_record("d", request_id="r-d", key_id=key.pk, project_id=key.project_id)]
    )
    for text in ("d", "r-d", key.pk, key.prefix, f"{key.prefix}and-more", "bot", key.project_id):
        page = admin_client.get(PAGE, {"q": text}).content.decode()
        assert ("usagerecord/d/" in page, "usagerecord/a/" in page) == (True, False), text
    assert "usagerecord/d/" not in admin_client.get(PAGE, {"q": "r"}).content.decode()


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
