"""Faults of engines that a gateway has to bear: hung ones, and days of streams that were broken off."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster.wire import to_dict
from llmgw_site.lib.files import write_json
from tests.routing.gateway.rig import SECOND, TINY, Rig, ask, rig, snapshot
from tests.routing.gateway.scripted import until

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("streamed", [False, True])
async def test_f29_a_hung_engine_ends_at_the_models_own_time_and_is_looked_at(tmp_path: Path, streamed: bool) -> None:
    async with rig(tmp_path, first_byte_timeout=60.0, idle_timeout=60.0) as gw:
        models = tuple(
            replace(model, first_byte_timeout=0.6) if model.name == TINY else model for model in snapshot().models
        )
        write_json(gw.config.snapshot_file, to_dict(snapshot("e1:2", models=models)))
        await until(lambda: gw.gateway.table.view.version == "e1:2")
        began = time.monotonic()
        answer = await gw.chat({"never": True}, stream=streamed)
        took = time.monotonic() - began
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "engine_timeout")
        assert 0.5 < took < 60
        record = await gw.record()
        assert (record.outcome, record.code, record.finish_reason) == ("failed", "engine_timeout", "")
        assert gw.gateway.flights.suspects == {"rep_1"}  # its agent asks it for a token
        await gw.idle()


async def _one(gw: Rig, number: int) -> None:
    """Of five streams one ends well; the others are left at their head, in the middle, or break by the engine's fault."""
    kind, name = number % 5, f"f49-{number}"
    scripts: list[dict[str, Any]] = [
        {"tokens": 3}, {"never": True}, {"tokens": 400, "gap": 0.01}, {"reset": True}, {"tokens": 9, "die_after": 4},
    ]  # fmt: skip
    body = ask(scripts[kind], model=TINY if number % 2 else SECOND, stream=True)

    async def read() -> None:
        async with gw.client.stream("POST", CHAT, json=body, headers={"x-request-id": name}) as answer:
            async for _ in answer.aiter_raw():
                if kind == 2:
                    return

    task = asyncio.ensure_future(read())
    if kind == 1:
        await until(lambda: any(seen.headers["x-request-id"] == name for seen in reversed(gw.engine.requests)))
        task.cancel()
    with contextlib.suppress(httpx.HTTPError, asyncio.CancelledError):
        await task


@pytest.mark.parametrize("count", [100, pytest.param(4_320, marks=pytest.mark.prove)])
async def test_f49_days_of_broken_streams_exhaust_no_pool_and_every_request_that_was_routed_reached_an_engine(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], count: int
) -> None:
    """Of a day they are, in the long form, one in 20 s."""
    async with rig(tmp_path) as gw:
        for batch in range(0, count, 20):
            await asyncio.gather(*(_one(gw, batch + number) for number in range(20)))
        await gw.idle()
        await until(lambda: len(gw.records()) == count)
        assert (await gw.chat()).status_code == 200
        assert (await gw.chat(model=SECOND)).status_code == 200
        await gw.idle()
        assert len(gw.engine.requests) == count + 2  # each of them, and none twice
        await until(lambda: gw.gateway.upstream.connections <= 4)  # what is kept of two engines, none of those broken
        assert not gw.gateway.queues._waits
        assert not any(line.running or line.waiting for line in gw.gateway.queues.lines.values())
        await until(lambda: len(gw.records()) == count + 2)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if '"event":"request"' in line]
    routed = [line["request_id"] for line in lines if line.get("replica")]
    assert len(routed) == len(set(routed)) == count + 2
    assert {seen.headers["x-request-id"] for seen in gw.engine.requests} == set(routed)
