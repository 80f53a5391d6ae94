"""Who may open what: the sign-in page for strangers, 403 for those without the permission."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from llmgw_site.console.theme import (
    MAY_ADD_JOIN_TOKENS,
    MAY_CHAT,
    MAY_FIND_MODELS,
    MAY_SEE_JOBS,
    MAY_SEE_JOIN_TOKENS,
    MAY_SEE_LIMITS,
    MAY_SEE_NODES,
    MAY_SEE_QUOTAS,
    MAY_SEE_SETUP,
)
from tests.llmgw_site.console.conftest import Person

PAGES = {
    "/admin/": (),
    "/admin/overview/parts": (),
    "/admin/jobs": MAY_SEE_JOBS,
    "/admin/limits": MAY_SEE_LIMITS,
    "/admin/nodes": MAY_SEE_NODES,
    "/admin/nodes/add": (*MAY_SEE_JOIN_TOKENS, *MAY_ADD_JOIN_TOKENS),
    "/admin/quotas": MAY_SEE_QUOTAS,
    "/admin/registry": MAY_FIND_MODELS,
    "/admin/setup": MAY_SEE_SETUP,
    "/admin/chat": MAY_CHAT,
    "/admin/chat/models": MAY_CHAT,
}


@pytest.mark.parametrize(
    "path",
    [
        *PAGES,
        "/admin/jobs/job_x",
        "/admin/jobs/job_x/cancel",
        "/admin/chat/key",
        "/admin/setup/save",
        "/admin/quotas/set",
        "/admin/limits/set",
    ],
)
def test_a_stranger_is_sent_to_sign_in(path: str, db: None) -> None:
    answer = Client().get(path)
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/admin/login/?next=")


@pytest.mark.parametrize("path", ["/admin/jobs", "/admin/chat", "/admin/overview/parts"])
def test_an_account_that_is_not_staff_is_sent_to_sign_in(path: str, db: None) -> None:
    client = Client()
    client.force_login(User.objects.create_user("outside", password="long-enough", is_superuser=True))
    assert client.get(path).status_code == 302


@pytest.mark.parametrize(("path", "needed"), PAGES.items())
def test_a_page_opens_with_exactly_its_permissions(path: str, needed: tuple[str, ...], person: Person) -> None:
    assert person(*needed).get(path).status_code == 200
    for missing in needed:
        others = [name for name in needed if name != missing]
        refused = person(*others, name=f"without-{missing}").get(path)
        assert refused.status_code == 403
        assert missing in refused.content.decode()


@pytest.mark.parametrize("path", ["/", "/admin"])
def test_the_front_door_leads_to_the_overview(path: str, admin: Client) -> None:
    assert admin.get(path).headers["Location"] == "/admin/"


def test_the_error_pages_stand_alone_and_show_nothing_of_the_inside(admin: Client) -> None:
    answer = admin.get("/admin/jobs/job_unknown")
    assert answer.status_code == 404
    assert "There is no such page" in answer.content.decode()
    assert "Traceback" not in answer.content.decode()


@pytest.mark.django_db
def test_who_signs_in_without_having_asked_for_a_page_comes_to_the_overview() -> None:
    User.objects.create_superuser("root-of-all", password="long-enough")
    answer = Client().post("/admin/login/", {"username": "root-of-all", "password": "long-enough"})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/")
