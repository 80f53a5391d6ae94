"""routing.domain.budgets: what a client is refused or told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmgw_site.lib.errors import Kind, Refused
from routing.domain.budgets import stand
from routing.domain.snapshot import BudgetEntry, KeyEntry, PriceEntry, ScopeEntry
from routing.domain.tenancy import Purse, holders, told

PRICE = PriceEntry(input=1, output=1)
ENTRY = BudgetEntry(
    budget_id="bud_1", period="month", amount=2_000_000, spent=2_100_000, resets_at=1_775_001_600.0, currency="EUR"
)
PURSE = Purse(kind="team", name="shop", budget=ENTRY)
NOW = ENTRY.resets_at - 90


def test_a_hard_budget_that_is_spent_refuses_and_names_all_of_it() -> None:
    with pytest.raises(Refused) as caught:
        stand([PURSE], PRICE, NOW)
    refused = caught.value
    assert (refused.kind, refused.code, refused.retry_after) == (Kind.LIMITED, "budget_spent", 90)
    for words in ("team shop", "2.100000 of 2.000000 EUR a month", "2026-04-01T00:00:00Z"):
        assert words in refused.message
    assert refused.extra["budget"] == "bud_1"


@pytest.mark.parametrize("price", [None, PriceEntry(input=0, output=0, cached=0)])
def test_what_costs_nothing_is_let_through(price: PriceEntry | None) -> None:
    assert len(stand([PURSE], price, NOW)) == 1


def test_a_soft_one_and_one_that_is_nearly_spent_are_told() -> None:
    soft = replace(PURSE, budget=replace(ENTRY, hard=False))
    nearly = replace(PURSE, budget=replace(ENTRY, spent=1_700_000))
    for purse in (soft, nearly):
        ((name, value),) = stand([purse], PRICE, NOW)
        assert name == b"x-llmgw-budget"
        assert value.startswith(b"team shop; ")
        assert value.endswith(b"of 2.000000 EUR a month; resets 2026-04-01T00:00:00Z")


@pytest.mark.parametrize("name", ["l\u00e4den", "a\r\nset-cookie: b"])
def test_a_name_that_no_header_may_have_is_left_out(name: str) -> None:
    soft = replace(PURSE, name=name, budget=replace(ENTRY, hard=False))
    ((_, value),) = stand([soft], PRICE, NOW)
    assert value.startswith(b"team; ")


def test_nothing_follows_once_its_period_is_over() -> None:
    assert stand([PURSE], PRICE, ENTRY.resets_at) == []


def test_a_key_has_its_own_budgets_and_those_of_every_scope_above() -> None:
    own = replace(ENTRY, budget_id="bud_key")
    key = KeyEntry(key_id="k", sha256="s", prefix="sk-1", project_id="p", name="bot", budgets=(own,))
    scopes = (
        ScopeEntry(scope_id="p", kind="project", name="P", parent="t"),
        ScopeEntry(scope_id="t", kind="team", name="shop", parent="o", budgets=(ENTRY,)),
        ScopeEntry(scope_id="o", kind="organisation", name="O"),
    )
    assert [scope.scope_id for scope in told(scopes, {"p"})] == ["p", "t"]
    purses = holders([key], scopes)["s"].purses
    assert purses is not None
    assert [(item.kind, item.name, item.budget.budget_id) for item in purses] == [
        ("key", "bot", "bud_key"),
        ("team", "shop", "bud_1"),
    ]
    assert holders([replace(key, budgets=())], ())["s"].purses is None
