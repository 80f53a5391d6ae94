"""Anthropic's messages and OpenAI's responses, where the engine speaks them: bytes pass, and are counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from routing.domain.prompts import fewest
from tests import tiny
from tests.routing.gateway.real import real_rig
from tests.routing.gateway.rig import EXPIRED, KEY, TINY, Rig, ask, rig
from tests.tiny import TEXT

MESSAGES, COUNT, RESPONSES = "/v1/messages", "/v1/messages/count_tokens", "/v1/responses"
NAMES = {MESSAGES: "messages", COUNT: "messages.count_tokens", RESPONSES: "responses"}
HI: list[dict[str, Any]] = [{"role": "user", "content": "Hi."}]
PLAIN: dict[str, Any] = {"model": TINY, "temperature": 0}
BODIES: dict[str, dict[str, Any]] = {
    MESSAGES: {**PLAIN, "messages": HI, "max_tokens": 64},
    COUNT: {**PLAIN, "messages": HI},
    RESPONSES: {**PLAIN, "input": HI},
}


def scripted(path: str, script: Any, **fields: Any) -> dict[str, Any]:
    body = ask(script, max_tokens=9, **fields)
    return body if path == MESSAGES else {**body, "input": body.pop("messages")[0]["content"]}


def named(text: str) -> list[tuple[str, dict[str, Any]]]:
    events = [dict(line.split(": ", 1) for line in part.split("\n")) for part in text.split("\n\n") if part]
    return [(event.get("event", ""), json.loads(event["data"])) for event in events]


async def cut_off(gw: Rig, path: str, body: dict[str, Any]) -> str:
    """What came of a stream that has no clean end."""
    text = b""
    async with gw.client.stream("POST", path, json=body) as answer:
        try:
            async for piece in answer.aiter_raw():
                text += piece
        except httpx.RemoteProtocolError:
            return text.decode()
    raise AssertionError("it ended as if it were whole")


async def test_f23_the_real_engine_answers_each_api_and_its_counts_are_the_record_s(tmp_path: Path) -> None:
    async with real_rig(tmp_path, tiny.tiny_gguf(), TINY) as gw:
        count = 0
        for path, body in BODIES.items():
            for stream in (False, True) if path != COUNT else (False,):
                answer = await gw.client.post(path, json={**body, "stream": stream} if path != COUNT else body)
                assert answer.status_code == 200, answer.text
                count += 1
                record = await gw.record(count)
                assert (record.endpoint, record.outcome, record.stream) == (NAMES[path], "ok", stream)
                counted = (record.prompt_tokens, record.completion_tokens, record.estimated)
                if path == COUNT:
                    assert answer.json()["input_tokens"] == 23
                    assert counted == (None, None, False)
                    continue
                assert counted == (23, 12, False)
                assert 1 <= (fewest(NAMES[path], orjson.dumps(body), context=None) or 0) <= 23
                assert record.finish_reason == ("end_turn" if path == MESSAGES else "completed")
                assert (record.first_token_s is not None) == stream
                assert TEXT in answer.text or stream
                assert record.cached_tokens is not None
                if stream:
                    assert answer.headers["content-type"] == "text/event-stream"
                    assert named(answer.text)[-1][0] in ("message_stop", "response.completed")


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
async def test_a_stream_passes_as_it_came_and_is_counted_by_its_own_usage(tmp_path: Path, path: str) -> None:
    async with rig(tmp_path) as gw:
        body = scripted(path, {"tokens": 4, "cached": 3}, stream=True)
        answer = await gw.client.post(path, json=body)
        assert gw.engine.last.json == body
        assert gw.engine.last.path == path
        assert len(named(answer.text)) == (7 if path == MESSAGES else 6)
        record = await gw.record()
        assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (7, 4, 3)
        assert (record.estimated, record.outcome) == (False, "ok")


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
@pytest.mark.parametrize("how", ["die_after", "cut_after"])
async def test_f16_a_stream_that_breaks_ends_with_the_api_s_own_error_event(
    tmp_path: Path, path: str, how: str
) -> None:
    async with rig(tmp_path) as gw:
        text = await cut_off(gw, path, scripted(path, {how: 2}, stream=True))
        name, event = named(text)[-1]
        assert (name, event["type"]) == ("error", "error")
        assert event["error"]["code"] == "engine_broken"
        assert event["error"]["type"] == ("api_error" if path == MESSAGES else "server_error")
        record = await gw.record()
        assert (record.outcome, record.code, record.completion_tokens) == ("failed", "engine_broken", 2)
        assert record.estimated
        await gw.idle()


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
async def test_an_error_event_of_the_engine_s_passes_and_is_recorded(tmp_path: Path, path: str) -> None:
    async with rig(tmp_path) as gw:
        answer = await gw.client.post(path, json=scripted(path, {"error_after": 1}, stream=True))
        assert named(answer.text)[-1][1]["error"]["message"] == "boom"
        record = await gw.record()
        assert (record.outcome, record.code, record.completion_tokens) == ("failed", "overloaded_error", 1)


async def test_the_key_may_stand_where_anthropic_s_clients_put_it_and_only_there(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw, httpx.AsyncClient(base_url=gw.url) as client:
        for path in (MESSAGES, COUNT):
            for empty in ({}, {"authorization": ""}):
                sent = {"x-api-key": KEY.text, **empty}
                good = await client.post(path, json=scripted(MESSAGES, "hello"), headers=sent)
                assert good.status_code == 200
                assert "x-api-key" not in gw.engine.last.headers
            for headers, code in (({}, "missing_api_key"), ({"x-api-key": EXPIRED.text}, "invalid_api_key")):
                refused = await client.post(path, json=scripted(MESSAGES, "hello"), headers=headers)
                assert refused.status_code == 401
                body = refused.json()
                assert (body["type"], body["error"]["type"]) == ("error", "authentication_error")
                assert body["error"]["code"] == code
        for path in (RESPONSES, "/v1/chat/completions"):
            refused = await client.post(path, json=ask(), headers={"x-api-key": KEY.text})
            assert refused.json()["error"]["code"] == "missing_api_key"
        wrong = await client.post(
            MESSAGES, json=ask(), headers={"x-api-key": "x", "authorization": f"Bearer {KEY.text}"}
        )
        assert wrong.status_code == 200  # whoever sends both means the Authorization


async def anthropic_error(gw: Rig, body: dict[str, Any]) -> tuple[int, str, str]:
    answer = await gw.client.post(MESSAGES, json=body)
    found = answer.json()
    assert found["type"] == "error"
    return answer.status_code, found["error"]["type"], found["error"]["code"]


async def test_f47_every_error_is_in_anthropic_s_envelope(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        told = json.dumps({"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error"}})
        expected = {
            "nobody": (404, "not_found_error", "model_not_found"),
            "cold": (503, "overloaded_error", "model_not_ready"),
            TINY: (400, "invalid_request_error", "context_length_exceeded"),
        }
        for model, error in expected.items():
            assert await anthropic_error(gw, ask({"status": 400, "body": told}, model=model)) == error
        assert await anthropic_error(gw, ask({"reset": True})) == (502, "api_error", "engine_broken")
        assert await anthropic_error(gw, {"model": TINY}) == (400, "invalid_request_error", "missing_field")
        assert (await gw.client.get(MESSAGES)).json()["type"] == "error"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (MESSAGES, {"messages": [{"role": "user"}]}, "messages[0].content"),
        (MESSAGES, {"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        (MESSAGES, {"messages": HI, "system": 1}, "system"),
        (MESSAGES, {"messages": HI, "tools": [1]}, "tools[0]"),
        (COUNT, {"messages": "Hi."}, "messages"),
        (COUNT, {"messages": HI, "stream": True}, "stream"),
        (RESPONSES, {"input": []}, "input"),
        (RESPONSES, {"input": ["x"]}, "input[0]"),
        (RESPONSES, {}, "input"),
    ],
)
async def test_what_no_engine_could_answer_is_refused(tmp_path: Path, path: str, body: Any, param: str) -> None:
    async with rig(tmp_path) as gw:
        refused = await gw.client.post(path, json={"model": TINY, **body})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
        assert not gw.engine.requests
