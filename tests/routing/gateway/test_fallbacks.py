"""Another model answers where the one that was asked cannot, as long as nobody has accepted the request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from cluster.wire import to_dict
from llmgw_site.lib.config import Config
from routing.domain.snapshot import ModelEntry
from tests.routing.gateway.hops import many
from tests.routing.gateway.rig import COLD, KEY, NARROW, SECOND, TINY, local_engine, rig, snapshot
from tests.routing.gateway.scripted import until

ENTRIES = (
    ModelEntry(name=TINY, created=1, replicas=("rep_1",), fallbacks=(SECOND,), context=200, queue_length=0),
    ModelEntry(name=SECOND, created=2, replicas=("rep_2",)),
    ModelEntry(name=COLD, created=5, replicas=("rep_5",), fallbacks=("gone", TINY)),
)


def prepared(config: Config) -> None:
    config.snapshot_file.write_bytes(orjson.dumps(to_dict(snapshot(models=ENTRIES))))


async def test_a_model_that_is_not_ready_is_answered_for_and_the_answer_says_by_whom(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=prepared) as gw:
        answer = await gw.chat(model=COLD)
        assert (answer.status_code, answer.headers["x-llmgw-model"]) == (200, TINY)
        assert gw.engine.last.json["model"] == TINY
        record = await gw.record()
        assert (record.model_asked, record.model_served, record.outcome) == (COLD, TINY, "ok")
        answer = await gw.chat(model=TINY)
        assert "x-llmgw-model" not in answer.headers


async def test_a_full_queue_and_a_prompt_that_is_too_long_go_to_the_next_model(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=prepared) as gw:
        held = [asyncio.ensure_future(gw.chat({"never": True})) for _ in range(2)]
        await until(lambda: len(gw.engine.requests) == 2)
        answer = await gw.chat()
        assert (answer.status_code, answer.headers["x-llmgw-model"]) == (200, SECOND)
        assert gw.engine.last.json["model"] == "second-inside"
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await gw.idle()
        answer = await gw.chat("word " * 400)
        assert (answer.status_code, answer.headers["x-llmgw-model"]) == (200, SECOND)


async def test_a_fallback_that_the_key_may_not_use_is_none(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=prepared) as gw:
        gw.client.headers["authorization"] = f"Bearer {NARROW.text}"
        gw.publish((local_engine("rep_2", SECOND, gw.engine.port),))
        await until(lambda: not gw.gateway.table.view.routes[TINY].seats)
        answer = await gw.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready")
        assert "x-llmgw-model" not in answer.headers
        gw.client.headers["authorization"] = f"Bearer {KEY.text}"
        assert (await gw.chat()).status_code == 200


@pytest.mark.parametrize(
    ("script", "stream", "status", "code"),
    [
        ({"status": 503}, False, 503, None),
        ({"reset": True}, False, 502, "engine_broken"),
        ({"tokens": 5, "die_after": 2}, True, 200, None),
    ],
)
async def test_f26_no_second_model_is_asked_once_an_engine_has_accepted(
    tmp_path: Path, script: dict[str, Any], stream: bool, status: int, code: str | None
) -> None:
    async with rig(tmp_path, prepare=prepared) as gw:
        async with gw.client.stream(
            "POST",
            "/v1/chat/completions",
            json={
                "model": TINY,
                "stream": stream,
                "messages": [{"role": "user", "content": orjson.dumps(script).decode()}],
            },
        ) as answer:
            assert answer.status_code == status
            assert "x-llmgw-model" not in answer.headers
            try:
                body = await answer.aread()
            except Exception:
                body = b""
        if code is not None:
            assert orjson.loads(body)["error"]["code"] == code
        assert [seen.json["model"] for seen in gw.engine.requests] == [TINY]


async def test_where_no_model_can_the_client_is_told_why_the_first_cannot(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=prepared) as gw:
        gw.publish(())
        await until(lambda: not gw.gateway.table.view.routes[TINY].seats)
        answer = await gw.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready")
        assert f"'{TINY}'" in answer.json()["error"]["message"]
        record = await gw.record()
        assert (record.model_asked, record.model_served, record.outcome) == (TINY, "", "refused")


async def test_what_another_node_has_no_room_for_goes_to_the_next_model(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        town.models = [
            ModelEntry(name=TINY, created=1, fallbacks=("other",), queue_length=0),
            ModelEntry(name="other", created=2),
        ]
        front = await town.start("front", "edge", "router")
        worker = await town.start("worker", "inference", serves=(TINY, "other"))
        await town.settle()
        held = [asyncio.ensure_future(front.chat({"never": True})) for _ in range(2)]
        await until(lambda: worker.asked == 2)
        answer = await front.chat()
        assert (answer.status_code, answer.headers["x-llmgw-model"]) == (200, "other")
        assert worker.engine.last.json["model"] == "other"
        record = await front.record()
        assert (record.model_asked, record.model_served, record.replica_id) == (TINY, "other", "rep_worker_other")
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await town.idle()
