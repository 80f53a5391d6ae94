"""`llmgw alias` against a real server."""

from __future__ import annotations

import pytest

from catalog.models import Alias, Event
from llmgw_site.cli.aliases import WIDTH, bar
from tests.llmgw_site.cli.conftest import Llmgw
from tests.rows import a_model

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_alias_from_adding_to_removing(llmgw: Llmgw) -> None:
    a_model("org/tiny:v1")
    a_model("small")
    assert "No aliases yet" in llmgw("alias", "list").out
    done = llmgw("alias", "add", "chat", "org/tiny:v1=90", "small=10", "--description", "for agents")
    assert (done.code, done.err, done.out) == (0, "", "chat stands for org/tiny:v1 90.0%, small 10.0%.\n")
    listed = llmgw("alias", "list").out
    for text in ("chat", "org/tiny:v1 90.0%", "█" * 22 + "▓▓"):
        assert text in listed
    done = llmgw("alias", "set", "chat", "small", "--why", "it is good")
    assert done.out == "chat stands for small 100.0%.\n"
    assert Event.objects.get(kind="alias_split_changed").why == "it is good"
    assert llmgw("alias", "set", "chat", "--name", "talk", "--description", "").code == 0
    row = Alias.objects.get()
    assert (row.name, row.description) == ("talk", "")
    assert [item["name"] for item in llmgw("alias", "list", "--json").json] == ["talk"]
    assert llmgw("alias", "set", "talk").code == 2
    assert llmgw("alias", "set", "talk", "small=ten").code == 2
    assert llmgw("alias", "add", "small", "small").code == 1
    assert llmgw("alias", "remove", "absent").code == 4
    assert llmgw("alias", "remove", "talk").code == 0
    assert not Alias.objects.exists()


@pytest.mark.parametrize("shares", [[1.0], [0.9, 0.1], [0.999, 0.001], [0.25] * 4, [1 / 3] * 3])
def test_a_drawn_split_shows_each_target(shares: list[float]) -> None:
    drawn = bar({"targets": [{"share": share} for share in shares]})
    assert len(set(drawn)) == len(shares)
    assert WIDTH <= len(drawn) <= WIDTH + 1
