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
from routing.domain.snapshot import BudgetEntry, PriceEntry, ScopeEntry
from tests.routing.gateway.rig import KEY, SECOND, TINY, key_entry, rig, snapshot


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
        assert 590 <= int(answer.headers["retry-after"]) <= 600
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
