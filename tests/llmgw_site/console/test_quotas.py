"""The quotas page and its form."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client

from catalog.models import Event, Quota
from catalog.services import scopes, served
from cluster.services import quotas
from tests.llmgw_site.console.conftest import Cluster, Person

PAGE = "/admin/quotas"


@pytest.fixture
def tree(cluster: Cluster) -> tuple[Any, Any, Any]:
    """acme / search / web, and a node with 4 cores and one `Card One`."""
    organisation = scopes.create_organisation(actor="t", name="acme")
    team = scopes.create_team(actor="t", organisation=organisation, name="search")
    return organisation, team, scopes.create_project(actor="t", team=team, name="web")


def text_of(client: Client, path: str = PAGE) -> str:
    """The page's own text, without marks and with single spaces."""
    page = html.unescape(client.get(path, follow=True).content.decode())
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_without_quotas_the_page_says_what_that_means(admin: Client, tree: Any) -> None:
    text = text_of(admin)
    assert "No quota is set" in text
    assert "acme / search / web" in text
    assert "Card One cards 0 of 1" in text
    assert "Cores 0 of 4" in text


def test_without_scopes_there_is_no_form(admin: Client) -> None:
    text = text_of(admin)
    assert "There is no organisation, team or project yet that could have one" in text
    assert "Choose a scope" not in text


def test_a_quota_is_set_by_the_form_and_shown_with_what_is_held(admin: Client, cluster: Cluster, tree: Any) -> None:
    model = cluster.model("chat")
    served.update(actor="t", model=model, project=tree[2])
    path = f"{PAGE}/set?of={tree[1].pk}"
    form = {
        "guarantee:cores": "2",
        "limit:cores": " 4 ",
        "guarantee:memory": "1MiB",
        "limit:cards:Card One": "1",
        "why": "deal",
    }
    answer = admin.post(path, form, follow=True)
    assert "The quota of search is set." in answer.content.decode()
    row = Quota.objects.get()
    assert (row.guarantee, row.limit) == ({"cores": 2, "memory": 1 << 20}, {"cores": 4, "cards": {"Card One": 1}})
    text = text_of(admin)
    assert "search team" in text
    assert "borrowed" in text
    assert "acme organisation" in text  # the one above is shown for the order of the tree
    assert "no quota of its own" in text
    assert "web project" not in text
    parts = admin.get(f"{PAGE}?parts=1").content.decode()
    assert 'data-part="quotas"' in parts
    assert "<html" not in parts
    values = re.findall(r'name="((?:guarantee|limit):[^"]+)" value="([^"]*)"', admin.get(path).content.decode())
    assert dict(values) == {
        "guarantee:cards:Card One": "", "limit:cards:Card One": "1", "guarantee:cores": "2", "limit:cores": "4",
        "guarantee:memory": "1 MiB", "limit:memory": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"guarantee:cores": "5"}, "The guarantees add up to 5 cores (acme 5), and the fleet has 4"),
        ({}, "Nothing was changed.</strong> guarantee: one is needed, or a limit"),
        ({"limit:cores": "many"}, "id=\"error-limit:cores\">'many' is no whole number"),
        ({"limit:memory": "much"}, "id=\"error-limit:memory\">'much' is no size"),
        ({"limit:memory": "99999999 TiB"}, 'id="error-limit:memory">No fleet has so much'),
        ({"limit:cores": "9" * 20}, 'id="error-limit:cores">No fleet has so much'),
        ({"limit:gpus": "1"}, "limit: there is no 'gpus'"),
    ],
)
def test_a_refusal_stands_in_the_form_as_it_was_filled_in(
    admin: Client, tree: Any, form: dict[str, str], said: str
) -> None:
    answer = admin.post(f"{PAGE}/set?of=search", {**form, "why": "because"})
    assert answer.status_code == 409
    page = html.unescape(answer.content.decode())
    assert "Nothing was changed." in page
    assert said in page
    assert 'value="because"' in page
    for name, value in form.items():
        if name.rpartition(":")[2] in ("cores", "memory"):
            assert f'name="{name}" value="{value}"' in page
    assert not Quota.objects.exists()


def test_a_quota_is_removed(admin: Client, tree: Any) -> None:
    quotas.put(actor="t", scope=tree[0], guarantee={"cores": 1}, limit={})
    page = admin.post(f"{PAGE}/remove?of={tree[0].pk}", follow=True).content.decode()
    assert "acme has no quota any more" in page
    assert not Quota.objects.exists()
    assert Event.objects.get(kind="quota_removed").actor == "user:root"
    assert "not_found" in admin.post(f"{PAGE}/remove?of={tree[0].pk}", follow=True).content.decode()


def test_what_cannot_be_given_is_said(admin: Client, cluster: Cluster, tree: Any) -> None:
    quotas.put(actor="t", scope=tree[0], guarantee={"cores": 4}, limit={})
    cluster.runs("controller")
    text = text_of(admin)
    assert (
        "Not everything that is guaranteed can be given. The guarantees add up to 4 cores (acme 4), and the fleet has 0."
        in text
    )


def test_a_scope_that_is_not_there_leads_back_to_the_list(admin: Client, tree: Any) -> None:
    assert "There is no organisation, team or project 'x'" in text_of(admin, f"{PAGE}/set?of=x")


def test_who_may_only_look_sees_no_forms(person: Person, tree: Any) -> None:
    quotas.put(actor="t", scope=tree[0], guarantee={"cores": 1}, limit={})
    client = person("catalog.view_quota")
    assert "guaranteed 1" in text_of(client)
    page = client.get(PAGE).content.decode()
    for form in ("/admin/quotas/set", "/admin/quotas/remove"):
        assert form not in page
    assert client.get(f"{PAGE}/set?of=acme").status_code == 403
    assert client.post(f"{PAGE}/remove?of=acme").status_code == 403


def test_the_card_of_a_model_says_whose_it_is_and_gives_it_away(admin: Client, cluster: Cluster, tree: Any) -> None:
    model = cluster.model("chat")
    path = f"/admin/model/{model.pk}"
    for ref, said, owner in (
        (tree[1].pk, "chat belongs to the team search.", tree[1]),
        ("", "chat belongs to nobody.", None),
    ):
        assert said in text_of_post(admin, f"{path}/owner", scope=ref)
        model.refresh_from_db()
        assert (model.team, model.project, model.organisation) == (owner, None, None)
        chosen = re.findall(r'<option value="(\w+)" selected>acme / search</option>', admin.get(path).content.decode())
        assert chosen == ([owner.pk] if owner else [])
    assert "not_found" in text_of_post(admin, f"{path}/owner", scope="x")


def text_of_post(client: Client, path: str, **fields: str) -> str:
    return html.unescape(client.post(path, fields, follow=True).content.decode())
