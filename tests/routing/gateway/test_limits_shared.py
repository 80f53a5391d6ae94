"""Limits over two whole gateways, with a controller that counts in a real Valkey, and without it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster.domain import leasing
from cluster.domain.leasing import PARALLEL, REQUESTS, TOKENS
from cluster.services import limits
from llmgw_site.lib.config import load
from llmgw_site.up.valkey import Valkey
from routing.domain.limits import overshoot, share
from routing.domain.snapshot import LimitEntry
from routing.gateway import limiter
from tests.routing.gateway.controllers import Counting
from tests.routing.gateway.hops import Many, Site, many
from tests.routing.gateway.rig import KEY, TINY, key_entry
from tests.routing.gateway.scripted import until

EDGES = ("edge", "router", "inference")


@pytest.fixture(autouse=True)
def counting_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no controller that is away."""
    monkeypatch.setattr(limiter, "PATIENCE", 10.0)
    monkeypatch.setattr(limiter, "BUDGET", 10.0)
    monkeypatch.setattr(limits, "PATIENCE", 5.0)


@pytest.fixture
def store(tmp_path: Path, settings: Any) -> Any:
    """A Valkey of this test's own, which it may stop."""
    with ExitStack() as stack:
        valkey = stack.enter_context(Valkey(load({"LLMGW_DATA": str(tmp_path / "store")})))
        settings.REDIS_URL = valkey.url
        yield stack


@asynccontextmanager
async def two(folder: Path, limit: LimitEntry) -> AsyncIterator[tuple[Many, Site, Site, Counting]]:
    """Two edges that serve the model themselves, a controller, and a limit of the key."""
    async with many(folder) as town:
        one = await town.start("one", *EDGES, serves=(TINY,))
        other = await town.start("other", *EDGES, serves=(TINY,))
        brain = Counting(town)
        await town.scripted("brain", "controller", handler=brain)
        town.keys = (key_entry(KEY, "all", limit=limit),)
        await town.settle()
        yield town, one, other, brain


async def storm(count: int, *sites: Site, **fields: Any) -> list[httpx.Response]:
    """So many requests at once, by turns to each."""
    return await asyncio.gather(*(sites[number % len(sites)].chat(**fields) for number in range(count)))


def passed(answers: list[httpx.Response]) -> int:
    assert {answer.status_code for answer in answers} <= {200, 429}
    return sum(answer.status_code == 200 for answer in answers)


async def test_f33_fifty_requests_of_a_thousand_tokens_over_two_gateways_stay_within_ten_thousand(
    tmp_path: Path, store: ExitStack
) -> None:
    async with two(tmp_path, LimitEntry(tokens_per_minute=10_000)) as (town, one, other, _):
        script = {"tokens": 960, "silent": 0.1}  # with its prompt about a thousand, as it reserves
        answers = await storm(50, one, other, script=script, max_tokens=960)
        await town.idle()
        records = one.records() + other.records()
        tokens = sum((record.prompt_tokens or 0) + (record.completion_tokens or 0) for record in records)
        assert 8 <= passed(answers) <= 10
        assert tokens <= 10_000
        assert {answer.json()["error"]["code"] for answer in answers if answer.status_code == 429} == {
            "tokens_limit_reached"
        }
        waits = [int(answer.headers["retry-after"]) for answer in answers if answer.status_code == 429]
        assert max(waits) <= math.ceil(leasing.COUNTED) + 1


async def test_what_a_request_used_less_than_it_reserved_is_soon_free_for_the_other_gateway(
    tmp_path: Path, store: ExitStack
) -> None:
    async with two(tmp_path, LimitEntry(tokens_per_minute=5000)) as (town, one, other, _):
        first = await one.chat({"tokens": 3}, max_tokens=4900)
        assert first.status_code == 200
        async with asyncio.timeout(60):
            while (again := await other.chat({"tokens": 3}, max_tokens=4700)).status_code != 200:
                await asyncio.sleep(0.1)
        assert int(again.headers["x-ratelimit-remaining-tokens"]) < 300
        await town.idle()


async def test_requests_over_two_gateways_are_counted_together_and_free_when_it_is_said(
    tmp_path: Path, store: ExitStack
) -> None:
    async with two(tmp_path, LimitEntry(requests_per_minute=40)) as (town, one, other, _):
        answers = await storm(60, one, other)
        assert 36 <= passed(answers) <= 40  # a lot of two may lie at each
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert 30 <= int(refused.headers["retry-after"]) <= 64
        assert refused.headers["x-ratelimit-limit-requests"] == "40"
        await town.idle()


async def test_f44_parallel_requests_over_two_gateways_are_counted_together(tmp_path: Path, store: ExitStack) -> None:
    async with two(tmp_path, LimitEntry(parallel=3)) as (town, one, other, _):
        asked = [asyncio.ensure_future((one, other)[number % 2].chat({"held": True})) for number in range(10)]
        await until(lambda: sum(task.done() for task in asked) == 7)
        for site in (one, other):
            site.engine.release.set()
        answers = await asyncio.gather(*asked)
        assert passed(answers) == 3
        refused = next(answer for answer in answers if answer.status_code == 429).json()["error"]
        assert (refused["code"], refused["limit"]["set_at"]) == ("parallel_limit_reached", "key")
        await town.idle()
        async with asyncio.timeout(60):
            while passed(await storm(3, other, script={"silent": 0.3})) < 3:
                await asyncio.sleep(0.1)  # what is free is said
        await town.idle()
        counters = [site.gateway.limiter.counter("key_all", PARALLEL) for site in (one, other)]
        await until(lambda: [counter.running for counter in counters] == [0, 0])  # type: ignore[union-attr]


def alone(site: Site) -> float | None:
    """What the gateway shows of whether it works on its share."""
    return site.gateway.metrics.registry.get_sample_value("llmgw_limits_on_own_share")


async def test_f32_without_valkey_each_gateway_has_its_share_and_counting_begins_again(
    tmp_path: Path, store: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limiter, "PAUSE", 0.2)
    limit = 20
    async with two(tmp_path, LimitEntry(requests_per_minute=limit)) as (town, one, other, _):
        before = passed(await storm(8, one))
        assert before == 8
        store.close()
        meanwhile = passed(await storm(40, one, other))
        assert before + meanwhile <= limit + overshoot(limit, 2)
        assert meanwhile >= share(limit, 2)  # nobody is locked out
        await until(lambda: alone(one) == alone(other) == 1)
        told = one.gateway.flights.report(0.0).problems  # which its node tells people
        assert [text.partition(":")[0] for text in told] == [
            "no controller counts limits for all edges, so this one works on its share of them"
        ]
        refused = await other.chat()
        assert refused.json()["error"]["code"] == "requests_limit_reached"
        assert int(refused.headers["x-ratelimit-remaining-requests"]) == 0
        store.enter_context(Valkey(load({"LLMGW_DATA": str(tmp_path / "store")})))
        await until(lambda: alone(one) == alone(other) == 0)
        assert one.gateway.flights.report(0.0).problems == ()
        counters = [site.gateway.limiter.counter("key_all", REQUESTS) for site in (one, other)]
        await until(lambda: not any(item._untold or item._back for item in counters))  # type: ignore[union-attr]
        assert passed(await storm(20, one, other)) <= max(0, limit - before - meanwhile)
        await town.idle()


async def test_f32_without_controllers_no_request_waits_for_them(tmp_path: Path, store: ExitStack) -> None:
    async with two(tmp_path, LimitEntry(requests_per_minute=1000, tokens_per_minute=10**6, parallel=100)) as (
        town,
        one,
        _,
        brain,
    ):
        brain.up = False
        assert (await one.chat()).status_code == 200
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert passed(await storm(20, one)) == 20
        assert loop.time() - began < limiter.BUDGET
        await until(lambda: alone(one) == 1)
        assert one.gateway.limiter.counter("key_all", REQUESTS).limit == 1000
        for name in list(one.gateway.limiter._counters):
            del one.gateway.limiter._counters[name]
        brain.up = True
        await until(lambda: alone(one) == 0)  # though there is nothing to be said
        await town.idle()


async def test_f32_a_request_that_is_larger_than_a_share_passes_and_is_paid_for(tmp_path: Path) -> None:
    async with two(tmp_path, LimitEntry(tokens_per_minute=4000)) as (town, one, other, brain):
        brain.up = False
        assert passed(await storm(2, one, other, max_tokens=10)) == 2
        await until(lambda: alone(one) == alone(other) == 1)
        large = [asyncio.create_task(site.chat({"held": True}, max_tokens=2500)) for site in (one, other)]
        counters = [site.gateway.limiter.counter("key_all", TOKENS) for site in (one, other)]
        await until(
            lambda: all(counter.left(asyncio.get_running_loop().time(), counted=False) == 0 for counter in counters)
        )  # type: ignore[union-attr]
        refused = await one.chat(max_tokens=10)
        assert refused.json()["error"]["code"] == "tokens_limit_reached"
        assert 60 < int(refused.headers["retry-after"]) <= 90  # 2,500 and some are five quarters of a minute's share
        assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
        never = await one.chat(max_tokens=4001)
        assert (never.json()["error"]["code"], "retry-after" in never.headers) == ("request_over_limit", False)
        for site in (one, other):
            site.engine.release.set()
        assert passed(await asyncio.gather(*large)) == 2
        async with asyncio.timeout(60):  # it had ten tokens, and that is soon paid for
            while (await one.chat(max_tokens=10)).status_code != 200:
                await asyncio.sleep(0.1)
        await town.idle()


async def test_the_counters_of_two_gateways_are_what_their_records_say(tmp_path: Path, store: ExitStack) -> None:
    every = LimitEntry(requests_per_minute=1000, tokens_per_minute=10**6, parallel=100)
    async with two(tmp_path, every) as (town, one, other, _):
        for script in ({"tokens": 5}, {"reset": True}, {"status": 500, "body": "{}"}):
            await storm(6, one, other, script=script, max_tokens=50)
        await town.idle()
        now = asyncio.get_running_loop().time()
        for site in (one, other):
            records = site.records()
            tokens = sum((record.prompt_tokens or 0) + (record.completion_tokens or 0) for record in records)
            counter = site.gateway.limiter.counter
            assert counter("key_all", TOKENS).window.total(now) == tokens  # type: ignore[union-attr]
            assert counter("key_all", REQUESTS).window.total(now) == len(records)  # type: ignore[union-attr]
