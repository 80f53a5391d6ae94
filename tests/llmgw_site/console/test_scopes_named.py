"""Scopes are told apart where they are chosen and listed: many teams have a project of one name."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from catalog.models import Organisation, Project, Team
from catalog.services import keys
from tests.rows import ACTOR

pytestmark = pytest.mark.django_db
WEBS = ["acme / search / web", "acme / shop / web"]


@pytest.fixture(autouse=True)
def two_webs(db: None) -> None:
    acme = Organisation.objects.create(name="acme")
    for name in ("shop", "search"):
        project = Project.objects.create(name="web", team=Team.objects.create(organisation=acme, name=name))
        keys.issue(actor=ACTOR, project=project, name=f"bot of {name}")


def text(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", answer.content.decode())


@pytest.mark.parametrize(
    ("page", "offered"),
    [
        ("apikey", WEBS),
        ("project", ["acme / search", "acme / shop"]),
        ("rolegrant", ["acme", "acme / search", "acme / shop", *WEBS]),
        ("model", WEBS),
    ],
)
def test_a_form_offers_scopes_by_their_path(admin: Client, page: str, offered: list[str]) -> None:
    options = re.findall(
        r'<option value="(?:org|team|proj)_[^"]*">([^<]+)<', text(admin, f"/admin/catalog/{page}/add/")
    )
    assert set(offered) <= set(options)
    assert "web" not in options


@pytest.mark.parametrize(("page", "named"), [("apikey", WEBS), ("project", ["acme / search", "acme / shop"])])
def test_a_list_filters_by_the_path_of_a_scope(admin: Client, page: str, named: list[str]) -> None:
    found = text(admin, f"/admin/catalog/{page}/")
    assert [name for name in named if f">{name}</a>" in re.sub(r" ?(<[^>]*>) ?", r"\1", found)] == named


def test_the_list_of_keys_says_whose_each_is(admin: Client) -> None:
    found = text(admin, "/admin/catalog/apikey/")
    rows = [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in found.split("<tr")]
    for name in ("search", "shop"):
        assert [f"web acme / {name} " in row for row in rows if f"bot of {name}" in row] == [True]
