"""The sidebar: every link leads somewhere, and shows only what one may open."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.utils.formats import date_format

from llmgw_site.console.theme import UNFOLD
from tests.llmgw_site.console.conftest import Person
from tests.rows import a_model

ITEMS: list[dict[str, Any]] = [item for group in UNFOLD["SIDEBAR"]["navigation"] for item in group["items"]]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["title"])
def test_every_link_of_the_sidebar_opens_for_an_administrator(item: dict[str, Any], admin: Client) -> None:
    assert admin.get(str(item["link"])).status_code == 200


def test_the_sidebar_offers_only_what_the_user_may_open(person: Person) -> None:
    page = person("cluster.view_job").get("/admin/").content.decode()
    assert 'href="/admin/jobs"' in page
    assert 'href="/admin/chat"' not in page
    assert 'href="/admin/catalog/model/"' not in page
    assert 'href="/admin/auth/user/"' not in page


@pytest.mark.parametrize(
    "path",
    ["img/icon.svg", "css/console.css", "css/chat.css", "js/live.js", "js/chat.js", "js/dialog.js", "js/setup.js"],
)
def test_the_pages_own_files_are_found(path: str) -> None:
    from django.contrib.staticfiles import finders

    assert finders.find(path)


@pytest.mark.parametrize("path", ["/admin/auth/user/add/", "/admin/auth/group/add/", "/admin/password_change/"])
def test_accounts_are_kept_in_the_consoles_look(path: str, admin: Client) -> None:
    answer = admin.get(path)
    assert answer.status_code == 200
    assert "nav-sidebar" in answer.content.decode()


def test_moments_are_written_so_that_they_sort_and_name_their_zone() -> None:
    moment = datetime(2026, 11, 29, 15, 47, 5, tzinfo=UTC)
    assert date_format(moment, "DATETIME_FORMAT") == "2026-11-29 15:47:05 UTC"


def words(page: bytes) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.decode()).split())


def test_an_empty_list_says_so_and_offers_what_can_be_done(admin: Client) -> None:
    page = admin.get("/admin/catalog/provider/").content
    assert "<title> Providers | llmgw</title>" in " ".join(page.decode().split())
    assert "No providers yet Add provider" in words(page)
    assert "show all" not in words(page).lower()
    page = admin.get("/admin/routing/usagerecord/").content
    assert "No usage records yet" in words(page)
    assert "Add usage record" not in words(page)


def test_a_search_that_finds_nothing_leads_back_to_all(admin: Client) -> None:
    a_model()
    page = words(admin.get("/admin/catalog/model/?q=zzz").content)
    assert "Models 0 results ( 1 total )" in page
    assert "Nothing found No model matches what is searched and filtered for. Show all" in page
    for path in ("catalog/model", "catalog/version", "catalog/event", "cluster/node", "routing/usagerecord"):
        assert not re.search("results|total|show all", words(admin.get(f"/admin/{path}/").content).lower()), path
    assert "0 results ( Show all )" in words(admin.get("/admin/routing/usagerecord/?q=zzz").content)


def test_the_head_of_a_page_writes_a_name_as_it_is(admin: Client) -> None:
    page = words(admin.get(f"/admin/catalog/model/{a_model('tiny').pk}/change/").content)
    assert re.search(r"Catalogue Models tiny ", page, re.IGNORECASE), page[:3000]
