"""Who may do what in the catalogue's part of the admin API, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.calls import Caller, a_caller
from tests.rows import a_key, a_model, a_project, a_provider, a_token, a_user

pytestmark = pytest.mark.django_db

MATRIX: list[tuple[str, str, Any, str, int]] = [
    # method, path, body, permission that opens it, status then
    ("GET", "organisations", None, "view_organisation", 200),
    ("POST", "organisations", {"name": "o"}, "add_organisation", 201),
    ("PATCH", "organisations/org of main", {"name": "o"}, "change_organisation", 200),
    ("DELETE", "organisations/org of main", None, "delete_organisation", 409),
    ("GET", "teams", None, "view_team", 200),
    ("POST", "teams", {"name": "t", "organisation": "org of main"}, "add_team", 201),
    ("PATCH", "teams/team of main", {"name": "t"}, "change_team", 200),
    ("DELETE", "teams/team of main", None, "delete_team", 409),
    ("GET", "projects", None, "view_project", 200),
    ("POST", "projects", {"name": "p", "team": "team of main"}, "add_project", 201),
    ("PATCH", "projects/main", {"name": "p"}, "change_project", 200),
    ("DELETE", "projects/main", None, "delete_project", 409),
    ("GET", "keys", None, "view_apikey", 200),
    ("GET", "keys/bot", None, "view_apikey", 200),
    ("POST", "keys", {"name": "k"}, "add_apikey", 201),
    ("POST", "keys/bot/rotate", {"grace": 60}, "change_apikey", 200),
    ("DELETE", "keys/bot", None, "delete_apikey", 204),
    ("GET", "limits", None, "view_limit", 200),
    ("GET", "tokens", None, "view_admintoken", 200),
    ("POST", "tokens", {"name": "t"}, "add_admintoken", 201),
    ("DELETE", "tokens/mine", None, "delete_admintoken", 204),
    ("GET", "models", None, "view_model", 200),
    ("GET", "models/tiny", None, "view_model", 200),
    ("POST", "models", {"name": "m", "weights_path": "/x.gguf", "weights_size": 64}, "add_model", 201),
    ("PATCH", "models/tiny", {"max_replicas": 2}, "change_model", 200),
    ("DELETE", "models/tiny", None, "delete_model", 204),
    ("POST", "models/tiny/enable", {}, "change_model", 200),
    ("POST", "models/tiny/disable", {}, "change_model", 200),
    ("GET", "models/tiny/profiles", None, "view_profile", 200),
    ("POST", "models/tiny/profiles", {"name": "p", "memory": 64 << 20}, "add_profile", 201),
    ("GET", "models/tiny/profiles/default", None, "view_profile", 200),
    ("PATCH", "models/tiny/profiles/default", {"slots": 2}, "change_profile", 200),
    ("DELETE", "models/tiny/profiles/default", None, "delete_profile", 204),
    ("GET", "providers", None, "view_provider", 200),
    ("GET", "providers/acme", None, "view_provider", 200),
    ("POST", "providers", {"name": "p", "url": "https://example.com/v1"}, "add_provider", 201),
    ("PATCH", "providers/acme", {"enabled": False}, "change_provider", 200),
    ("DELETE", "providers/acme", None, "delete_provider", 204),
    ("PUT", "providers/acme/key", {"key": "sk-1"}, "change_provider", 200),
    ("DELETE", "providers/acme/key", None, "change_provider", 204),
    ("GET", "profiles", None, "view_profile", 200),
    ("GET", "profiles/default", None, "view_profile", 200),
    ("PATCH", "profiles/default", {"slots": 2}, "change_profile", 200),
    ("DELETE", "profiles/default", None, "delete_profile", 204),
    ("GET", "events", None, "view_event", 200),
]
ALL = ["view", "add", "change", "delete"]
NOUNS = ["organisation", "team", "project", "apikey", "admintoken", "model", "profile", "provider", "event"]


def everything_but(permission: str) -> list[str]:
    every = {f"{verb}_{noun}" for verb in ALL for noun in NOUNS}
    return [f"catalog.{name}" for name in sorted(every - {permission})]


@pytest.fixture
def rows() -> None:
    project = a_project()
    a_key("bot", project=project)
    a_model()
    a_provider()


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(("method", "path", "body", "permission", "status"), MATRIX, ids=lambda v: str(v)[:40])
def test_one_permission_opens_one_door(method: str, path: str, body: Any, permission: str, status: int) -> None:
    assert Caller("")(method, path, body).status == 401
    without = a_user("without", *everything_but(permission))
    a_token(without, "mine")
    answer = Caller(a_token(without))(method, path, body)
    assert (answer.status, answer.code) == (403, "permission_denied")
    assert permission in answer.body["error"]["message"]
    user = a_user("with", f"catalog.{permission}")
    a_token(user, "mine")
    assert Caller(a_token(user))(method, path, body).status == status


@pytest.mark.usefixtures("rows")
def test_a_superuser_may_everything_that_the_table_lists() -> None:
    caller = a_caller()
    for method, path, body, _, _ in MATRIX:
        if method == "GET":
            assert caller(method, path, body).status == 200


def test_tokens_are_ones_own_unless_one_may_manage_all() -> None:
    own = ["catalog.view_admintoken", "catalog.add_admintoken", "catalog.delete_admintoken"]
    ann, bob = a_user("ann", *own), a_user("bob", *own)
    chief = a_user("chief", *own, "catalog.manage_all_tokens")
    root = a_user("root", superuser=True)
    for user in (ann, bob, chief, root):
        a_token(user, f"of {user.username}")
    as_ann, as_chief, as_root = (Caller(a_token(user, "t")) for user in (ann, chief, root))

    assert {row["user"] for row in as_ann("GET", "tokens").body["results"]} == {"ann"}
    assert as_ann("DELETE", "tokens/of bob").status == 404
    assert as_ann("POST", "tokens", {"name": "x", "user": "bob"}).code == "permission_denied"
    assert as_ann("POST", "tokens", {"name": "x", "user": "ann"}).body["user"] == "ann"

    assert {row["user"] for row in as_chief("GET", "tokens").body["results"]} == {"ann", "bob", "chief", "root"}
    assert as_chief("POST", "tokens", {"name": "x", "user": "bob"}).body["user"] == "bob"
    assert as_chief("POST", "tokens", {"name": "x", "user": "root"}).code == "permission_denied"
    assert as_chief("POST", "tokens", {"name": "x", "user": "nobody"}).code == "invalid_value"
    assert as_chief("DELETE", "tokens/of bob").status == 204
    assert as_root("POST", "tokens", {"name": "x", "user": "root"}).status == 201
