"""Who may do what in which scope: role x request x scope, as tables; how roles are given and taken."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from catalog.models import ApiKey, Event, Project, RoleGrant
from catalog.services import keys, roles, scopes
from llmgw_site.lib.errors import Refused
from routing.models import UsageRecord
from tests.api.calls import Caller
from tests.rows import ACTOR, a_key, a_model, a_project, a_token, a_user

pytestmark = pytest.mark.django_db

WHO: dict[str, tuple[str, str]] = {
    # who: role, scope (of the tree `main`; `other` is another organisation's)
    "nobody": ("", ""),
    "cluster viewer": ("viewer", "cluster"),
    "cluster operator": ("operator", "cluster"),
    "cluster admin": ("admin", "cluster"),
    "org admin": ("admin", "organisation"),
    "team admin": ("admin", "team"),
    "team operator": ("operator", "team"),
    "project viewer": ("viewer", "project"),
    "project operator": ("operator", "project"),
    "project admin": ("admin", "project"),
}
REQUESTS: dict[str, tuple[str, str, Any]] = {
    "list keys": ("GET", "keys", None),
    "own key": ("GET", "keys/mine", None),
    "other's key": ("GET", "keys/theirs", None),
    "issue own": ("POST", "keys", {"name": "new", "project": "main"}),
    "issue other's": ("POST", "keys", {"name": "new", "project": "other"}),
    "rotate own": ("POST", "keys/mine/rotate", {"grace": 1}),
    "revoke own": ("DELETE", "keys/mine", None),
    "revoke other's": ("DELETE", "keys/theirs", None),
    "own project": ("PATCH", "projects/main", {"allowed_models": ["a"]}),
    "own team": ("PATCH", "teams/team of main", {"allowed_models": ["a"]}),
    "own team's class": ("PATCH", "teams/team of main", {"priority_class": "critical"}),
    "own org": ("PATCH", "organisations/org of main", {"allowed_models": ["a"]}),
    "other project": ("PATCH", "projects/other", {"allowed_models": ["a"]}),
    "add project": ("POST", "projects", {"name": "n", "team": "team of main"}),
    "add team": ("POST", "teams", {"name": "n", "organisation": "org of main"}),
    "add org": ("POST", "organisations", {"name": "n"}),
    "add project elsewhere": ("POST", "projects", {"name": "n", "team": "team of other"}),
    "usage": ("GET", "usage", None),
    "sums": ("GET", "usage/summary", None),
    "own model": ("POST", "models/ours/disable", {}),
    "other's model": ("POST", "models/theirs/disable", {}),
    "change own model": ("PATCH", "models/ours", {"weights_path": "/etc/passwd"}),
    "add model": ("POST", "models", {"name": "m", "weights_path": "/x.gguf", "profile": {"memory": 64 << 20}}),
    "nodes": ("GET", "nodes", None),
    "events": ("GET", "events", None),
    "providers": ("POST", "providers", {"name": "p", "url": "https://example.com/v1"}),
    "role in project": ("POST", "roles", {"user": "carl", "role": "viewer", "scope": "project:main"}),
    "role of team": ("POST", "roles", {"user": "carl", "role": "admin", "scope": "team:team of main"}),
    "role elsewhere": ("POST", "roles", {"user": "carl", "role": "viewer", "scope": "project:other"}),
    "role of cluster": ("POST", "roles", {"user": "carl", "role": "viewer"}),
    "own token": ("POST", "tokens", {"name": "t"}),
    "other's token": ("POST", "tokens", {"name": "t", "user": "carl"}),
}
N, F, OK, MADE, GONE = 404, 403, 200, 201, 204
ORDER = list(WHO)
MATRIX: dict[str, tuple[int, ...]] = {
    #                        nobody viewer oper  admin | org A team A team O proj V proj O proj A
    "list keys":             (F,    OK,    OK,   OK,     OK,   OK,    OK,    OK,    OK,    OK),
    "own key":               (F,    OK,    OK,   OK,     OK,   OK,    OK,    OK,    OK,    OK),
    "other's key":           (F,    OK,    OK,   OK,     N,    N,     N,     N,     N,     N),
    "issue own":             (F,    F,     MADE, MADE,   MADE, MADE,  MADE,  F,     MADE,  MADE),
    "issue other's":         (F,    F,     MADE, MADE,   N,    N,     N,     F,     N,     N),
    "rotate own":            (F,    F,     OK,   OK,     OK,   OK,    OK,    F,     OK,    OK),
    "revoke own":            (F,    F,     GONE, GONE,   GONE, GONE,  GONE,  F,     GONE,  GONE),
    "revoke other's":        (F,    F,     GONE, GONE,   N,    N,     N,     F,     N,     N),
    "own project":           (F,    F,     F,    OK,     OK,   OK,    F,     F,     F,     F),
    "own team":              (F,    F,     F,    OK,     OK,   F,     F,     F,     F,     N),
    "own team's class":      (F,    F,     F,    OK,     F,    F,     F,     F,     F,     N),
    "own org":               (F,    F,     F,    OK,     F,    F,     F,     F,     F,     F),
    "other project":         (F,    F,     F,    OK,     N,    N,     F,     F,     F,     N),
    "add project":           (F,    F,     F,    MADE,   MADE, MADE,  F,     F,     F,     N),
    "add team":              (F,    F,     F,    MADE,   MADE, N,     F,     F,     F,     N),
    "add org":               (F,    F,     F,    MADE,   F,    F,     F,     F,     F,     F),
    "add project elsewhere": (F,    F,     F,    MADE,   N,    N,     F,     F,     F,     N),
    "usage":                 (F,    OK,    OK,   OK,     OK,   OK,    OK,    OK,    OK,    OK),
    "sums":                  (F,    OK,    OK,   OK,     OK,   OK,    OK,    OK,    OK,    OK),
    "own model":             (F,    F,     OK,   OK,     OK,   OK,    OK,    F,     N,     N),
    "other's model":         (F,    F,     OK,   OK,     N,    N,     N,     F,     N,     N),
    "change own model":      (F,    F,     400,  400,    F,    F,     F,     F,     F,     F),
    "add model":             (F,    F,     MADE, MADE,   F,    F,     F,     F,     F,     F),
    "nodes":                 (F,    OK,    OK,   OK,     F,    F,     F,     F,     F,     F),
    "events":                (F,    OK,    OK,   OK,     F,    F,     F,     F,     F,     F),
    "providers":             (F,    F,     F,    MADE,   F,    F,     F,     F,     F,     F),
    "role in project":       (F,    F,     F,    MADE,   MADE, MADE,  F,     F,     F,     MADE),
    "role of team":          (F,    F,     F,    MADE,   MADE, MADE,  F,     F,     F,     N),
    "role elsewhere":        (F,    F,     F,    MADE,   N,    N,     F,     F,     F,     N),
    "role of cluster":       (F,    F,     F,    MADE,   F,    F,     F,     F,     F,     F),
    "own token":             (F,    MADE,  MADE, MADE,   MADE, MADE,  MADE,  MADE,  MADE,  MADE),
    "other's token":         (F,    F,     F,    MADE,   F,    F,     F,     F,     F,     F),
}  # fmt: skip


def scope_of(project: Project, kind: str) -> Any:
    return {
        "cluster": None,
        "organisation": project.team.organisation,
        "team": project.team,
        "project": project,
    }[kind]


@pytest.fixture
def tree() -> Project:
    """Two organisations, each with a key, a record of usage and a model of its team; and carl, who is nobody."""
    main, other = a_project("main"), a_project("other")
    a_user("carl")
    for project, key, model in ((main, "mine", "ours"), (other, "theirs", "theirs")):
        a_key(key, project=project)
        a_model(model, team=project.team)
        UsageRecord.objects.create(
            record_id=f"rec of {project.name}", project_id=project.pk, started_at="2026-01-01T00:00:00Z", status=200,
            model_asked=f"model of {project.name}", endpoint="/v1/chat/completions", outcome="ok", total_s=1.0,
        )  # fmt: skip
    return main


def caller_of(who: str, main: Project) -> Caller:
    role, scope = WHO[who]
    user = a_user("ann")
    if role:
        roles.give(actor=ACTOR, user=user, role=role, scope=scope_of(main, scope))
    return Caller(a_token(user, "the caller's"))


@pytest.mark.parametrize("who", WHO)
def test_every_role_opens_what_the_table_says_and_nothing_else(who: str, tree: Project) -> None:
    """One user makes all requests of a column; what one changes is put back, so that the next finds what it expects."""
    caller, wrong = caller_of(who, tree), {}
    for name, (method, path, body) in REQUESTS.items():
        with transaction.atomic():
            answer = caller(method, path, body)
            transaction.set_rollback(True)
        expected = MATRIX[name][ORDER.index(who)]
        if answer.status != expected:
            wrong[name] = (answer.status, expected, answer.body)
    assert wrong == {}


@pytest.mark.parametrize(
    ("who", "names"),
    [
        ("cluster viewer", {"main", "other"}),
        ("org admin", {"main"}),
        ("team operator", {"main"}),
        ("project viewer", {"main"}),
    ],
)
def test_lists_and_sums_have_only_what_is_in_reach(who: str, names: set[str], tree: Project) -> None:
    caller = caller_of(who, tree)
    assert {row["project_name"] for row in caller("GET", "keys").body["results"]} == names
    assert {row["name"] for row in caller("GET", "projects").body["results"]} == names
    assert {row["model_asked"] for row in caller("GET", "usage").body["results"]} == {f"model of {n}" for n in names}
    sums = caller("GET", "usage/summary?since=2025-12-01T00:00:00Z").body["results"]
    assert {row["value"] for row in sums} == {f"model of {name}" for name in names}
    assert caller("GET", "keys?project=other").status == (200 if "other" in names else 404)
    other = Project.objects.get(name="other")
    listed = caller("GET", f"usage?project={other.pk}").body["count"]
    assert listed == (1 if "other" in names else 0)


def test_who_operates_one_scope_and_views_another_changes_only_the_one(tree: Project) -> None:
    caller = caller_of("team operator", tree)
    user, other = RoleGrant.objects.get().user, Project.objects.get(name="other")
    roles.give(actor=ACTOR, user=user, role="viewer", scope=other)
    assert {row["name"] for row in caller("GET", "keys").body["results"]} == {"mine", "theirs"}
    refused = caller("DELETE", "keys/theirs")
    assert (refused.status, refused.code) == (403, "permission_denied")
    assert "for the key theirs" in refused.body["error"]["message"]
    assert caller("POST", "keys", {"name": "n", "project": "other"}).status == 403
    assert caller("DELETE", "keys/mine").status == 204
    assert ApiKey.objects.get(name="theirs").revoked_at is None


def test_a_role_is_given_changed_and_taken_and_each_step_is_recorded(tree: Project) -> None:
    caller = caller_of("team admin", tree)
    made = caller("POST", "roles", {"user": "carl", "role": "viewer", "scope": "project:main", "why": "joined"})
    assert (made.body["kind"], made.body["scope_name"], made.body["user"]) == ("project", "main", "carl")
    assert caller("POST", "roles", {"user": "carl", "role": "operator", "scope": tree.pk}).body["id"] == made.body["id"]
    assert RoleGrant.objects.get(user__username="carl").role == "operator"
    assert RoleGrant.objects.get(user__username="carl").user.is_staff
    assert {row["user"] for row in caller("GET", "roles").body["results"]} == {"ann", "carl"}
    assert caller("DELETE", f"roles/{made.body['id']}").status == 204
    kinds = Event.objects.filter(subject_kind="role", message__contains="carl").order_by("at", "id")
    assert list(kinds.values_list("kind", flat=True)) == ["role_added", "role_changed", "role_removed"]
    assert (
        caller("POST", "roles", {"user": "nobody", "role": "viewer", "scope": "project:main"}).code == "invalid_value"
    )
    assert caller("POST", "roles", {"user": "carl", "role": "king", "scope": "project:main"}).status == 400


def test_a_role_of_a_removed_scope_is_gone_and_a_deactivated_user_has_none(tree: Project) -> None:
    empty = scopes.create_project(actor=ACTOR, team=tree.team, name="empty")
    user = a_user("dora")
    roles.give(actor=ACTOR, user=user, role="admin", scope=empty)
    scopes.delete(actor=ACTOR, scope=empty)
    assert not RoleGrant.objects.exists()
    roles.give(actor=ACTOR, user=user, role="admin", scope=None)
    assert user.has_perm("catalog.delete_organisation")
    user.is_active = False
    user.save()
    assert not type(user).objects.get(pk=user.pk).has_perm("catalog.delete_organisation")


def test_a_key_is_only_a_user_s_who_is_in_the_project(tree: Project) -> None:
    carl = a_user("carla")
    caller = caller_of("org admin", tree)
    refused = caller("POST", "keys", {"name": "hers", "project": "main", "user": "carla"})
    assert refused.code == "user_not_in_project"
    roles.give(actor=ACTOR, user=carl, role="viewer", scope=tree.team)
    assert caller("POST", "keys", {"name": "hers", "project": "main", "user": "carla"}).body["user"] == "carla"
    other = Project.objects.get(name="other")
    with pytest.raises(Refused):
        keys.issue(actor=ACTOR, project=other, name="no", user=carl)
