"""`llmgw scope` against a real server."""

from __future__ import annotations

import pytest

from catalog.models import Organisation, Project
from tests.llmgw_site.cli.conftest import Llmgw
from tests.rows import a_model, a_user

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_tree_from_its_first_organisation_to_a_list_of_models(llmgw: Llmgw) -> None:
    assert "No scopes yet" in llmgw("scope", "list").out
    assert llmgw("scope", "create", "organisation", "acme", "--model", "a", "--model", "b").code == 0
    assert llmgw("scope", "create", "team", "web", "--in", "acme").code == 0
    made = llmgw("scope", "create", "project", "shop", "--in", "web", "--json").json
    assert made["team_name"] == "web"
    assert Organisation.objects.get().allowed_models == ["a", "b"]
    assert "shop may use b" in llmgw("scope", "allow", "project:shop", "--model", "b").out
    listed = llmgw("scope", "list", "--json").json
    assert [(row["path"], row["allowed_models"]) for row in listed] == [
        (["acme"], ["a", "b"]),
        (["acme", "web"], None),
        (["acme", "web", "shop"], ["b"]),
    ]
    assert "acme / web / shop" in llmgw("scope", "list").out
    assert "every model" in llmgw("scope", "allow", made["id"], "--all").out
    assert Project.objects.get().allowed_models is None
    refused = llmgw("scope", "remove", "acme")
    assert refused.code == 1
    assert "still has teams" in refused.err
    assert [llmgw("scope", "remove", name).code for name in ("shop", "web", "acme")] == [0, 0, 0]


def test_a_scope_is_given_a_class_and_what_is_in_it_shows_where_it_comes_from(llmgw: Llmgw) -> None:
    llmgw("scope", "create", "organisation", "acme")
    llmgw("scope", "create", "team", "web", "--in", "acme")
    made = llmgw("scope", "create", "project", "nightly", "--in", "web", "--class", "opportunistic", "--json").json
    assert made["priority_class"] == "opportunistic"
    assert "below the organisation acme are critical." in llmgw("scope", "class", "acme", "critical").out
    shown = [(row["priority_class"], row["effective_class"]) for row in llmgw("scope", "list", "--json").json]
    assert shown == [("critical", "critical"), ("", "critical"), ("opportunistic", "opportunistic")]
    assert "(critical)" in llmgw("scope", "list").out
    told = llmgw("scope", "class", "project:nightly", "default").out
    assert "are critical, since it says nothing itself" in told


def test_projects_of_one_name_are_told_apart_by_their_path(llmgw: Llmgw) -> None:
    llmgw("scope", "create", "organisation", "acme")
    for team in ("search", "shop"):
        llmgw("scope", "create", "team", team, "--in", "acme")
        assert llmgw("scope", "create", "project", "web", "--in", f"acme/{team}").code == 0
    refused = llmgw("scope", "class", "web", "opportunistic")
    assert refused.code == 1
    assert "write acme/search/web (proj_" in refused.err
    assert "or acme/shop/web (proj_" in refused.err
    assert llmgw("scope", "class", "search/web", "opportunistic").code == 0
    classes = {row["id"]: (row["path"], row["priority_class"]) for row in llmgw("scope", "list", "--json").json}
    assert (["acme", "search", "web"], "opportunistic") in classes.values()
    assert (["acme", "shop", "web"], "") in classes.values()
    key = llmgw("key", "create", "bot", "--project", "search/web", "--json").json
    assert classes[key["project"]][0] == ["acme", "search", "web"]
    assert "TEAM/web" in llmgw("key", "create", "bot", "--project", "web").err
    assert llmgw("limit", "set", "acme/shop/web", "--requests", "5").code == 0
    assert [row["path"] for row in llmgw("limit", "list", "--json").json] == [["acme", "shop", "web"]]
    assert llmgw("limit", "remove", "shop / web").code == 0
    assert llmgw("budget", "set", "search/web", "--amount", "5").code == 0
    assert llmgw("budget", "remove", "acme/search/web").code == 0
    assert llmgw("quota", "set", "acme/shop", "--limit", "cores=1").code == 0
    user = a_user("ann").username
    assert llmgw("role", "give", user, "viewer", "--of", "shop/web").code == 0
    assert llmgw("role", "take", user, "--of", "shop/web").code == 0
    model = a_model()
    assert llmgw("model", "owner", model.name, "shop/web").code == 0
    model.refresh_from_db()
    assert str(model.project.team) == "shop"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("create", "planet", "x"), 2, "no kind of scope"),
        (("create", "team", "x"), 2, "a team is in one organisation"),
        (("create", "organisation", "x", "--in", "y"), 2, "leave out --in"),
        (("allow", "x"), 2, "--all"),
        (("class", "x", "urgent"), 2, "there is no class 'urgent'"),
        (("create", "organisation", "x", "--class", "urgent"), 2, "there is no class 'urgent'"),
        (("allow", "nowhere", "--all"), 4, "there is no scope 'nowhere'"),
        (("create", "organisation", "x", "--model", "a b"), 1, "allowed_models"),
    ],
)
def test_what_cannot_be_done_says_why(llmgw: Llmgw, words: tuple[str, ...], code: int, told: str) -> None:
    done = llmgw("scope", *words)
    assert (done.code, told in done.err) == (code, True), done
