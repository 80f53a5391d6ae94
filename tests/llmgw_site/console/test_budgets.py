"""The budgets page and its form."""

from __future__ import annotations

import html
import re
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from catalog.models import Budget, Event
from catalog.services import budgets
from cluster.selectors import database_now
from routing import services
from tests.llmgw_site.console.conftest import Person
from tests.routing.test_services import a_record
from tests.rows import a_key

pytestmark = pytest.mark.django_db
PAGE = "/admin/budgets"


@pytest.fixture
def key() -> Any:
    return a_key("bot")[0]


def text_of(client: Client, path: str = PAGE) -> str:
    page = html.unescape(client.get(path, follow=True).content.decode())
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def spend(key: Any, units: float) -> None:
    fields = {"started_at": database_now(), "key_id": key.pk, "project_id": key.project_id, "model_served": "m"}
    services.store_usage(node_id="n", records=[a_record("rec", cost=int(units * 1_000_000), **fields)])


def test_without_budgets_the_page_says_what_that_means(admin: Client, key: Any) -> None:
    assert "No budget is set" in text_of(admin)
    assert "bot" in text_of(admin)


def test_a_budget_is_set_by_the_form_shown_and_removed(admin: Client, key: Any) -> None:
    path = f"{PAGE}/set?of={key.pk}&period=day"
    assert "Time zone of its midnight" in text_of(admin, path)
    form = {"amount": "1,000.50", "warn_at": "90 %", "hard": "no", "zone": "Europe/Berlin", "why": "deal"}
    assert "The budget of bot is set." in admin.post(path, form, follow=True).content.decode()
    row = Budget.objects.get()
    assert (row.amount, row.warn_at, row.hard, row.zone, row.period) == (Decimal("1000.5"), 0.9, False, "Europe/Berlin", "day")  # fmt: skip
    assert Event.objects.get(kind="budget_added").why == "deal"
    values = re.findall(r'name="(amount|warn_at|zone)" value="([^"]*)"', admin.get(path).content.decode())
    assert values == [("amount", "1000.5"), ("warn_at", "90"), ("zone", "Europe/Berlin")]
    admin.post(path, {**form, "warn_at": "", "zone": ""})
    row.refresh_from_db()
    assert (row.warn_at, row.zone) == (None, "UTC")
    assert "bot has no budget any more." in admin.post(f"{PAGE}/remove?of={key.pk}&period=day", follow=True).content.decode()  # fmt: skip
    assert "(not_found)" in admin.post(f"{PAGE}/remove?of={key.pk}&period=day", follow=True).content.decode()


def test_what_is_spent_is_drawn_against_the_amount_with_the_line_where_it_is_told(admin: Client, key: Any) -> None:
    budgets.put(actor="t", of=key, period="month", amount=Decimal(10), zone="Asia/Tokyo")
    spend(key, 8.5)
    page = admin.get(PAGE).content.decode()
    for drawn in ('class="within warn" style="--v:85.0%"', 'class="over" style="--v:0.0%"', 'class="told" style="--v:80.0%"'):  # fmt: skip
        assert drawn in page
    text = text_of(admin)
    assert "8.50 USD of 10.00 USD" in text
    assert "nearly spent 85 %" in text
    assert "00:00 Asia/Tokyo" in text  # its own midnight
    budgets.put(actor="t", of=key, period="month", amount=Decimal("4.25"))
    page = admin.get(PAGE).content.decode()
    for drawn in ('class="within bad" style="--v:50.0%"', 'class="over" style="--v:50.0%"', 'class="told" style="--v:40.0%"'):  # fmt: skip
        assert drawn in page


@pytest.mark.parametrize(
    ("form", "field", "said"),
    [
        ({"amount": ""}, "amount", "Say how much"),
        ({"amount": "much"}, "amount", "'much' is no amount"),
        ({"amount": "NaN"}, "amount", "'NaN' is no amount"),
        ({"amount": "-1"}, "amount", "Ensure this value is greater than or equal to 0"),
        ({"amount": "5", "warn_at": "150"}, "warn_at", "Write percent from 0 to 100"),
        ({"amount": "5", "warn_at": "late"}, "warn_at", "Write percent from 0 to 100"),
        ({"amount": "5", "zone": "Mars/Base"}, "zone", "There is no time zone 'Mars/Base'"),
    ],
)
def test_what_is_wrong_stands_beside_its_field_and_what_was_typed_stays(
    admin: Client, key: Any, form: dict[str, str], field: str, said: str
) -> None:
    answer = admin.post(f"{PAGE}/set?of={key.pk}&period=month", {"hard": "no", "why": "deal", **form})
    page = html.unescape(answer.content.decode())
    assert answer.status_code == 409
    assert f'id="error-{field}">{said}' in page
    for name, value in form.items():
        assert f'name="{name}" value="{value}"' in page
    assert '<option value="no" selected>' in page
    assert not Budget.objects.exists()


def test_a_period_that_is_none_is_refused(admin: Client, key: Any) -> None:
    answer = admin.post(f"{PAGE}/set?of={key.pk}&period=week", {"amount": "5"})
    assert answer.status_code == 409
    assert "period: write day or month" in answer.content.decode()


def test_who_may_only_look_sees_no_form(person: Person, key: Any) -> None:
    budgets.put(actor="t", of=key, period="month", amount=Decimal(10))
    client = person("catalog.view_budget")
    assert "of 10.00 USD" in text_of(client)
    assert "/admin/budgets/set" not in client.get(PAGE).content.decode()
    assert client.get(f"{PAGE}/set?of={key.pk}&period=month").status_code == 403
