"""Prices of models: set by the API, told in the snapshot, whole or not at all."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from catalog.models import Event, Model
from catalog.services import served
from llmgw_site.lib.clock import new_id
from llmgw_site.lib.errors import Refused
from routing import services
from routing.domain.snapshot import PriceEntry
from routing.models import PublishedSnapshot
from tests.rows import ACTOR, a_model, a_token, a_user

pytestmark = pytest.mark.django_db


def patch(body: dict[str, Any]) -> Any:
    user = get_user_model().objects.filter(username="root").first() or a_user("root", superuser=True)
    token = a_token(user, new_id("t"))
    return Client().patch(
        "/api/v1/models/tiny",
        json.dumps(body),
        content_type="application/json",
        headers={"authorization": f"Bearer {token}"},
    )


def test_a_price_reaches_nodes_in_whole_micro_units_and_its_change_is_a_new_version() -> None:
    model = a_model()
    first = services.publish()
    served.update(
        actor=ACTOR, model=model, price_input=Decimal("0.15"), price_cached=Decimal(0), price_output=Decimal("0.6")
    )
    assert services.publish() != first
    (told,) = json.loads(PublishedSnapshot.objects.get().payload)["models"]
    assert PriceEntry(**told["price"]) == PriceEntry(input=150_000, output=600_000, cached=0, currency="USD")
    event = Event.objects.filter(kind="model_changed").get()
    assert event.after == {"price_input": "0.15", "price_cached": "0", "price_output": "0.6"}


def test_a_model_can_be_added_with_its_price() -> None:
    model = served.add_model(
        actor=ACTOR,
        name="m",
        weights_path="/srv/m.gguf",
        profile={"memory": 1 << 30},
        price_input=Decimal(1),
        price_output=Decimal(2),
    )
    model.refresh_from_db()
    assert (model.price_input, model.price_cached, model.price_output) == (1, None, 2)


def test_the_api_takes_a_price_and_gives_it_back_exactly() -> None:
    a_model()
    answer = patch({"price_input": "0.000001", "price_output": 1000000})
    assert answer.status_code == 200, answer.content
    assert (answer.json()["price_input"], answer.json()["price_output"]) == ("0.000001", "1000000.000000")
    assert answer.json()["price_cached"] is None
    assert patch({"price_input": None, "price_output": None}).json()["price_input"] is None
    assert Model.objects.get().price_input is None


@pytest.mark.parametrize(
    "body",
    [
        {"price_input": "1"},
        {"price_cached": "1"},
        {"price_input": "-1", "price_output": "1"},
        {"price_input": "1000001", "price_output": "1"},
        {"price_input": "0.0000001", "price_output": "1"},
        {"price_input": "NaN", "price_output": "1"},
        {"price_input": "much", "price_output": "1"},
    ],
)
def test_half_a_price_or_none_that_could_be_one_is_refused(body: dict[str, Any]) -> None:
    a_model()
    answer = patch(body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value")


def test_a_service_refuses_it_too() -> None:
    with pytest.raises(Refused, match="both sides"):
        served.update(actor=ACTOR, model=a_model(), price_output=Decimal(1))
