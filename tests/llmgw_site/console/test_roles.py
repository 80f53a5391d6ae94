"""The console's pages of scopes, keys, usage and roles, as somebody sees them who has a role of one scope; the page of roles."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from catalog.models import ApiKey, Project, RoleGrant, Team
from catalog.services import roles
from routing.models import UsageRecord
from tests.rows import ACTOR, a_key, a_project, a_user

pytestmark = pytest.mark.django_db
LISTS = {
    "organisation": "/admin/catalog/organisation/",
    "team": "/admin/catalog/team/",
    "project": "/admin/catalog/project/",
    "key": "/admin/catalog/apikey/",
    "usage": "/admin/routing/usagerecord/",
    "role": "/admin/catalog/rolegrant/",
}
CLOSED = ["/admin/nodes", "/admin/jobs", "/admin/setup", "/admin/auth/user/", "/admin/catalog/event/",
          "/admin/catalog/provider/", "/admin/chat"]  # fmt: skip


@pytest.fixture
def tree() -> Project:
    for name in ("main", "other"):
        project = a_project(name)
        a_key(f"key of {name}", project=project)
        UsageRecord.objects.create(
            record_id=f"rec {name}", project_id=project.pk, started_at="2026-01-01T00:00:00Z", status=200,
            model_asked=f"model of {name}", endpoint="/v1/chat/completions", outcome="ok", total_s=1.0,
        )  # fmt: skip
    return Project.objects.get(name="main")


def signed_in(role: str, scope: Project | Team | None) -> Client:
    user = a_user("ann", staff=False)
    roles.give(actor=ACTOR, user=user, role=role, scope=scope)
    client = Client()
    client.force_login(user)
    return client


def test_lists_have_what_is_in_reach_and_other_rows_are_not_there(tree: Project) -> None:
    client = signed_in("viewer", tree.team)
    for name, path in LISTS.items():
        answer = client.get(path)
        page = answer.content.decode()
        assert answer.status_code == 200, path
        assert "of other" not in page, name
        assert ("of main" in page) == (name != "organisation"), name
    theirs = ApiKey.objects.get(name="key of other")
    assert client.get(f"/admin/catalog/apikey/{theirs.pk}/change/").status_code == 302, "as if there were none"
    assert client.get(f"/admin/keys/{theirs.pk}/rotate").status_code == 403, "a viewer rotates nothing at all"
    for path in CLOSED:
        assert client.get(path).status_code == 403, path
    overview = client.get("/admin/").content.decode()
    assert "/admin/catalog/apikey/" in overview
    assert "/admin/nodes" not in overview
    assert "This page is about the whole cluster" in overview


def test_an_operator_makes_and_revokes_keys_of_the_own_scope_only(tree: Project) -> None:
    client = signed_in("operator", tree.team)
    other = Project.objects.get(name="other")
    form = client.get("/admin/catalog/apikey/add/").content.decode()
    assert tree.pk in form
    assert other.pk not in form
    body = {"name": "new", "models": "", "expires_at_0": "", "expires_at_1": "", "user": ""}
    client.post("/admin/catalog/apikey/add/", {**body, "project": other.pk})
    assert not ApiKey.objects.filter(name="new").exists()
    client.post("/admin/catalog/apikey/add/", {**body, "project": tree.pk})
    assert ApiKey.objects.get(name="new").project == tree
    keys = list(ApiKey.objects.values_list("pk", flat=True))
    client.post("/admin/catalog/apikey/", {"action": "revoke_selected", "_selected_action": keys})
    assert set(ApiKey.objects.filter(revoked_at__isnull=True).values_list("name", flat=True)) == {"key of other"}
    theirs = ApiKey.objects.get(name="key of other")
    assert client.post(f"/admin/keys/{theirs.pk}/rotate", {"grace": "0"}).status_code == 302
    theirs.refresh_from_db()
    assert theirs.rotated_at is None
    page = client.post(f"/admin/catalog/project/{tree.pk}/change/", {"name": "x", "allowed_models": ""})
    assert page.status_code == 403


def test_who_views_one_scope_and_operates_another_revokes_only_there(tree: Project) -> None:
    client = signed_in("operator", tree.team)
    roles.give(actor=ACTOR, user=RoleGrant.objects.get().user, role="viewer", scope=Project.objects.get(name="other"))
    keys = list(ApiKey.objects.values_list("pk", flat=True))
    client.post("/admin/catalog/apikey/", {"action": "revoke_selected", "_selected_action": keys})
    assert set(ApiKey.objects.filter(revoked_at__isnull=True).values_list("name", flat=True)) == {"key of other"}


def test_an_admin_of_a_team_governs_what_is_in_it_and_not_the_team(tree: Project) -> None:
    client = signed_in("admin", tree.team)
    client.post(f"/admin/catalog/project/{tree.pk}/change/", {"name": "main", "allowed_models": '["a"]'})
    assert Project.objects.get(pk=tree.pk).allowed_models == ["a"]
    refused = client.post(f"/admin/catalog/team/{tree.team_id}/change/", {"name": "x", "allowed_models": '["a"]'})
    assert refused.status_code == 403
    a_user("carl", staff=False)
    for body, made in (
        ({"username": "carl", "role": "viewer", "project": tree.pk}, True),
        ({"username": "carl", "role": "admin"}, False),
        ({"username": "carl", "role": "admin", "project": Project.objects.get(name="other").pk}, False),
        ({"username": "nobody", "role": "admin", "project": tree.pk}, False),
        ({"username": "carl", "role": "admin", "project": tree.pk, "team": tree.team_id}, False),
    ):
        RoleGrant.objects.filter(user__username="carl").delete()
        client.post("/admin/catalog/rolegrant/add/", body)
        assert RoleGrant.objects.filter(user__username="carl").exists() == made, body
    roles.give(actor=ACTOR, user=a_user("dora"), role="viewer", scope=None)
    roles.give(actor=ACTOR, user=a_user("emil"), role="viewer", scope=tree)
    page = client.get("/admin/catalog/rolegrant/").content.decode()
    assert ("emil" in page, "dora" in page) == (True, False)
    grants = list(RoleGrant.objects.values_list("pk", flat=True))
    chosen: dict[str, Any] = {"action": "delete_selected", "_selected_action": grants, "post": "yes"}
    client.post("/admin/catalog/rolegrant/", chosen)
    assert set(RoleGrant.objects.values_list("user__username", flat=True)) == {"dora"}


def test_a_role_is_given_in_place_of_the_one_before(admin: Client, tree: Project) -> None:
    a_user("carl")
    for role in ("viewer", "operator"):
        done = admin.post("/admin/catalog/rolegrant/add/", {"username": "carl", "role": role, "team": tree.team_id})
        assert done.status_code == 302
    grant = RoleGrant.objects.get()
    assert (grant.role, grant.scope) == ("operator", tree.team)
    assert "team:team of main" in admin.get("/admin/catalog/rolegrant/").content.decode()
    assert "operator" in admin.get(f"/admin/catalog/rolegrant/{grant.pk}/change/").content.decode()


@pytest.mark.parametrize(
    ("role", "models", "people"), [("viewer", 403, 403), ("operator", 200, 403), ("admin", 200, 200)]
)
def test_roles_of_the_cluster_open_pages_as_permissions_do(role: str, models: int, people: int, tree: Project) -> None:
    client = signed_in(role, None)
    assert client.get("/admin/nodes").status_code == 200
    assert client.get("/admin/catalog/model/add/").status_code == models
    assert client.get("/admin/auth/user/").status_code == people


def test_a_list_of_models_is_written_one_name_a_line_and_read_so_again(admin: Client, tree: Project) -> None:
    path = f"/admin/catalog/team/{tree.team_id}/change/"
    for text, names in (
        ("a\r\n org/b:v1 \n\na", ["a", "org/b:v1"]),
        ("a, c", ["a", "c"]),
        ('["d"]', ["d"]),
        ("", None),
    ):
        assert admin.post(path, {"name": "team of main", "allowed_models": text}).status_code == 302, text
        assert Team.objects.get(pk=tree.team_id).allowed_models == names
    for wrong in ("a b", "[1", '{"a": 1}', "é"):
        refused = admin.post(path, {"name": "team of main", "allowed_models": wrong})
        assert refused.status_code == 200
        assert wrong.replace('"', "&quot;") in refused.content.decode()
    admin.post(path, {"name": "team of main", "allowed_models": "a\nb"})
    assert "a\nb</textarea>" in admin.get(path).content.decode()
    key = ApiKey.objects.get(name="key of main")
    page = admin.get(f"/admin/catalog/apikey/{key.pk}/change/").content.decode()
    assert ">null<" not in page
