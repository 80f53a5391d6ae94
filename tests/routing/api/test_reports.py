"""/api/v1/usage/report and /api/v1/requests/{id}."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.models import RoleGrant
from routing import services
from routing.models import UsageDay, UsageQuarter, UsageRecord
from tests.routing.test_services import a_record
from tests.rows import a_key, a_project, a_user

pytestmark = pytest.mark.django_db
DAY = 86_400
WHEN = "since=2023-11-01&until=2023-12-01"


@pytest.fixture
def key() -> Any:
    project = a_project("shop")
    key, _ = a_key("bot", project=project)
    fields = {"key_id": key.pk, "project_id": project.pk, "model_asked": "m1", "model_served": "m1", "cost": 1_500_000}
    services.store_usage(
        node_id="n",
        records=[
            a_record("a", request_id="r-a", queue_s=0.5, first_token_s=1.0, total_s=3.0, stream=True, **fields),
            a_record("b", request_id="r-a", started_at=1_700_000_000.0 + DAY, **{**fields, "model_served": "m2"}),
            a_record("c", request_id="r-c", model_asked="gone", outcome="refused", project_id="proj_x", key_id="key_x"),
        ],
    )
    return key


def rows(client: Client, query: str) -> Any:
    return client.get(f"/api/v1/usage/report?{WHEN}&{query}").json()


def test_a_report_adds_up_by_what_is_asked(admin_client: Client, key: Any) -> None:
    by_model = rows(admin_client, "by=model")
    assert [(row["model"], row["requests"], row["cost"]) for row in by_model["results"]] == [
        ("m1", 2, 3_000_000),
        ("", 1, 0),
    ]
    assert (by_model["currency"], by_model["total"]["requests"], by_model["total"]["prompt_tokens"]) == ("USD", 3, 9)
    by_day = rows(admin_client, "by=day,served&model=m1")["results"]
    assert [(row["day"], row["served"]) for row in by_day] == [("2023-11-14", "m1"), ("2023-11-15", "m2")]
    (row,) = rows(admin_client, f"by=key,project,team,organisation&key={key.pk}")["results"]
    assert (row["key_name"], row["project_name"], row["team_name"]) == ("bot", "shop", "team of shop")
    assert (row["organisation_name"], row["requests"]) == ("org of shop", 2)
    team = key.project.team
    for query in (f"team={team.pk}", f"organisation={team.organisation_id}", f"project={key.project_id}"):
        assert rows(admin_client, f"by=day&{query}")["total"]["requests"] == 2
    by_month = admin_client.get("/api/v1/usage/report?by=month,served&since=2023-01-01&until=2024-01-01").json()[
        "results"
    ]
    assert [(row["month"], row["served"], row["requests"]) for row in by_month] == [
        ("2023-11", "m1", 1), ("2023-11", "m2", 1), ("2023-11", "", 1),
    ]  # fmt: skip
    assert rows(admin_client, "by=team&team=none")["results"] == []
    assert rows(admin_client, "by=organisation")["results"][1]["organisation"] == ""  # its project is gone


def test_a_report_tells_what_an_alias_stood_for(admin_client: Client, key: Any) -> None:
    """An adapter, and a model whose fallback answered: what served is one and the same."""
    fields = {"model_asked": "prod", "model_served": "m1"}
    services.store_usage(
        node_id="n",
        records=[
            a_record(f"t{n}", **fields, alias_target=target) for n, target in enumerate(("m1", "m1", "pirate", "down"))
        ],
    )
    found = rows(admin_client, "by=target,served&model=prod")["results"]
    assert {(row["target"], row["served"], row["requests"]) for row in found} == {
        ("m1", "m1", 2), ("pirate", "m1", 1), ("down", "m1", 1),
    }  # fmt: skip
    assert rows(admin_client, "by=day&target=pirate")["total"]["requests"] == 1
    assert {row["target"] for row in rows(admin_client, "by=target")["results"]} == {"", "m1", "pirate", "down"}
    table = admin_client.get(f"/api/v1/usage/report?{WHEN}&by=model,target&as=csv").content.decode().splitlines()
    assert table[0].startswith("model,target,requests")


def test_a_report_as_a_table_for_spreadsheets(admin_client: Client, key: Any) -> None:
    evil = {"model_asked": "=cmd()", "model_served": "m", "started_at": 1_700_000_000.0}
    services.store_usage(node_id="n", records=[a_record("x", **evil)])
    answer = admin_client.get(f"/api/v1/usage/report?{WHEN}&by=model,key&as=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    table = list(csv.DictReader(answer.content.decode().splitlines()))
    assert (table[0]["model"], table[0]["key_name"], table[0]["cost"], table[0]["currency"]) == (
        "m1", "bot", "3.000000", "USD",
    )  # fmt: skip
    assert "'=cmd()" in {row["model"] for row in table}
    empty = admin_client.get(
        "/api/v1/usage/report?by=day,key&since=2020-01-01&until=2020-01-02&as=csv"
    ).content.decode()
    assert empty.splitlines()[0].startswith("day,key,key_name,requests,failed")


@pytest.mark.parametrize("name", ['=HYPERLINK("http://x")', "+1", "-1", "@SUM(A1)", "\t=1", "\n=1", "＝1+1"])
def test_no_name_is_a_formula_in_a_spreadsheet(admin_client: Client, key: Any, name: str) -> None:
    type(key).objects.filter(pk=key.pk).update(name=name)
    answer = admin_client.get(f"/api/v1/usage/report?{WHEN}&by=key&as=csv")
    table = list(csv.DictReader(io.StringIO(answer.content.decode(), newline="")))
    assert f"'{name}" in {row["key_name"] for row in table}


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    costs=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.integers(0, services.MOST_COUNTED) | st.none()),
        max_size=12,
    )
)
def test_every_report_adds_up_to_the_costs_of_the_records_to_the_micro_unit(
    admin_client: Client, costs: list[tuple[int, str, int | None]]
) -> None:
    """As JSON, and in the decimals of the table; by whatever it is."""
    for table in (UsageRecord, UsageDay, UsageQuarter):
        table.objects.all().delete()
    batch = [
        a_record(
            f"rec_{n}", started_at=1_700_000_000.0 + day * DAY, project_id=f"proj_{who}", key_id=f"key_{who}",
            model_asked=who, model_served=who, cost=cost,
        )
        for n, (day, who, cost) in enumerate(costs)
    ]  # fmt: skip
    services.store_usage(node_id="n", records=batch)
    exact = sum(record.cost or 0 for record in UsageRecord.objects.all())
    assert exact == sum(cost or 0 for _, _, cost in costs)
    for by in ("day", "month", "key,model", "project,day", "team"):
        report = rows(admin_client, f"by={by}")
        assert report["total"]["cost"] == sum(row["cost"] for row in report["results"]) == exact
        text = admin_client.get(f"/api/v1/usage/report?{WHEN}&by={by}&as=csv").content.decode()
        assert sum(Decimal(row["cost"]) for row in csv.DictReader(io.StringIO(text))) == Decimal(exact).scaleb(-6)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("by=colour", "by"),
        ("by=day,day", "by"),
        ("by=", "by"),
        ("since=soon", "since"),
        ("until=2023-13-45", "until"),
        ("as=pdf", "as"),
    ],
)
def test_a_report_that_cannot_be_is_refused_by_name(admin_client: Client, query: str, param: str) -> None:
    response = admin_client.get(f"/api/v1/usage/report?{query}")
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("until", ["0001-01-01", "0001-01-20", "9999-12-31"])
def test_days_at_the_ends_of_the_calendar_are_days(admin_client: Client, until: str) -> None:
    assert admin_client.get(f"/api/v1/usage/report?until={until}").status_code == 200


def test_one_request_is_followed_by_either_id(admin_client: Client, key: Any) -> None:
    by_record = admin_client.get("/api/v1/requests/a").json()
    assert [(span["name"], span["start_s"], span["length_s"]) for span in by_record["spans"]] == [
        ("queue", 0.0, 0.5),
        ("first_token", 0.5, 0.5),
        ("answer", 1.0, 2.0),
    ]
    assert (by_record["record"]["record_id"], by_record["others"]) == ("a", ["b"])
    assert (by_record["key_name"], by_record["project_name"], by_record["currency"]) == ("bot", "shop", "USD")
    assert (by_record["line"]["request_id"], by_record["line"]["key"], by_record["line"]["cost"]) == (
        "r-a", key.prefix, 1_500_000,
    )  # fmt: skip
    newest = admin_client.get("/api/v1/requests/r-a").json()
    assert (newest["record"]["record_id"], newest["others"]) == ("b", ["a"])
    refused = admin_client.get("/api/v1/requests/r-c").json()
    assert (refused["spans"], refused["project_name"]) == ([], "")


@pytest.mark.parametrize("ref", ["none", "%00", "a%2Fb"])
def test_a_request_that_is_not_there_is_not_found(admin_client: Client, key: Any, ref: str) -> None:
    assert admin_client.get(f"/api/v1/requests/{ref}").status_code == 404


def test_who_sees_one_project_sees_its_requests_and_sums_only(client: Client, key: Any) -> None:
    user = a_user("ann")
    RoleGrant.objects.create(user=user, role="viewer", project=key.project)
    client.force_login(user)
    assert rows(client, "by=model")["total"]["requests"] == 2
    assert client.get("/api/v1/requests/a").status_code == 200
    assert client.get("/api/v1/requests/r-c").status_code == 404
    client.force_login(a_user("bob"))
    assert client.get(f"/api/v1/usage/report?{WHEN}").status_code == 403
    assert client.get("/api/v1/requests/a").status_code == 403
