"""The limits page and its form."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client

from catalog.models import Event, Limit
from catalog.services import keys, limits, roles, scopes
from tests.llmgw_site.console.conftest import Person
from tests.rows import a_user

PAGE = "/admin/limits"


@pytest.fixture
def tree(db: None) -> tuple[Any, ...]:
    organisation = scopes.create_organisation(actor="t", name="acme")
    team = scopes.create_team(actor="t", organisation=organisation, name="search")
    project = scopes.create_project(actor="t", team=team, name="web")
    return organisation, team, project, keys.issue(actor="t", project=project, name="ci")[0]


def text_of(client: Client, path: str = PAGE) -> str:
    page = html.unescape(client.get(path, follow=True).content.decode())
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_without_limits_the_page_says_what_that_means(admin: Client, tree: Any) -> None:
    text = text_of(admin)
    assert "No limit is set" in text
    assert "acme / search / web / ci" in text


def test_without_anything_to_limit_there_is_no_form(admin: Client) -> None:
    assert "There is nothing yet that could have a limit" in text_of(admin)


def test_a_limit_is_set_by_the_form_shown_and_removed(admin: Client, tree: Any) -> None:
    path = f"{PAGE}/set?of={tree[3].pk}"
    assert "The key acme / search / web / ci" in text_of(admin, path)
    form = {"requests_per_minute": " 60 ", "tokens_per_minute": "", "parallel": "0", "why": "deal"}
    assert "The limit of ci is set." in admin.post(path, form, follow=True).content.decode()
    row = Limit.objects.get()
    assert (row.requests_per_minute, row.tokens_per_minute, row.parallel) == (60, None, 0)
    assert "ci key acme / search / web / ci 60 no limit 0 Change Remove" in text_of(admin)
    assert 'value="60"' in admin.get(path).content.decode()
    admin.post(path, {"parallel": "3", "why": "more"})
    assert Event.objects.get(kind="limit_changed").why == "more"
    answer = admin.post(f"{PAGE}/remove?of={tree[3].pk}", follow=True)
    assert "ci has no limit any more." in answer.content.decode()
    assert not Limit.objects.exists()
    answer = admin.post(f"{PAGE}/remove?of={tree[3].pk}", follow=True)
    assert "The key ci has no limit. (not_found)" in answer.content.decode()


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({}, "Nothing was changed.</strong> requests_per_minute: this, tokens_per_minute or parallel is needed"),
        ({"parallel": "-1"}, 'id="error-parallel">&#x27;-1&#x27; is no whole number from 0 on.'),
        ({"tokens_per_minute": "9" * 16}, 'id="error-tokens_per_minute">Ensure this value is less'),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_in_the_form_as_it_was_filled_in(
    admin: Client, tree: Any, form: dict[str, str], said: str
) -> None:
    answer = admin.post(f"{PAGE}/set?of={tree[0].pk}", {**form, "why": "deal"})
    page = answer.content.decode()
    assert answer.status_code == 409
    assert said.casefold() in page.casefold()
    assert 'value="deal"' in page
    for value in form.values():
        assert f'value="{value}"' in page
    assert not Limit.objects.exists()


def test_a_form_of_nothing_leads_back(admin: Client, tree: Any) -> None:
    assert "There is no organisation, team, project or key 'x'. (not_found)" in text_of(admin, f"{PAGE}/set?of=x")
    assert "(not_found)" in html.unescape(admin.post(f"{PAGE}/remove?of=x", follow=True).content.decode())


def test_who_may_only_look_sees_no_form(person: Person, tree: Any) -> None:
    limits.put(actor="t", of=tree[0], parallel=3)
    client = person("catalog.view_limit")
    text = text_of(client)
    assert "acme organisation no limit no limit 3" in text
    assert "Choose what to limit" not in text
    assert client.get(f"{PAGE}/set?of={tree[0].pk}").status_code == 403
    assert client.post(f"{PAGE}/remove?of={tree[0].pk}").status_code == 403


def test_an_admin_of_a_team_sees_its_limits_and_sets_those_below(client: Client, tree: Any) -> None:
    organisation, team, project, _ = tree
    for of in (organisation, team, project):
        limits.put(actor="t", of=of, parallel=7)
    client.force_login(ann := a_user("ann"))
    assert client.get(PAGE).status_code == 403
    roles.give(actor="t", user=ann, role="admin", scope=team)
    text = text_of(client)
    assert "search team acme / search no limit no limit 7 set from above web" in text
    assert "web project acme / search / web no limit no limit 7 Change Remove" in text
    assert client.post(f"{PAGE}/set?of={project.pk}", {"parallel": "3"}).status_code == 302
    assert Limit.objects.get(project=project).parallel == 3
    assert client.get(f"{PAGE}/set?of={team.pk}").status_code == 403
    assert "not_found" in text_of(client, f"{PAGE}/set?of={organisation.pk}")
