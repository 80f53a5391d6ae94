"""Users and groups in the console: who may touch whom, and that every change is recorded."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from catalog.models import Event
from tests.rows import a_user

MANAGER = ("auth.view_user", "auth.add_user", "auth.change_user", "auth.delete_user")
pytestmark = pytest.mark.django_db


def form(user: User, **changes: Any) -> dict[str, Any]:
    fields = {"username": user.username, "is_active": "on", "is_staff": "on", "email": ""}
    dates = {"date_joined_0": "2026-01-01", "date_joined_1": "00:00:00", "last_login_0": "", "last_login_1": ""}
    return {**fields, **dates, **changes}


def test_who_may_change_users_does_not_become_a_superuser_by_it(person: Any) -> None:
    client = person(*MANAGER, name="manager")
    manager = User.objects.get(username="manager")
    page = f"/admin/auth/user/{manager.pk}/change/"
    assert client.post(page, form(manager, is_superuser="on", email="a@b.example")).status_code == 302
    manager.refresh_from_db()
    assert (manager.is_superuser, manager.email) == (False, "a@b.example")


def test_a_superuser_is_changed_by_superusers_only(person: Any, admin: Client) -> None:
    client = person(*MANAGER, name="manager")
    root = a_user("root of all", superuser=True)
    before = root.password
    new = {"password1": "a new long password", "password2": "a new long password", "usable_password": "true"}
    page = f"/admin/auth/user/{root.pk}"
    assert client.post(f"{page}/change/", form(root, email="x@y.example")).status_code == 403
    assert client.post(f"{page}/password/", new).status_code == 403
    assert client.post(f"{page}/delete/", {"post": "yes"}).status_code == 403
    bulk = {"action": "delete_selected", "_selected_action": [root.pk], "post": "yes"}
    assert client.post("/admin/auth/user/", bulk).status_code == 403
    root.refresh_from_db()
    assert (root.password, root.email) == (before, "")
    assert admin.post(f"{page}/password/", new).status_code == 302
    root.refresh_from_db()
    assert root.password != before


def test_changes_of_users_and_groups_are_recorded_without_their_values(admin: Client) -> None:
    new = {"username": "ann", "password1": "a new long password", "password2": "a new long password"}
    assert admin.post("/admin/auth/user/add/", {**new, "usable_password": "true"}).status_code == 302
    ann = User.objects.get(username="ann")
    admin.post(f"/admin/auth/user/{ann.pk}/change/", form(ann, email="ann@hidden.example"))
    admin.post("/admin/auth/group/add/", {"name": "readers"})
    admin.post(f"/admin/auth/group/{Group.objects.get().pk}/delete/", {"post": "yes"})
    admin.post(f"/admin/auth/user/{ann.pk}/delete/", {"post": "yes"})
    found = list(Event.objects.order_by("at", "id").values_list("kind", "actor", "message"))
    assert [kind for kind, _, _ in found] == [
        "user_added", "user_changed", "group_added", "group_removed", "user_removed",
    ]  # fmt: skip
    assert {actor for _, actor, _ in found} == {"user:root"}
    assert "Email" in found[1][2]
    assert "hidden" not in str(found)
