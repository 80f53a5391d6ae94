"""`llmgw limit` against a real server."""

from __future__ import annotations

import pytest

from catalog.models import Event, Limit
from catalog.services import keys, scopes
from tests.llmgw_site.cli.conftest import Llmgw

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_limit_from_setting_to_removing(llmgw: Llmgw) -> None:
    acme = scopes.create_organisation(actor="t", name="acme")
    team = scopes.create_team(actor="t", organisation=acme, name="search / web")
    project = scopes.create_project(actor="t", team=team, name="web")
    keys.issue(actor="t", project=project, name="ci")
    assert "No limits yet" in llmgw("limit", "list").out
    done = llmgw("limit", "set", "acme", "--requests", "600", "--tokens", "100000", "--why", "as agreed")
    assert (done.code, done.err) == (0, "")
    assert done.out == "The organisation acme: at most 600 requests a minute, 100000 tokens a minute.\n"
    assert llmgw("limit", "set", "team:search / web", "--parallel", "8").code == 0
    assert llmgw("limit", "set", "key:ci", "--parallel", "2").out == "The key ci: at most 2 at a time.\n"
    listed = llmgw("limit", "list").out
    for text in ("acme / search / web / web / ci", "600", "100000", "organisation"):
        assert text in listed
    assert [item["name"] for item in llmgw("limit", "list", "--json").json] == ["acme", "search / web", "ci"]
    assert llmgw("limit", "remove", "team:search / web").code == 0
    assert Limit.objects.count() == 2
    assert Event.objects.filter(kind="limit_removed").count() == 1
    assert llmgw("limit", "remove", "team:search / web").code == 4
    assert llmgw("limit", "set", "acme").code == 1
    assert llmgw("limit", "set", "nobody", "--parallel", "1").code == 4
    assert llmgw("limit", "set", "acme", "--parallel", "-1").code == 2
