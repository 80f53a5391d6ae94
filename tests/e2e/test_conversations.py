"""Conversations with a tool, streamed, as each package has them: the model asks the tool, is told, and answers.

A tiny model says one thing only. `tiny-tools` asks the tool; the turn after it goes to the quickstart's model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import anthropic
import pytest
from pydantic import SecretStr

from tests import tiny
from tests.e2e.test_openai_client import HELLO, WEATHER, usage_of
from tests.stack import MODEL, Stack

pytestmark = [
    pytest.mark.slow, pytest.mark.live("stack"), pytest.mark.timeout(300), pytest.mark.usefixtures("more_models")
]  # fmt: skip

ASKS = "tiny-tools"


def test_the_openai_package(stack: Stack) -> None:
    turns = list(HELLO)
    with stack.openai() as client:
        asked: dict[str, Any] = {"temperature": 0, "tools": WEATHER}
        with client.chat.completions.stream(model=ASKS, messages=turns, **asked) as stream:
            message = stream.get_final_completion().choices[0].message
        (call,) = message.tool_calls or []
        assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Oslo"})
        turns += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
        with client.chat.completions.stream(
            model=MODEL, messages=turns, stream_options={"include_usage": True}, **asked
        ) as stream:
            pieces = [event.delta for event in stream if event.type == "content.delta"]
            answer = stream.get_final_completion()
    assert "".join(pieces) == answer.choices[0].message.content == tiny.TEXT
    assert len(pieces) > 3
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 3


def test_the_anthropic_package(stack: Stack) -> None:
    offered: dict[str, Any] = {
        "name": "get_weather", "description": "The weather of a city.",
        "input_schema": WEATHER[0]["function"]["parameters"],
    }  # fmt: skip
    key = stack.quickstart["LLMGW_API_KEY"]
    with anthropic.Anthropic(base_url=stack.url, api_key=key, max_retries=0) as client:
        turns: list[Any] = list(HELLO)
        asked: dict[str, Any] = {"max_tokens": 64, "tools": [offered], "extra_body": {"temperature": 0}}
        with client.messages.stream(model=ASKS, messages=turns, **asked) as stream:
            message = stream.get_final_message()
            request_id = stream.response.headers["x-request-id"]
        (use,) = [block for block in message.content if block.type == "tool_use"]
        assert (message.stop_reason, use.name, use.input) == ("tool_use", "get_weather", {"city": "Oslo"})
        record = usage_of(stack, request_id)
        assert (record["endpoint"], record["outcome"], record["stream"]) == ("messages", "ok", True)
        assert record["completion_tokens"] == message.usage.output_tokens > 0
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "rain"}
        turns += [{"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
        with client.messages.stream(model=MODEL, messages=turns, **asked) as stream:
            assert "".join(stream.text_stream) == tiny.TEXT
        assert client.messages.count_tokens(model=MODEL, messages=turns).input_tokens > 10
        with pytest.raises(anthropic.BadRequestError) as caught:
            client.messages.create(model="tiny-rank", messages=turns, max_tokens=9)
    assert "wrong_endpoint" in str(caught.value.body)


def test_the_langchain_openai_package(stack: Stack) -> None:
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage  # dear to import
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    def model(name: str) -> Any:
        chat = ChatOpenAI(
            model=name, base_url=f"{stack.url}/v1", api_key=SecretStr(stack.quickstart["LLMGW_API_KEY"]),
            temperature=0, max_retries=0, stream_usage=True, include_response_headers=True,
        )  # fmt: skip
        return chat.bind_tools([get_weather])

    turns: list[BaseMessage] = [HumanMessage("Hi.")]
    asked, _ = whole(model(ASKS).stream(turns))
    (call,) = asked.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Oslo"})
    told = get_weather.invoke(call)
    assert isinstance(told, ToolMessage)
    turns += [AIMessage(content=asked.content, tool_calls=asked.tool_calls), told]
    answer, pieces = whole(model(MODEL).stream(turns))
    assert answer.content == tiny.TEXT
    assert pieces > 3
    record = usage_of(stack, answer.response_metadata["headers"]["x-request-id"])
    assert answer.usage_metadata is not None
    assert (record["prompt_tokens"], record["completion_tokens"]) == (
        answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"],
    )  # fmt: skip


def whole(chunks: Iterable[Any]) -> tuple[Any, int]:
    """LangChain's message that the pieces make up, and how many brought text."""
    first, *others = list(chunks)
    return sum(others, first), sum(bool(chunk.content) for chunk in (first, *others))
