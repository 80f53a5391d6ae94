"""/providers and external models over the admin API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core import serializers

from catalog.models import Event, Model, Provider
from catalog.services import providers
from tests.api.calls import Caller, a_caller
from tests.rows import a_provider

pytestmark = pytest.mark.django_db

KEY = "sk-provider-51f0c2"
ACME = {"name": "acme", "url": "https://api.example.com/v1"}


@pytest.fixture
def caller() -> Caller:
    return a_caller(superuser=True)


def test_a_provider_from_adding_to_removing(caller: Caller) -> None:
    made = caller("POST", "providers", {**ACME, "api_key": KEY})
    assert made.status == 201
    assert set(made.body) == {"id", "name", "url", "key_set", "api_key_file", "enabled", "created_at", "updated_at"}
    assert (made.body["key_set"], made.body["enabled"]) == (True, True)
    assert caller("GET", "providers/acme").body == caller("GET", f"providers/{made.body['id']}").body
    assert caller("PATCH", "providers/acme", {"enabled": False}).body["enabled"] is False
    assert caller("PUT", "providers/acme/key", {"key": "sk-next"}).body["key_set"] is True
    row = Provider.objects.get()
    assert providers.unsealed(row.pk, row.sealed_key) == "sk-next"
    assert caller("DELETE", "providers/acme/key").status == 204
    assert caller("GET", "providers").body["results"][0]["key_set"] is False
    assert caller("DELETE", "providers/acme").status == 204
    assert caller("GET", "providers").body["results"] == []


def test_f31_a_providers_key_is_found_nowhere(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    answers = [
        caller("POST", "providers", {**ACME, "api_key": KEY}),
        caller("PUT", "providers/acme/key", {"key": KEY}),
        caller("PUT", "providers/acme/key", {"key": KEY, "more": 1}),
        caller("PUT", "providers/acme/key", {"key": f"{KEY} {KEY}"}),
        caller("PUT", "providers/acme/key", {"key": KEY * 400}),
        caller("PATCH", "providers/acme", {"api_key": KEY}),
        caller("POST", "providers", {**ACME, "api_key": KEY}),
        caller("POST", "providers", {**ACME, "name": "b", "api_key": [KEY]}),
        caller("GET", "providers"),
        caller("GET", "providers/acme"),
        caller("GET", "events"),
        caller("DELETE", "providers/acme"),
        caller("GET", "events"),
    ]
    assert [answer.status for answer in answers] == [201, 200, 400, 400, 400, 400, 409, 400, 200, 200, 200, 204, 200]
    told = json.dumps([answer.body for answer in answers])
    rows = serializers.serialize("json", [*Provider.objects.all(), *Event.objects.all()])
    for where in (told, rows, caplog.text):
        assert KEY not in where
    assert "sealed_key" not in told


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"name": "", "url": "https://x/v1"}, "invalid_value", "name"),
        ({"name": "a"}, "missing_field", "url"),
        ({"name": "a", "url": "ftp://x"}, "invalid_value", "url"),
        ({"name": "a", "url": "https://u:p@x/v1"}, "invalid_value", "url"),
        ({**ACME, "sealed_key": "x"}, "unknown_field", "sealed_key"),
        ({**ACME, "api_key_file": "x"}, "invalid_value", "api_key_file"),
        ({**ACME, "api_key": "two words"}, "invalid_value", "api_key"),
        ({**ACME, "enabled": "perhaps"}, "invalid_value", "enabled"),
    ],
)
def test_what_is_no_provider_is_refused(body: dict[str, Any], code: str, param: str, caller: Caller) -> None:
    answer = caller("POST", "providers", body)
    assert (answer.status, answer.code, answer.body["error"]["param"]) == (400, code, param)
    assert not Provider.objects.exists()


def test_what_does_not_fit_the_state_is_a_conflict(caller: Caller) -> None:
    caller("POST", "providers", {**ACME, "api_key": KEY})
    for method, path, body, code in (
        ("POST", "providers", ACME, "name_taken"),
        ("POST", "providers", {**ACME, "name": "b", "api_key": KEY, "api_key_file": "/k"}, "provider_has_key"),
        ("PATCH", "providers/acme", {"api_key_file": "/k"}, "provider_has_key"),
        ("PATCH", "providers/acme", {"url": "https://elsewhere.example.com/v1"}, "provider_key_set"),
    ):
        answer = caller(method, path, body)
        assert (answer.status, answer.code) == (409, code)


def test_an_external_model_from_adding_to_removing(caller: Caller) -> None:
    provider = a_provider()
    made = caller("POST", "models", {"name": "gpt", "provider": "acme", "provider_model": "gpt-9", "idle_timeout": 900})
    assert made.status == 201
    shown = {name: made.body[name] for name in ("provider", "provider_name", "provider_model", "replicas", "profiles")}
    assert shown == {
        "provider": provider.pk, "provider_name": "acme", "provider_model": "gpt-9", "replicas": 0, "profiles": []
    }  # fmt: skip
    assert made.body["idle_timeout"] == 900
    assert caller("DELETE", "providers/acme").code == "still_in_use"
    assert caller("POST", "models/gpt/profiles", {}).code == "model_is_external"
    assert caller("PATCH", "models/gpt", {"provider_model": "gpt-10"}).body["provider_model"] == "gpt-10"
    assert caller("DELETE", "models/gpt").status == 204
    assert caller("DELETE", "providers/acme").status == 204


@pytest.mark.parametrize(
    "body",
    [
        {"provider": "acme", "provider_model": "m", "weights_path": "/x.gguf"},
        {"provider": "acme"},
        {"provider_model": "m"},
        {"weights_path": "/x.gguf", "provider_model": "m"},
        {},
    ],
)
def test_weights_or_a_provider(body: dict[str, Any], caller: Caller) -> None:
    a_provider()
    answer = caller("POST", "models", {"name": "gpt", **body})
    assert (answer.status, answer.code) == (400, "invalid_value")
    assert not Model.objects.exists()


def test_a_profile_names_its_nodes(caller: Caller) -> None:
    caller(
        "POST", "models", {"name": "m", "weights_path": "/x.gguf", "weights_size": 64, "profile": {"nodes": ["alpha"]}}
    )
    assert caller("GET", "models/m").body["profiles"][0]["nodes"] == ["alpha"]
    assert caller("PATCH", "models/m/profiles/default", {"nodes": []}).body["nodes"] == []
    assert caller("PATCH", "models/m/profiles/default", {"nodes": "alpha"}).code == "invalid_value"
