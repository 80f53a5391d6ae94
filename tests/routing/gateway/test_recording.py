"""The spool has one open and one close line of a request, whatever becomes of it; and has it before it waits."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from cluster.wire import to_dict
from llmgw_site.lib.config import Config
from routing.domain.snapshot import ModelEntry
from tests.routing.gateway.hops import Many, Site, many
from tests.routing.gateway.rig import COLD, SECOND, TINY, rig, snapshot
from tests.routing.gateway.scripted import until

NEVER = {"never": True}


def spooled(config: Config) -> Counter[tuple[str, str]]:
    lines = [json.loads(line) for path in sorted(config.usage.glob("*.jsonl")) for line in path.open()]
    return Counter((line["op"], line["record"]["request_id"]) for line in lines)


def prepared(config: Config) -> None:
    entries = (
        ModelEntry(name=TINY, created=1, replicas=("rep_1",), fallbacks=(SECOND,), queue_length=1),
        ModelEntry(name=SECOND, created=2, replicas=("rep_2",)),
        ModelEntry(name=COLD, created=5, replicas=("rep_5",), fallbacks=(TINY,)),
    )
    config.snapshot_file.write_bytes(orjson.dumps(to_dict(snapshot(models=entries))))


async def test_a_request_that_waits_and_one_that_another_model_answers_are_open_once(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=prepared, fallback_after=1.0) as gw:

        async def named(name: str, **fields: Any) -> str:
            answer = await gw.client.post(
                "/v1/chat/completions",
                json={"model": TINY, "messages": [{"role": "user", "content": "hi"}], **fields},
                headers={"x-request-id": name},
            )
            assert answer.status_code == 200
            return str(answer.headers.get("x-llmgw-model", ""))

        assert await named("not-ready", model=COLD) == TINY
        held = [asyncio.ensure_future(gw.chat(NEVER)) for _ in range(2)]
        await until(lambda: len(gw.engine.requests) == 3)
        late = asyncio.ensure_future(named("late"))
        await until(lambda: gw.gateway.queues.lines[TINY].waiting == 1)
        assert spooled(gw.config)["open", "late"] == 1  # a gateway that is killed now leaves its record
        assert await named("full") == SECOND
        assert await late == SECOND
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await gw.idle()
        await until(lambda: len(gw.records()) == 5)
        for name in ("not-ready", "late", "full"):
            assert (spooled(gw.config)["open", name], spooled(gw.config)["close", name]) == (1, 1), name
        assert set(spooled(gw.config).values()) == {1}
        assert {record.model_served for record in gw.records() if record.request_id in ("late", "full")} == {SECOND}


async def test_an_answer_that_is_translated_is_one_request(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        gw.engine.unknown.add("/v1/messages")
        body = {"model": TINY, "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
        answer = await gw.client.post("/v1/messages", json=body, headers={"x-request-id": "translated"})
        assert answer.status_code == 200, answer.text
        await gw.record()
        assert spooled(gw.config) == {("open", "translated"): 1, ("close", "translated"): 1}


async def town_of(town: Many, *, fallbacks: tuple[str, ...], **entry: Any) -> tuple[Site, Site]:
    town.models = [ModelEntry(name=TINY, created=1, fallbacks=fallbacks, **entry), ModelEntry(name="other", created=2)]
    front = await town.start("front", "edge", "router", fallback_after=0.3)
    worker = await town.start("worker", "inference", serves=(TINY, "other"), fallback_after=0.3)
    await town.settle()
    return front, worker


@pytest.mark.parametrize(
    ("entry", "code"), [({"queue_length": 0}, "queue_full"), ({"queue_length": 5, "queue_wait": 0.2}, "queue_timeout")]
)
@pytest.mark.parametrize("fallbacks", [(), ("other",)])
async def test_what_the_node_behind_refuses_is_open_once_whether_another_model_answers_or_none(
    tmp_path: Path, entry: dict[str, Any], code: str, fallbacks: tuple[str, ...]
) -> None:
    async with many(tmp_path) as town:
        front, worker = await town_of(town, fallbacks=fallbacks, **entry)
        held = [asyncio.ensure_future(front.chat(NEVER)) for _ in range(2)]
        await until(lambda: worker.asked == 2)
        answer = await front.chat()
        if fallbacks:
            assert (answer.status_code, answer.headers["x-llmgw-model"]) == (200, "other")
        else:
            assert answer.json()["error"]["code"] == code
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await town.idle()
        await until(lambda: len(front.records()) == 3)
        assert len(front.records("open")) == 3
        assert set(spooled(front.node.config).values()) == {1}
        assert not spooled(worker.node.config)


async def test_of_a_models_name_that_a_client_makes_up_the_record_keeps_the_beginning(tmp_path: Path) -> None:
    name = "\u0001" * 1_000_000
    async with rig(tmp_path) as gw:
        answer = await gw.chat(model=name)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
        assert (await gw.record()).model_asked == name[:200]
