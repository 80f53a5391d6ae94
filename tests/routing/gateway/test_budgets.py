"""Budgets at the edge: refused before anything is sent on, streamed or not; told by a header before that."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from cluster.wire import to_dict
from llmgw_site.lib.config import Config
from routing.domain.snapshot import BudgetEntry, ModelEntry, PriceEntry, ScopeEntry
from tests.routing.gateway.rig import COLD, KEY, SECOND, TINY, Rig, key_entry, rig, snapshot


def with_budget(**fields: Any) -> Any:
    entry = BudgetEntry(
        budget_id="bud_1", period="day", **{"amount": 10, "spent": 12, "resets_at": time.time() + 600, **fields}
    )

    def prepare(config: Config) -> None:
        price = PriceEntry(input=2_000_000, output=8_000_000, currency="EUR")
        models = tuple(replace(item, price=price) if item.name == TINY else item for item in snapshot().models)
        scope = ScopeEntry(scope_id="proj_1", kind="project", name="shop", budgets=(replace(entry, currency="EUR"),))
        told = snapshot(models=models, keys=(key_entry(KEY, "all"),), scopes=(scope,))
        config.snapshot_file.write_bytes(orjson.dumps(to_dict(told)))

    return prepare


@pytest.mark.parametrize("stream", [False, True])
async def test_a_budget_that_is_spent_refuses_before_an_engine_hears_of_it(tmp_path: Path, stream: bool) -> None:
    async with rig(tmp_path, prepare=with_budget()) as gw:
        answer = await gw.chat(stream=stream)
        assert answer.status_code == 429
        error = answer.json()["error"]
        assert (error["code"], error["scope_name"], error["budget"]) == ("budget_spent", "shop", "bud_1")
        assert 500 <= int(answer.headers["retry-after"]) <= 600
        assert gw.engine.requests == []
        record = await gw.record()
        assert (record.outcome, record.code, record.cost) == ("refused", "budget_spent", None)
        assert (await gw.chat(model=SECOND)).status_code == 200  # it costs nothing
        await gw.idle()


async def test_a_soft_budget_is_told_and_one_of_yesterday_is_not(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=with_budget(hard=False)) as gw:
        for stream in (False, True):
            answer = await gw.chat(stream=stream)
            assert answer.status_code == 200
            assert answer.headers["x-llmgw-budget"].startswith("project shop; 0.000012 of 0.000010 EUR a day; resets ")
    async with rig(tmp_path / "second", prepare=with_budget(resets_at=time.time() - 1)) as gw:
        answer = await gw.chat()
        assert answer.status_code == 200
        assert "x-llmgw-budget" not in answer.headers


def with_fallbacks(*names: str, hard: bool = True, spent: int = 12, context: int | None = None) -> Any:
    """COLD costs nothing and never comes up; of what answers for it `tiny` costs something, and the other one nothing."""
    price = PriceEntry(input=2_000_000, output=8_000_000, currency="EUR")
    entry = BudgetEntry(
        budget_id="bud_1", period="day", amount=10, spent=spent, resets_at=time.time() + 600, hard=hard, currency="EUR"
    )
    models = (
        ModelEntry(name=TINY, created=1, replicas=("rep_1",), price=price),
        ModelEntry(name=SECOND, created=2, replicas=("rep_2",)),
        ModelEntry(name=COLD, created=5, replicas=("rep_5",), fallbacks=names, context=context),
    )
    scope = ScopeEntry(scope_id="proj_1", kind="project", name="shop", budgets=(entry,))

    def prepare(config: Config) -> None:
        told = snapshot(models=models, keys=(key_entry(KEY, "all"),), scopes=(scope,))
        config.snapshot_file.write_bytes(orjson.dumps(to_dict(told)))

    return prepare


def served(gw: Rig) -> list[str]:
    return [seen.json["model"] for seen in gw.engine.requests]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fallback_that_a_spent_budget_forbids_is_left_out(tmp_path: Path, stream: bool) -> None:
    async with rig(tmp_path, prepare=with_fallbacks(TINY, SECOND)) as gw:
        answer = await gw.chat(model=COLD, stream=stream)
        assert (answer.status_code, answer.headers["x-llmgw-model"]) == (200, SECOND)
        assert served(gw) == ["second-inside"]
        record = await gw.record()
        assert (record.model_asked, record.model_served, record.cost) == (COLD, SECOND, None)
    async with rig(tmp_path / "only", prepare=with_fallbacks(TINY)) as gw:
        answer = await gw.chat(model=COLD, stream=stream)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready")
        assert served(gw) == []


@pytest.mark.parametrize(("hard", "spent"), [(False, 12), (True, 8)])
async def test_a_fallback_that_no_budget_forbids_answers_costs_its_own_price_and_is_told(
    tmp_path: Path, hard: bool, spent: int
) -> None:
    async with rig(tmp_path, prepare=with_fallbacks(TINY, SECOND, hard=hard, spent=spent)) as gw:
        for count, stream in enumerate((False, True), 1):
            answer = await gw.chat(model=COLD, stream=stream)
            assert (answer.status_code, answer.headers["x-llmgw-model"]) == (200, TINY)
            assert answer.headers["x-llmgw-budget"].startswith(f"project shop; 0.0000{spent:02d} of 0.000010 EUR a day")
            record = await gw.record(count)
            assert record.model_served == TINY
            assert record.cost == 2 * (record.prompt_tokens or 0) + 8 * (record.completion_tokens or 0) > 0
