"""Another model answers where the one that was asked cannot, as long as nobody has accepted the request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from cluster.wire import to_dict
from llmgw_site.lib.config import Config
from routing.domain.snapshot import BudgetEntry, ModelEntry, PriceEntry
from routing.gateway import dispatch
from tests.routing.gateway.hops import closed_port, many
from tests.routing.gateway.rig import COLD, KEY, NARROW, SECOND, TINY, Rig, ask, key_entry, local_engine, rig, snapshot
from tests.routing.gateway.scripted import Peer, until

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


@asynccontextmanager
async def full(gw: Rig, seconds: float | None = None) -> AsyncIterator[None]:
    """Every slot of TINY is taken, for so long or until the end."""
    script = {"never": True} if seconds is None else {"silent": seconds}
    held = [asyncio.ensure_future(gw.chat(script)) for _ in range(2)]
    await until(lambda: len(gw.engine.requests) == 2)
    yield
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    await gw.idle()


def waiting_room(*entries: ModelEntry) -> Callable[[Config], None]:
    def prepare(config: Config) -> None:
        config.snapshot_file.write_bytes(orjson.dumps(to_dict(snapshot(models=entries))))

    return prepare


FIRST = ModelEntry(name=TINY, created=1, replicas=("rep_1",), fallbacks=(SECOND,))
OTHER = ModelEntry(name=SECOND, created=2, replicas=("rep_2",))


async def test_who_has_no_other_model_waits_for_its_turn_as_long_as_others_do(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=waiting_room(FIRST, OTHER), fallback_after=0.1) as gw:
        gw.client.headers["authorization"] = f"Bearer {NARROW.text}"  # it may use the first model only
        async with full(gw, 0.8):
            answer = await gw.chat()
            assert (answer.status_code, len(gw.engine.requests)) == (200, 3), answer.text


async def test_the_last_model_that_is_left_is_waited_for_though_it_has_others_for_its_own_requests(
    tmp_path: Path,
) -> None:
    last = replace(FIRST, fallbacks=(COLD,))
    entries = (ModelEntry(name=COLD, created=5, replicas=("rep_5",), fallbacks=(TINY,)), last)
    async with rig(tmp_path, prepare=waiting_room(*entries), fallback_after=0.1) as gw, full(gw, 0.8):
        answer = await gw.chat(model=COLD)
        assert (answer.status_code, answer.headers["x-llmgw-model"]) == (200, TINY)


async def test_another_node_hears_whether_another_model_is_left(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        town.models = [
            ModelEntry(name=TINY, created=1, fallbacks=("other",)),
            ModelEntry(name="other", created=2),
        ]
        front = await town.start("front", "edge", "router", fallback_after=0.1)
        worker = await town.start("worker", "inference", serves=(TINY, "other"), fallback_after=0.1)
        await town.settle()
        held = [asyncio.ensure_future(front.chat({"held": True})) for _ in range(2)]
        await until(lambda: worker.asked == 2)
        town.keys = (town.keys[0], replace(town.keys[1], models=(TINY,)))
        await town.settle()
        narrow = {"authorization": f"Bearer {NARROW.text}"}
        alone = asyncio.ensure_future(front.client.post("/v1/chat/completions", json=ask(), headers=narrow))
        answer = await front.chat()
        assert (answer.status_code, answer.headers["x-llmgw-model"]) == (200, "other")
        worker.engine.release.set()
        assert (await alone).status_code == 200
        await asyncio.gather(*held)
        await town.idle()


async def test_no_comment_takes_the_other_models_away_from_who_streams(tmp_path: Path) -> None:
    settings = {"fallback_after": 0.6, "keepalive_comment": 0.1}
    async with rig(tmp_path, prepare=waiting_room(FIRST, OTHER), **settings) as gw, full(gw):
        answer = await gw.chat(stream=True)
        assert (answer.status_code, answer.headers.get("x-llmgw-model")) == (200, SECOND), answer.text


async def test_a_fallback_whose_budget_is_spent_is_passed_over(tmp_path: Path) -> None:
    price = PriceEntry(input=1, output=1, currency="EUR")
    dear = ModelEntry(name=SECOND, created=2, replicas=("rep_2",), price=price)
    cold = ModelEntry(name=COLD, created=5, replicas=("rep_5",), fallbacks=(SECOND, TINY))
    spent = BudgetEntry(budget_id="b", period="day", amount=5, spent=5, resets_at=2.0**32, currency="EUR")
    told = snapshot(models=(cold, dear, FIRST), keys=(key_entry(KEY, "all", budgets=(spent,)),))

    def prepare(config: Config) -> None:
        config.snapshot_file.write_bytes(orjson.dumps(to_dict(told)))

    async with rig(tmp_path, prepare=prepare) as gw:
        answer = await gw.chat(model=COLD)
        assert (answer.status_code, answer.headers["x-llmgw-model"]) == (200, TINY), answer.text


async def test_what_a_node_says_of_when_to_try_again_is_what_the_client_is_told(tmp_path: Path) -> None:
    async def full(peer: Peer) -> None:
        while await peer.request():
            body = b'{"error":{"message":"m","type":"rate_limit_error","code":"queue_full","param":null,"waiting":3}}'
            head = b"HTTP/1.1 429 X\r\ncontent-type: application/json\r\nretry-after: 42\r\ncontent-length: %d\r\n\r\n"
            await peer.send(head % len(body) + body)

    async with many(tmp_path) as town:
        town.models = [ModelEntry(name=TINY, created=1, fallbacks=("other",)), ModelEntry(name="other", created=2)]
        front = await town.start("front", "edge", "router")
        await town.scripted("worker", "inference", handler=full, serves=(TINY, "other"))
        await town.settle()
        answer = await front.chat()
        assert (answer.status_code, answer.json()["error"]["waiting"]) == (429, 3)
        assert answer.headers["retry-after"] == "42"


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


@pytest.mark.parametrize("model", [TINY, SECOND])
async def test_an_engine_that_cannot_be_reached_has_failed_whether_or_not_a_fallback_was_asked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setattr(dispatch, "GRACE", 0.1)
    async with rig(tmp_path, prepare=prepared) as gw:
        gone = closed_port()
        gw.publish((local_engine("rep_1", TINY, gone), local_engine("rep_2", SECOND, gone)))
        await until(lambda: all(seat.port == gone for seat in gw.gateway.table.view.routes[model].seats))
        answer = await gw.chat(model=model)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_unreachable")
        record = await gw.record()
        assert (record.outcome, record.code, record.model_served) == ("failed", "engine_unreachable", model)
        assert record.replica_id == ("rep_1" if model == TINY else "rep_2")
