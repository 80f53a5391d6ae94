"""The `anthropic` package, responses and rankings against a running llmgw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest

from tests import tiny
from tests.e2e.test_openai_client import usage_of
from tests.stack import MODEL, Stack

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack"), pytest.mark.timeout(300)]

TOOL: Any = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
GREEDY = {"temperature": 0}


@pytest.fixture(scope="session")
def asking_and_ranking(shared_stack: Stack) -> Iterator[None]:
    """A model that asks a tool, and one that ranks; gone afterwards."""
    shared_stack.serve("tiny-asks", tiny.tiny_gguf(name="tiny-asks", text=tiny.TOOL_CALL, tools=True))
    shared_stack.serve("tiny-rank", tiny.tiny_gguf(name="tiny-rank", pooling="rank"))
    yield
    for name in ("tiny-asks", "tiny-rank"):
        shared_stack.remove_model(name)


@pytest.mark.usefixtures("asking_and_ranking")
def test_the_anthropic_package_has_a_conversation_with_a_tool_streamed(stack: Stack) -> None:
    key = stack.quickstart["LLMGW_API_KEY"]
    with anthropic.Anthropic(base_url=stack.url, api_key=key, max_retries=0) as client:
        turns: list[Any] = [{"role": "user", "content": "Hi."}]
        asked: dict[str, Any] = {"max_tokens": 64, "tools": [TOOL], "extra_body": GREEDY}
        with client.messages.stream(model="tiny-asks", messages=turns, **asked) as stream:
            message = stream.get_final_message()
            request_id = stream.response.headers["x-request-id"]
        (use,) = [block for block in message.content if block.type == "tool_use"]
        assert (message.stop_reason, use.name, use.input) == ("tool_use", "get_weather", {"city": "Oslo"})
        record = usage_of(stack, request_id)
        assert (record["endpoint"], record["outcome"], record["stream"]) == ("messages", "ok", True)
        assert record["completion_tokens"] == message.usage.output_tokens > 0
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "rain"}
        turns += [{"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
        with client.messages.stream(model=MODEL, messages=turns, max_tokens=64, extra_body=GREEDY) as stream:
            assert "".join(stream.text_stream) == tiny.TEXT
        assert client.messages.count_tokens(model=MODEL, messages=turns).input_tokens > 10
        with pytest.raises(anthropic.BadRequestError) as caught:
            client.messages.create(model="tiny-rank", messages=turns, max_tokens=9)
    assert "wrong_endpoint" in str(caught.value.body)


def test_a_response_of_the_openai_package(stack: Stack) -> None:
    with stack.openai() as client:
        answer = client.responses.with_raw_response.create(model=MODEL, input="Hi.", temperature=0)
    assert answer.parse().output_text == tiny.TEXT
    record = usage_of(stack, answer.headers["x-request-id"])
    assert (record["endpoint"], record["completion_tokens"]) == ("responses", 12)


@pytest.mark.usefixtures("asking_and_ranking")
def test_texts_are_ranked_by_a_model_that_was_served_as_any_other(stack: Stack) -> None:
    answer = httpx.post(
        f"{stack.url}/v1/rerank",
        headers={"authorization": f"Bearer {stack.quickstart['LLMGW_API_KEY']}"},
        json={"model": "tiny-rank", "query": "one", "documents": ["a b c", "b"]},
        trust_env=False,
    )
    assert answer.status_code == 200, answer.text
    assert {item["index"] for item in answer.json()["results"]} == {0, 1}
    record = usage_of(stack, answer.headers["x-request-id"])
    assert (record["endpoint"], record["prompt_tokens"]) == ("rerank", answer.json()["usage"]["prompt_tokens"])
