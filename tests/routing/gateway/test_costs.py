"""What a request costs, as its record and its client are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
import orjson
import pytest

from cluster.wire import to_dict
from llmgw_site.lib.config import Config
from routing.domain.snapshot import PriceEntry
from tests.routing.gateway.rig import KEY as TEXT
from tests.routing.gateway.rig import SECOND, TINY, key_entry, rig, snapshot

PRICE = PriceEntry(input=2_000_000, output=8_000_000, cached=500_000, currency="EUR")


def priced(config: Config) -> None:
    models = tuple(replace(item, price=PRICE) if item.name == TINY else item for item in snapshot().models)
    told = snapshot(models=models, keys=(key_entry(TEXT, "all", user="7"),))
    config.snapshot_file.write_bytes(orjson.dumps(to_dict(told)))


async def test_an_answer_and_its_record_say_what_it_cost(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=priced) as gw:
        answer = await gw.chat({"tokens": 3, "cached": 4})
        counts = answer.json()["usage"]
        fresh = counts["prompt_tokens"] - 4
        micro = 2 * fresh + 2 + 8 * counts["completion_tokens"]
        assert answer.headers["x-llmgw-cost"] == f"0.{micro:06d} EUR"
        record = await gw.record()
        assert (record.cost, record.user) == (micro, "7")


async def test_a_stream_costs_as_much_and_one_that_broke_what_passed(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=priced) as gw:
        whole = await gw.chat({"tokens": 3}, stream=True)
        assert "x-llmgw-cost" not in whole.headers  # it is not known yet
        first = await gw.record()
        assert first.prompt_tokens is not None
        assert first.cost == 2 * first.prompt_tokens + 8 * 3
        with pytest.raises(httpx.RemoteProtocolError):
            await gw.chat({"tokens": 9, "cut_after": 2}, stream=True)
        cut = await gw.record(2)
        assert (cut.outcome, cut.completion_tokens, cut.estimated, cut.cost) == ("failed", 2, True, 16)


async def test_without_a_price_or_an_answer_there_is_no_cost(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=priced) as gw:
        assert "x-llmgw-cost" not in (await gw.chat(model=SECOND)).headers
        assert (await gw.record()).cost is None
        assert (await gw.chat({"status": 500})).status_code == 500
        assert (await gw.record(2)).cost is None


async def test_a_longer_answer_than_is_held_has_its_cost_in_the_record_only(tmp_path: Path) -> None:
    long = '{"choices":[{"text":"' + "x" * 70_000 + '"}],"usage":{"prompt_tokens":10,"completion_tokens":5}}'
    async with rig(tmp_path, prepare=priced) as gw:
        await gw.chat({"body": long})
        assert (await gw.record()).cost == 60
