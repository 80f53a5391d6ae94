"""Messages and responses of engines and providers that have never heard of them, by the packages that people use."""

from __future__ import annotations

import base64
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests import tiny
from tests.fakes.provider import Provider
from tests.routing.gateway.clouds import OURS, PROVIDER_KEY, THEIRS, cloud_rig, provider_entry
from tests.routing.gateway.real import real_rig
from tests.routing.gateway.rig import KEY, TINY, Rig, ask, rig
from tests.routing.gateway.test_messages import MESSAGES, RESPONSES, cut_off, named, scripted
from tests.tiny_vision import TINY as EYES
from tests.tiny_vision import make_projector, png

PATHS = {MESSAGES, f"{MESSAGES}/count_tokens", RESPONSES}
CHAT = "/v1/chat/completions"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
HI: list[Any] = [{"role": "user", "content": "Hi."}]


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_has_no_such_path_is_asked_as_a_chat_and_that_is_remembered(
    tmp_path: Path, path: str, stream: bool
) -> None:
    async with rig(tmp_path) as gw:
        gw.engine.unknown = PATHS
        for count in (1, 2):
            answer = await gw.client.post(path, json=scripted(path, {"cached": 2}, stream=stream))
            assert answer.status_code == 200, answer.text
            record = await gw.record(count)
            assert (record.outcome, record.model_asked, record.stream) == ("ok", TINY, stream)
            assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (7, 3, 2)
            assert record.finish_reason == ("end_turn" if path == MESSAGES else "completed")
            if stream:
                assert named(answer.text)[-1][0] in ("message_stop", "response.completed")
            else:
                assert int(answer.headers.get("content-length", len(answer.content))) == len(answer.content)
        assert [seen.path for seen in gw.engine.requests] == [path, CHAT, CHAT]
        await gw.idle()


async def test_a_model_that_is_not_there_is_no_reason_to_remember_anything(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        gw.engine.unknown = PATHS | {CHAT}
        for _ in range(2):
            answer = await gw.client.post(MESSAGES, json=scripted(MESSAGES, "hello"))
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
            assert f"has no {MESSAGES}" in answer.json()["error"]["message"]
        assert [seen.path for seen in gw.engine.requests] == [MESSAGES, CHAT] * 2
        gw.engine.unknown = set()
        assert (await gw.client.post(MESSAGES, json=scripted(MESSAGES, "hello"))).status_code == 200
        assert gw.engine.last.path == MESSAGES


async def test_what_a_chat_has_no_words_for_is_refused_for_the_model_first_and_for_the_field_later(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as gw:
        gw.engine.unknown = PATHS
        kept = {**scripted(RESPONSES, "hello"), "previous_response_id": "resp_1"}
        first = (await gw.client.post(RESPONSES, json=kept)).json()["error"]
        assert (first["code"], first["param"]) == ("not_supported", "model")  # the engine has no such path
        assert (await gw.client.post(RESPONSES, json=scripted(RESPONSES, "hello"))).status_code == 200
        refused = await gw.client.post(RESPONSES, json=kept)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["param"]) == (400, "not_supported", "previous_response_id")
        assert (await gw.record(3)).outcome == "refused"


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
@pytest.mark.parametrize("how", [{"die_after": 2}, {"cut_after": 2}, {"error_after": 2}])
async def test_f16_a_translated_stream_that_breaks_has_an_error_and_no_end(
    tmp_path: Path, path: str, how: dict[str, int]
) -> None:
    async with rig(tmp_path) as gw:
        gw.engine.unknown = PATHS
        body = scripted(path, how, stream=True)
        if "error_after" in how:
            text = (await gw.client.post(path, json=body)).text
        else:
            text = await cut_off(gw, path, body)
        assert named(text)[-1][0] == "error"
        record = await gw.record()
        assert (record.outcome, record.completion_tokens, record.estimated) == ("failed", 2, True)
        await gw.idle()


async def test_tokens_of_messages_are_counted_by_an_engine_that_only_cuts_them(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        gw.engine.unknown = PATHS
        counted = await gw.client.post(
            f"{MESSAGES}/count_tokens", json=ask('{"body": "{\\"count\\": 7, \\"tokens\\": []}"}')
        )
        assert counted.json() == {"input_tokens": 7}
        assert gw.engine.last.path == "/tokenize"


@pytest.mark.parametrize("native", [True, False])
async def test_a_provider_is_sent_messages_or_a_chat_and_its_own_key_only(tmp_path: Path, native: bool) -> None:
    provider = Provider(key=PROVIDER_KEY, model=THEIRS)
    async with provider, cloud_rig(tmp_path, provider_entry(provider.url)) as gw:
        provider.unknown = set() if native else PATHS
        headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "x-1", "x-api-key": "other", "x-mine": "1"}
        body = {**scripted(MESSAGES, "hello", stream=True), "model": OURS}
        answer = await gw.client.post(MESSAGES, json=body, headers=headers)
        assert named(answer.text)[-1][0] == "message_stop"
        assert [seen.path for seen in provider.requests] == ([MESSAGES] if native else [MESSAGES, CHAT])
        assert provider.wrong == []
        assert provider.requests[0].headers["anthropic-beta"] == "x-1"
        assert provider.last.json["model"] == THEIRS
        assert (await gw.record()).completion_tokens == 3


@asynccontextmanager
async def engine(folder: Path, native: bool, text: str = tiny.TEXT, projector: str = "") -> AsyncIterator[Rig]:
    """The real engine, taken at its word or for one that speaks chats only."""
    async with real_rig(folder, tiny.tiny_gguf(text=text, tools=True), TINY, projector=projector) as gw:
        if not native:
            for path in PATHS:
                gw.gateway.app._generate._speech._lacks["rep_1", path] = math.inf
        yield gw


@pytest.mark.parametrize("native", [True, False])
async def test_the_anthropic_package_talks_streams_and_uses_a_tool(tmp_path: Path, native: bool) -> None:
    tool: Any = {"name": "get_weather", "description": "Of a city.", "input_schema": SCHEMA}
    async with engine(tmp_path, native, tiny.TOOL_CALL) as gw:
        async with anthropic.AsyncAnthropic(base_url=gw.url, api_key=KEY.text, max_retries=0) as client:
            greedy = {"temperature": 0}
            asked: dict[str, Any] = {"model": TINY, "max_tokens": 64, "tools": [tool], "extra_body": greedy}
            message = await client.messages.create(messages=HI, **asked)
            assert message.stop_reason == "tool_use"
            use = message.content[-1]
            assert isinstance(use, anthropic.types.ToolUseBlock)
            assert (use.name, use.input) == ("get_weather", {"city": "Oslo"})
            async with client.messages.stream(messages=HI, **asked) as stream:
                again = await stream.get_final_message()
            assert [block.model_dump(exclude={"id"}) for block in again.content] == [
                block.model_dump(exclude={"id"}) for block in message.content
            ]
            assert again.stop_reason == "tool_use"
            result: Any = {"type": "tool_result", "tool_use_id": use.id, "content": "rain"}
            turns: list[Any] = [
                *HI,
                {"role": "assistant", "content": message.content},
                {"role": "user", "content": [result]},
            ]
            last = await client.messages.create(messages=turns, **asked)
            assert last.usage.output_tokens > 0
            with pytest.raises(anthropic.NotFoundError) as caught:
                await client.messages.create(messages=HI, **{**asked, "model": "nobody"})
            assert "nobody" in caught.value.message
        records = [await gw.record(4)] and gw.records()
        assert [record.outcome for record in records] == ["ok", "ok", "ok", "refused"]
        assert all(record.completion_tokens == records[0].completion_tokens for record in records[:3])
        assert records[0].prompt_tokens == message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)


@pytest.mark.parametrize("native", [True, False])
async def test_the_openai_package_has_responses_streamed_and_with_a_tool(tmp_path: Path, native: bool) -> None:
    tool: Any = {"type": "function", "name": "get_weather", "description": "x", "parameters": SCHEMA, "strict": False}
    async with engine(tmp_path, native, tiny.TOOL_CALL) as gw:
        async with openai.AsyncOpenAI(base_url=f"{gw.url}/v1", api_key=KEY.text, max_retries=0) as client:
            asked: dict[str, Any] = {"model": TINY, "temperature": 0, "tools": [tool]}
            response = await client.responses.create(input=HI, **asked)
            call = response.output[-1]
            assert call.type == "function_call"
            assert (call.name, call.arguments) == ("get_weather", '{"city": "Oslo"}')
            parts, last = "", None
            async for event in await client.responses.create(input=HI, stream=True, **asked):
                if event.type == "response.function_call_arguments.delta":
                    parts += event.delta
                last = event
            assert parts == call.arguments
            assert last is not None
            assert last.type == "response.completed"
            assert last.response.usage == response.usage or last.response.usage is not None
            turns: list[Any] = [*HI, call, {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
            assert (await client.responses.create(input=turns, **asked)).usage is not None
        await gw.record(3)
        assert {record.endpoint for record in gw.records()} == {"responses"}


async def test_the_openai_package_gathers_a_translated_stream(tmp_path: Path) -> None:
    async with engine(tmp_path, False) as gw, openai.AsyncOpenAI(base_url=f"{gw.url}/v1", api_key=KEY.text) as client:
        async with client.responses.stream(model=TINY, input=HI, temperature=0, instructions="Be brief.") as stream:
            response = await stream.get_final_response()
        assert response.output_text == tiny.TEXT
        assert response.instructions == "Be brief."
        assert response.usage is not None
        assert response.usage.output_tokens == 12


@pytest.mark.parametrize("native", [True, False])
async def test_a_picture_is_seen_through_messages_and_responses(tmp_path: Path, native: bool) -> None:
    """What a picture costs is in the counts; what is none, or an address, is the request's fault."""
    eyes = make_projector(tmp_path / "mmproj.gguf", tiny.tiny_gguf(tools=True))
    data = base64.b64encode(png()).decode()
    address = "http://127.0.0.1:9/x.png"

    def message(source: dict[str, str]) -> dict[str, Any]:
        parts = [{"type": "text", "text": "Hi."}, {"type": "image", "source": source}]
        return {"model": TINY, "max_tokens": 40, "temperature": 0, "messages": [{"role": "user", "content": parts}]}

    def response(url: str) -> dict[str, Any]:
        parts = [{"type": "input_text", "text": "Hi."}, {"type": "input_image", "image_url": url}]
        return {"model": TINY, "temperature": 0, "input": [{"role": "user", "content": parts}]}

    async with engine(tmp_path, native, projector=str(eyes)) as gw:
        plain = (await gw.client.post(CHAT, json=ask("Hi.", max_tokens=1))).json()["usage"]["prompt_tokens"]
        seen = await gw.client.post(MESSAGES, json=message({"type": "base64", "media_type": "image/png", "data": data}))
        assert seen.status_code == 200, seen.text
        assert seen.json()["content"][-1]["text"] == tiny.TEXT
        again = await gw.client.post(RESPONSES, json=response(f"data:image/png;base64,{data}"))
        assert again.json()["output"][-1]["content"][0]["text"] == tiny.TEXT, again.text
        await gw.record(3)
        assert [item.prompt_tokens for item in gw.records()] == [plain, plain + EYES.tokens, plain + EYES.tokens]
        for path, body, code in (
            (MESSAGES, message({"type": "url", "url": address}), "media_address_refused"),
            (RESPONSES, response(address), "media_address_refused"),
            (MESSAGES, message({"type": "base64", "media_type": "image/png", "data": "aGk="}), "media_unreadable"),
            (RESPONSES, response("data:image/png;base64,aGk="), "media_unreadable"),
        ):
            refused = await gw.client.post(path, json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, code), refused.text
