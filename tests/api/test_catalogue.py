"""The catalogue's endpoints: what they answer, and what they do with bad input."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from catalog import selectors
from catalog.domain.keys import digest
from catalog.models import ApiKey, Event, Model, Profile
from catalog.services import keys, served
from tests.api.calls import Caller, a_caller
from tests.rows import ACTOR, a_key, a_model, a_project, a_version
from tests.tiny import tiny_gguf

pytestmark = pytest.mark.django_db


@pytest.fixture
def caller() -> Caller:
    return a_caller()


def test_a_tree_of_scopes_by_names(caller: Caller) -> None:
    assert caller("POST", "organisations", {"name": "acme"}).status == 201
    team = caller("POST", "teams", {"name": "web", "organisation": "acme"})
    assert (team.status, team.body["organisation_name"]) == (201, "acme")
    project = caller("POST", "projects", {"name": "shop", "team": team.body["id"]})
    assert project.body["team_name"] == "web"
    assert caller("GET", f"projects?team={team.body['id']}").body["count"] == 1
    assert caller("GET", "projects?team=nowhere").status == 404
    assert caller("PATCH", "projects/shop", {"name": "store"}).body["name"] == "store"
    assert caller("DELETE", "projects/store").status == 204
    assert caller("GET", "projects/store").status == 404


def test_each_scope_has_a_list_of_models(caller: Caller) -> None:
    project = a_project()
    for path in ("organisations/org of main", "teams/team of main", "projects/main"):
        assert caller("GET", path).body["allowed_models"] is None
        assert caller("PATCH", path, {"allowed_models": ["a/b", "c"]}).body["allowed_models"] == ["a/b", "c"]
        assert caller("PATCH", path, {"allowed_models": []}).body["error"]["param"] == "allowed_models"
        assert caller("PATCH", path, {"models": ["a"]}).code == "unknown_field"
    team = {"name": "t", "organisation": "org of main", "allowed_models": ["a/b"]}
    assert caller("POST", "teams", team).body["allowed_models"] == ["a/b"]
    assert caller("PATCH", "projects/main", {"allowed_models": None}).body["allowed_models"] is None
    view = {item.scope_id: item.models for item in selectors.tenancy_views()}
    assert view[project.team.organisation_id] == ("a/b", "c")
    assert view[project.pk] is None


def test_each_scope_has_a_class_which_what_is_in_it_takes_over(caller: Caller) -> None:
    project = a_project()
    paths = ("organisations/org of main", "teams/team of main", "projects/main")
    assert caller("PATCH", paths[0], {"priority_class": "critical"}).body["priority_class"] == "critical"
    assert [caller("GET", path).body["effective_class"] for path in paths] == ["critical"] * 3
    assert caller("GET", paths[2]).body["priority_class"] == ""
    assert caller("PATCH", paths[2], {"priority_class": "opportunistic"}).body["effective_class"] == "opportunistic"
    assert caller("PATCH", paths[2], {"priority_class": "urgent"}).body["error"]["param"] == "priority_class"
    assert caller("PATCH", paths[2], {"priority_class": None}).status == 400
    made = caller("POST", "projects", {"name": "n", "team": "team of main", "priority_class": "standard"})
    assert (made.body["priority_class"], made.body["effective_class"]) == ("standard", "standard")
    view = {item.scope_id: item.priority_class for item in selectors.tenancy_views()}
    assert (view[project.team.organisation_id], view[project.team_id], view[project.pk]) == (
        "critical",
        "",
        "opportunistic",
    )


def test_a_key_is_shown_once(caller: Caller) -> None:
    a_project()
    made = caller("POST", "keys", {"name": "bot", "models": ["a/b"]})
    assert made.status == 201
    text = made.body["key"]
    assert text.startswith("sk-llmgw-")
    for path in ("keys", "keys/bot", "events"):
        answer = caller("GET", path)
        assert text not in str(answer.body)
        assert ApiKey.objects.get().sha256 not in str(answer.body)
    assert caller("GET", "keys/bot").body["models"] == ["a/b"]
    assert caller("PATCH", "keys/bot", {"name": "x"}).status == 405
    assert caller("DELETE", "keys/bot").status == 204
    assert caller("GET", "keys/bot").body["revoked_at"]
    assert [caller("GET", f"keys?active={flag}").body["count"] for flag in ("true", "false")] == [0, 1]
    assert caller("GET", "keys?active=perhaps").code == "invalid_value"


def test_a_rotated_key_is_shown_as_one_with_both_beginnings(caller: Caller) -> None:
    a_project()
    first = caller("POST", "keys", {"name": "bot"}).body["key"]
    assert caller("POST", "keys/bot/rotate", {}).code == "missing_field"
    answer = caller("POST", "keys/bot/rotate", {"grace": 600, "why": "leaked"})
    assert answer.status == 200
    second = answer.body["key"]
    assert second != first
    shown = caller("GET", "keys/bot").body
    assert (shown["prefix"], shown["former_prefix"]) == (second[:15], first[:15])
    assert shown["former_until"] > shown["rotated_at"]
    assert caller("GET", "keys").body["count"] == 1
    for path in ("keys", "keys/bot", "events"):
        told = str(caller("GET", path).body)
        assert not any(text in told for text in (first, second, digest(first)))
    assert caller("DELETE", "keys/bot").status == 204
    assert caller("POST", "keys/bot/rotate", {"grace": 0}).code == "key_ended"


def test_a_key_may_be_one_user_s(caller: Caller) -> None:
    a_project()
    assert caller("POST", "keys", {"name": "bot", "user": "root"}).body["user"] == "root"
    assert caller("GET", "keys/bot").body["user"] == "root"
    assert caller("POST", "keys", {"name": "x", "user": "nobody"}).body["error"]["param"] == "user"
    assert caller("POST", "keys", {"name": "project's"}).body["user"] is None


def test_a_name_means_the_live_key_before_revoked_ones(caller: Caller) -> None:
    project = a_project()
    for _ in range(2):
        keys.revoke(actor=ACTOR, key=a_key("bot", project=project)[0])
    live, _ = a_key("bot", project=project)
    assert caller("GET", "keys/bot").body["id"] == live.pk
    assert caller("DELETE", "keys/bot").status == 204
    assert caller("DELETE", "keys/bot").code == "ambiguous_name"


def test_a_model_goes_by_its_id_or_its_name_with_slashes(caller: Caller) -> None:
    made = caller(
        "POST",
        "models",
        {"name": "org/tiny:1", "weights_path": str(tiny_gguf()), "profile": {"context": 512, "slots": 2}},
    )
    assert made.status == 201
    assert made.body["facts"]["layers"] == 2
    assert made.body["profiles"][0]["context"] == 512
    for ref in ("org/tiny:1", "org%2Ftiny:1", made.body["id"]):
        assert caller("GET", f"models/{ref}").body["id"] == made.body["id"]
    assert caller("POST", "models/org/tiny:1/disable", {"why": "tests"}).body["enabled"] is False
    assert caller("POST", "models/org/tiny:1/disable").status == 200, "a body may be left out"
    assert [caller("GET", f"models?enabled={flag}").body["count"] for flag in ("1", "0")] == [0, 1]
    assert caller("POST", f"models/{made.body['id']}/enable", {}).body["enabled"] is True
    event = Event.objects.get(kind="model_disabled")
    assert (event.why, event.actor.startswith("token:at-llmgw-"), event.actor.endswith("(user root)")) == (
        "tests",
        True,
        True,
    )
    assert caller("PATCH", "models/org/tiny:1", {"name": "renamed"}).body["name"] == "renamed"
    assert caller("DELETE", "models/renamed").status == 204
    assert not Profile.objects.exists()


def test_a_model_whose_weights_are_fetched_says_from_where(caller: Caller) -> None:
    old, new = a_version(projector="p.gguf"), a_version(commit="d" * 40)
    model = a_model("vision", version=old)
    a_model("plain")
    shown = caller("GET", "models/vision").body
    assert shown["version"] == {
        "id": old.pk, "registry": "https://huggingface.co", "repository": "acme/tiny-GGUF", "commit": "c" * 40,
        "format": "gguf", "quantization": "Q4_K_M", "size": old.size, "first": "tiny-Q4_K_M.gguf", "projector": "p.gguf",
        "created_at": shown["version"]["created_at"],
    }  # fmt: skip
    assert (shown["previous"], shown["weights_path"], shown["weights_size"]) == (None, "", old.size)
    served.update(actor=ACTOR, model=model, version=new, previous=old)
    shown = caller("GET", "models/vision").body
    assert (shown["version"]["id"], shown["previous"]["id"]) == (new.pk, old.pk)
    assert caller("GET", "models/plain").body["version"] is None
    assert caller("PATCH", "models/vision", {"version": old.pk}).status == 400
    assert caller("PATCH", "models/vision", {"description": "sees"}).body["version"]["id"] == new.pk


def test_a_model_may_be_called_like_an_action_and_goes_by_its_id_then(caller: Caller) -> None:
    model = a_model("x/enable")
    assert caller("GET", f"models/{model.pk}").body["name"] == "x/enable"


def test_profiles_stand_below_their_model_and_in_a_list_of_all(caller: Caller) -> None:
    a_model("a"), a_model("b")
    made = caller(
        "POST", "models/a/profiles", {"name": "big", "memory": 64 << 20, "priority": 5, "env": {"OMP_PLACES": "cores"}}
    )
    assert (made.status, made.body["model_name"]) == (201, "a")
    assert [row["name"] for row in caller("GET", "models/a/profiles").body["results"]] == ["big", "default"]
    assert caller("GET", "profiles").body["count"] == 3
    assert caller("GET", "profiles/default").code == "ambiguous_name"
    assert caller("PATCH", f"profiles/{made.body['id']}", {"threads": 2}).body["threads"] == 2
    assert caller("PATCH", "models/a/profiles/big", {"args": ["--tools"]}).code == "arg_not_allowed"
    assert caller("DELETE", "models/b/profiles/big").status == 404
    assert caller("DELETE", "models/a/profiles/big").status == 204
    assert caller("POST", "models/nowhere/profiles", {"name": "x"}).status == 404


def test_events_are_read_and_filtered_and_nothing_else(caller: Caller) -> None:
    model = a_model()
    caller("POST", "models/tiny/disable", {})
    assert caller("GET", "events?kind=model_disabled").body["count"] == 1
    assert caller("GET", f"events?subject={model.pk}").body["count"] == 2
    assert caller("GET", f"events?subject={model.pk}&actor=token:").body["count"] == 1
    assert caller("GET", "events?subject_kind=profile").body["count"] == 1
    assert caller("GET", "events?actor=%00").body["count"] == 0
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert caller(method, "events", {}).status == 405


def test_lists_come_in_pages(caller: Caller) -> None:
    for number in range(5):
        a_model(f"m{number}")
    first = caller("GET", "models?page_size=2").body
    assert (first["count"], len(first["results"]), first["previous"]) == (5, 2, None)
    assert "page=2" in first["next"]
    assert caller("GET", "models?page_size=2&page=3").body["next"] is None
    for page in ("4", "0", "x", "-1", "9" * 400):
        assert caller("GET", f"models?page_size=2&page={page}").status == 404
    assert len(caller("GET", "models?page_size=-5").body["results"]) == 5


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "missing_field", "name"),
        ({"name": None, "weights_path": "/x"}, "invalid_value", "name"),
        ({"name": "", "weights_path": "/x"}, "invalid_value", "name"),
        ({"name": ["m"], "weights_path": "/x"}, "invalid_value", "name"),
        ({"name": "m\0", "weights_path": "/x"}, "invalid_value", "name"),
        ({"name": "m m", "weights_path": "/x"}, "invalid_value", "name"),
        ({"name": "m", "weights_path": {"a": 1}}, "invalid_value", "weights_path"),
        ({"name": "m", "weights_path": "x"}, "invalid_value", "weights_path"),
        ({"name": "m", "weights_path": "/x", "replicas": "many"}, "invalid_value", "replicas"),
        ({"name": "m", "weights_path": "/x", "replicas": 1.5}, "invalid_value", "replicas"),
        ({"name": "m", "weights_path": "/x", "replicas": -1}, "invalid_value", "replicas"),
        ({"name": "m", "weights_path": "/x", "replicas": 10**30}, "invalid_value", "replicas"),
        ({"name": "m", "weights_path": "/x", "weights_size": 1 << 63}, "invalid_value", "weights_size"),
        ({"name": "m", "weights_path": "/x", "enabled": "perhaps"}, "invalid_value", "enabled"),
        ({"name": "m", "weights_path": "/x", "facts": {}}, "unknown_field", "facts"),
        ({"name": "m", "weights_path": "/x", "id": "mod_1"}, "unknown_field", "id"),
        ({"name": "m", "weights_path": "/x", "profile": []}, "invalid_value", "profile"),
        ({"name": "m", "weights_path": "/x", "profile": {"slots": 0}}, "invalid_value", "profile.slots"),
        ({"name": "m", "weights_path": "/x", "profile": {"x": 0}}, "unknown_field", "profile.x"),
        ({"name": "m", "weights_path": "/x", "profile": {"args": [["a"]]}}, "invalid_value", "profile.args.0"),
        ({"name": "m", "weights_path": "/x", "profile": {"env": {"A": []}}}, "invalid_value", "profile.env.A"),
        ({"name": "m", "weights_path": "/x", "profile": {"engine": "magic"}}, "invalid_value", "profile.engine"),
        ({"name": "m", "weights_path": "/x", "project": "nowhere"}, "not_found", None),
    ],
)  # fmt: skip
def test_a_wrong_body_says_which_field_and_writes_nothing(
    caller: Caller, body: dict[str, Any], code: str, param: str | None
) -> None:
    if body.get("replicas") == 10**30:
        answer = caller("POST", "models", raw=b'{"name": "m", "weights_path": "/x", "replicas": 1' + b"0" * 30 + b"}")
    else:
        answer = caller("POST", "models", body)
    assert answer.status == (404 if code == "not_found" else 400)
    assert (answer.code, answer.body["error"]["param"]) == (code, param)
    assert not Model.objects.exists()


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"", 400, "missing_field"),
        (b"{", 400, "invalid_json"),
        (b"\xff\xfe", 400, "invalid_json"),
        (b"[]", 400, "not_an_object"),
        (b'"text"', 400, "not_an_object"),
        (b"null", 400, "not_an_object"),
        (b'{"name": NaN}', 400, "invalid_json"),
        (b'{"name": "\\ud800"}', 400, "invalid_json"),
        (b'{"name": "a", "name": "b"', 400, "invalid_json"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, 400, "json_too_deep"),
        (b"[" * 1_000_000, 400, "json_too_deep"),
        (b'{"name": "' + b"[" * 100 + b'"}', 400, "invalid_value"),  # no name of a model
    ],
    ids=[
        "empty",
        "cut",
        "no utf-8",
        "list",
        "text",
        "null",
        "nan",
        "surrogate",
        "open",
        "deep",
        "deeper",
        "brackets in text",
    ],
)
def test_a_body_that_is_no_object_is_refused(caller: Caller, raw: bytes, status: int, code: str) -> None:
    answer = caller("POST", "models", raw=raw)
    assert (answer.status, answer.code) == (status, code)


def test_a_body_over_the_bound_is_refused(caller: Caller, settings: Any) -> None:
    raw = b'{"name": "' + b"x" * settings.CONFIG.max_body + b'"}'
    assert (caller("POST", "models", raw=raw).status, caller("POST", "models", raw=raw).code) == (413, "body_too_large")


def test_another_content_type_is_refused(caller: Caller) -> None:
    answer = caller("POST", "models", raw=b"name=x", content_type="application/x-www-form-urlencoded")
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


def test_what_is_not_there_is_404_in_json(caller: Caller) -> None:
    for path in ("models/nothing", "models/a%00b", "keys/x", "nowhere", "models/x/y/z/enable"):
        answer = caller("POST" if path.endswith("enable") else "GET", path)
        assert (answer.status, answer.code) == (404, "not_found")


def test_a_wrong_method_says_which_are_right(caller: Caller) -> None:
    answer = caller("PUT", "models", {})
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert "POST" in answer.headers["allow"]


def test_an_api_key_is_told_that_it_is_the_wrong_kind() -> None:
    answer = Caller(a_key()[1])("GET", "models")
    assert (answer.status, answer.code) == (401, "admin_token_needed")
    assert "at-llmgw-" in answer.body["error"]["message"]
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("token", ["at-llmgw-" + "x" * 43, "nonsense", "at-llmgw-\u00e9", "x" * 10_000])
def test_an_unknown_token_is_401(token: str) -> None:
    assert Caller(token)("GET", "models").status == 401


def test_the_console_session_works_too_and_needs_the_csrf_token() -> None:
    a_caller("root")
    client = Client(enforce_csrf_checks=True)
    client.force_login(get_user_model().objects.get(username="root"))
    assert client.get("/api/v1/models").status_code == 200
    answer = client.post("/api/v1/organisations", {"name": "o"}, content_type="application/json")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "permission_denied")


def test_a_defect_of_ours_shows_an_id_and_nothing_else(caller: Caller, monkeypatch: Any, caplog: Any) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("the secret inside")

    monkeypatch.setattr("catalog.services.served.add_model", broken)
    answer = caller(
        "POST", "models", {"name": "m", "weights_path": "/x", "weights_size": 64}, **{"x-request-id": "req-7"}
    )
    assert (answer.status, answer.code) == (500, "internal_error")
    assert "secret" not in str(answer.body)
    assert "req-7" in answer.body["error"]["message"]
    assert any(record.exc_info and record.f["request_id"] == "req-7" for record in caplog.records)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_time_that_is_no_number_is_refused_as_what_it_is(value: str) -> None:
    a_model()
    answer = a_caller()("PATCH", "models/tiny/profiles/default", {"start_timeout": value})
    assert (answer.status, answer.code) == (400, "invalid_value")
    assert answer.body["error"]["param"] == "start_timeout"
