"""`llmgw budget` against a real server."""

from __future__ import annotations

import json

import pytest

from tests.llmgw_site.cli.conftest import Llmgw
from tests.rows import a_key

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_budget_is_set_listed_and_removed(llmgw: Llmgw) -> None:
    a_key("bot")
    assert llmgw("budget", "list").out.startswith("No budgets yet")
    done = llmgw("budget", "set", "bot", "--amount", "12.5", "--each", "day", "--zone", "Europe/Berlin")
    assert (done.code, done.err) == (0, "")
    assert done.out == "The key bot: 12.50 USD a day, then what costs something is refused.\n"
    done = llmgw("budget", "set", "bot", "--each", "day", "--soft", "--warn-at", "none")
    assert done.out == "The key bot: 12.50 USD a day, then it is told only.\n"
    (row,) = json.loads(llmgw("budget", "list", "--json").out)
    assert (row["warn_at"], row["zone"], row["spent"]) == (None, "Europe/Berlin", "0.000000")
    assert "0.00" in llmgw("budget", "list").out
    assert llmgw("budget", "remove", "bot", "--each", "day").code == 0
    assert llmgw("budget", "remove", "bot", "--each", "day").code == 4
    assert llmgw("budget", "set", "bot", "--amount", "1", "--warn-at", "soon").code == 2
    assert llmgw("budget", "set", "bot", "--amount", "1", "--each", "week").code == 1
