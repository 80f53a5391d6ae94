"""The `openai` package against a running llmgw: what its users do, byte for byte what the engine says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests import tiny
from tests.processes import fair, wait_for
from tests.stack import MODEL, Stack

pytestmark = [pytest.mark.slow, pytest.mark.live("stack"), pytest.mark.timeout(300)]

HELLO: list[Any] = [{"role": "user", "content": "Hi."}]
WEATHER: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def usage_of(stack: Stack, request_id: str) -> dict[str, Any]:
    """The one usage record of a request, once the controllers have it."""
    rows = wait_for(
        lambda: stack.api().get("usage", request_id=request_id)["results"],
        seconds=fair(30),
        what="the usage record",
        every=0.2,
    )
    assert len(rows) == 1
    return dict(rows[0])


def test_a_chat_is_answered_and_metered_once(stack: Stack) -> None:
    with stack.openai() as client:
        answer = client.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, temperature=0)
    chat = answer.parse()
    assert chat.choices[0].message.content == tiny.TEXT
    assert chat.choices[0].finish_reason == "stop"
    assert chat.usage is not None
    record = usage_of(stack, answer.headers["x-request-id"])
    assert record["outcome"] == "ok"
    assert record["model_asked"] == MODEL
    assert (record["prompt_tokens"], record["completion_tokens"]) == (
        chat.usage.prompt_tokens,
        chat.usage.completion_tokens,
    )
    assert record["total_s"] > 0


def test_a_stream_arrives_in_pieces_and_is_metered_without_an_extra_chunk(stack: Stack) -> None:
    with stack.openai() as client:
        answer = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=HELLO, temperature=0, stream=True
        )
        chunks = list(answer.parse())
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == tiny.TEXT
    assert len(chunks) > 3
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    record = usage_of(stack, answer.headers["x-request-id"])
    assert record["stream"] is True
    assert record["completion_tokens"] > 3
    assert record["first_token_s"] is not None


def test_the_usage_chunk_comes_when_it_is_asked_for(stack: Stack) -> None:
    with stack.openai() as client:
        stream = client.chat.completions.create(
            model=MODEL, messages=HELLO, temperature=0, stream=True, stream_options={"include_usage": True}
        )
        last = list(stream)[-1]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens > 3


def test_logprobs_pass(stack: Stack) -> None:
    with stack.openai() as client:
        answer = client.chat.completions.create(
            model=MODEL, messages=HELLO, temperature=0, logprobs=True, top_logprobs=2
        )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    assert len(logprobs.content[0].top_logprobs) == 2


def test_plain_completions(stack: Stack) -> None:
    with stack.openai() as client:
        whole = client.completions.create(model=MODEL, prompt="Hi.", temperature=0)
        pieces = list(client.completions.create(model=MODEL, prompt="Hi.", temperature=0, stream=True))
    assert whole.choices[0].text == tiny.TEXT
    assert "".join(piece.choices[0].text for piece in pieces) == tiny.TEXT


def test_models_are_listed_and_shown(stack: Stack) -> None:
    with stack.openai() as client:
        assert MODEL in [model.id for model in client.models.list()]
        shown = wait_for(
            lambda: "meta" in (now := client.models.retrieve(MODEL)).to_dict() and now, what="the engine's word"
        )
        assert shown.owned_by
        said = shown.to_dict()
        assert said["context_length"] > 0
        assert said["meta"]["n_params"] > 0  # type: ignore[index]
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve("none")
    assert caught.value.code == "model_not_found"


@pytest.mark.usefixtures("more_models")
@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls(stack: Stack, stream: bool) -> None:
    with stack.openai() as client:
        if stream:
            name, arguments = "", ""
            for chunk in client.chat.completions.create(
                model="tiny-tools", messages=HELLO, temperature=0, tools=WEATHER, stream=True
            ):
                for call in chunk.choices[0].delta.tool_calls or []:
                    assert call.function is not None
                    name += call.function.name or ""
                    arguments += call.function.arguments or ""
        else:
            answer = client.chat.completions.create(model="tiny-tools", messages=HELLO, temperature=0, tools=WEATHER)
            (made,) = answer.choices[0].message.tool_calls or []
            assert made.type == "function"
            name, arguments = made.function.name, made.function.arguments
            assert answer.choices[0].finish_reason == "tool_calls"
    assert name == "get_weather"
    assert json.loads(arguments) == {"city": "Oslo"}


@pytest.mark.usefixtures("more_models")
def test_embeddings(stack: Stack) -> None:
    with stack.openai() as client:
        answer = client.embeddings.create(model="tiny-embed", input=["one", "two"])
        assert [item.index for item in answer.data] == [0, 1]
        assert len(answer.data[0].embedding) == len(answer.data[1].embedding) > 8
        with pytest.raises(openai.APIStatusError) as caught:
            client.embeddings.create(model=MODEL, input="one")
    assert (caught.value.status_code, caught.value.code) == (400, "wrong_endpoint")


def test_a_client_that_leaves_frees_the_engine(stack: Stack) -> None:
    def left_at_work() -> bool:
        """On a busy machine all that fits the context may have been said before we look, or before we have left."""
        answer = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=HELLO, stream=True, max_tokens=1_000_000, extra_body={"ignore_eos": True}
        )
        stream = answer.parse()
        next(iter(stream))
        busy = busy_slots(stack) == 1
        stream.close()
        wait_for(lambda: busy_slots(stack) == 0, seconds=fair(10), what="the engine to be free")
        return busy and usage_of(stack, answer.headers["x-request-id"])["outcome"] == "client_gone"

    with stack.openai() as client:
        assert wait_for(left_at_work, seconds=fair(60), what="a client that leaves while the engine is at work")


def busy_slots(stack: Stack) -> int:
    """Slots of the quickstart model's engine that compute now, as the engine itself says."""
    listed = json.loads((Path(stack.data) / "cluster" / "engines.json").read_text())
    (engine,) = (item for item in listed["engines"] if item["model"] == MODEL)
    slots = httpx.get(
        f"http://{engine['host']}:{engine['port']}/slots",
        headers={"authorization": f"Bearer {engine['key']}"},
        trust_env=False,
        timeout=30,
        verify=False,
    ).json()
    return sum(slot["is_processing"] for slot in slots)
