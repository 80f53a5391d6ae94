"""Answers of chats in other words: what is streamed adds up to what is answered whole, however it was cut."""

from __future__ import annotations

import itertools
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.domain.endpoints import COUNT_TOKENS, MESSAGES, RESPONSES, Shape
from routing.domain.named_meter import NamedMeter
from routing.domain.sse import MOST_HELD, Reader
from routing.domain.translate.back import Back, translated

TEXT = st.text(min_size=1, max_size=12)
ARGUMENTS = st.dictionaries(st.text(max_size=4), st.integers(-9, 9) | st.text(max_size=4), max_size=3).map(json.dumps)
FINISH = st.sampled_from(["stop", "length", "tool_calls", "content_filter"])
USAGE = {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
BASE = {"id": "chat-1", "created": 7, "model": "m"}


@st.composite
def answers(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A completion, and chunks that say the same."""
    thought, text = draw(st.none() | TEXT), draw(st.none() | TEXT)
    calls = draw(st.lists(st.tuples(TEXT, ARGUMENTS), max_size=3))
    finish = draw(FINISH)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    for name, whole in (("reasoning_content", thought), ("content", text)):
        deltas += [{name: part} for part in _cut(draw, whole or "")]
    made = []
    for number, (name, arguments) in enumerate(calls):
        call = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        made.append(call)
        first = {"index": number, **call, "function": {"name": name, "arguments": ""}}
        deltas.append({"tool_calls": [first]})
        for part in _cut(draw, arguments):
            deltas.append({"tool_calls": [{"index": number, "function": {"arguments": part}}]})
    message = {"role": "assistant", "content": text, "reasoning_content": thought, "tool_calls": made}
    completion = {**BASE, "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": USAGE}
    chunks = [{**BASE, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**BASE, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return completion, [*chunks, {**BASE, "choices": [], "usage": USAGE}]


def _cut(draw: st.DrawFn, text: str) -> list[str]:
    at = draw(st.integers(0, len(text)))
    return [part for part in (text[:at], text[at:]) if part]


def back_of(endpoint: str) -> Back:
    field = {"messages": [{"role": "user", "content": "x"}]} if endpoint == MESSAGES else {"input": "x"}
    found = translated(endpoint, orjson.dumps({"model": "m", **field, "temperature": 0.5}))
    assert isinstance(found, tuple)
    return found[2]


def streamed(endpoint: str, chunks: list[dict[str, Any]], places: list[int]) -> list[dict[str, Any]]:
    """The events of a stream that was cut at these places."""
    data = b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks) + b": ping\n\ndata: [DONE]\n\n"
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    back = back_of(endpoint)
    meter = NamedMeter(Shape.ANTHROPIC if endpoint == MESSAGES else Shape.RESPONSES)
    out = b"".join(meter.feed(back.feed(data[a:b]), 1.0) for a, b in itertools.pairwise(at)) + meter.finish()
    assert meter.done
    assert (meter.counts.prompt, meter.counts.completion, meter.counts.cached) == (9, 5, 4)
    events = []
    for event in Reader().feed(out):
        if event.data is not None:
            value = orjson.loads(event.data)
            assert event.raw.startswith(b"event: " + value["type"].encode() + b"\n")
            events.append(value)
    return events


CUTS = st.lists(st.integers(0, 10_000), max_size=12)


@given(answers(), CUTS)
def test_the_events_of_a_message_add_up_to_the_message(
    answer: tuple[dict[str, Any], list[dict[str, Any]]], places: list[int]
) -> None:
    completion, chunks = answer
    events = streamed(MESSAGES, chunks, places)
    whole = orjson.loads(back_of(MESSAGES).whole(orjson.dumps(completion)))
    assert events[0]["type"] == "message_start"
    message, under_way = events[0]["message"], -1
    arguments: dict[int, str] = {}
    for event in events[1:]:
        match event["type"]:
            case "content_block_start":
                assert under_way < 0
                under_way = event["index"]
                assert under_way == len(message["content"])
                message["content"].append(event["content_block"])
            case "content_block_delta":
                assert event["index"] == under_way
                block, delta = message["content"][under_way], event["delta"]
                for name in ("text", "thinking"):
                    if name in delta:
                        block[name] += delta[name]
                arguments[under_way] = arguments.get(under_way, "") + delta.get("partial_json", "")
            case "content_block_stop":
                if message["content"][under_way]["type"] == "tool_use":
                    message["content"][under_way]["input"] = orjson.loads(arguments.get(under_way) or "{}")
                under_way = -1
            case "message_delta":
                message |= {**event["delta"], "usage": event["usage"]}
    assert events[-1] == {"type": "message_stop"}
    assert message == whole


@given(answers(), CUTS)
def test_the_events_of_a_response_add_up_to_the_response(
    answer: tuple[dict[str, Any], list[dict[str, Any]]], places: list[int]
) -> None:
    completion, chunks = answer
    events = streamed(RESPONSES, chunks, places)
    whole = orjson.loads(back_of(RESPONSES).whole(orjson.dumps(completion)))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == f"response.{whole['status']}"
    assert events[-1]["response"] == whole
    said: dict[int, str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            said[event["output_index"]] = said.get(event["output_index"], "") + event["delta"]
    for index, item in enumerate(whole["output"]):
        assert said.get(index, "") == (item["arguments"] if "arguments" in item else item["content"][0]["text"])
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == whole["output"]


@pytest.mark.parametrize("endpoint", [MESSAGES, RESPONSES])
def test_an_error_in_a_chat_s_stream_is_one_of_the_api(endpoint: str) -> None:
    out = back_of(endpoint).feed(b'data: {"error":{"message":"boom","code":500,"type":"server_error"}}\n\n')
    meter = NamedMeter(Shape.ANTHROPIC if endpoint == MESSAGES else Shape.RESPONSES)
    meter.feed(out, 1.0)
    assert (meter.error, meter.done) == ("engine_error", False)
    assert b"boom" in out


@pytest.mark.parametrize("body", [b"[]", b"{}", b"no", b'{"choices":1}'])
def test_what_is_no_answer_is_not_translated(body: bytes) -> None:
    for endpoint in (MESSAGES, RESPONSES):
        with pytest.raises(ValueError):
            back_of(endpoint).whole(body)
    found = translated(COUNT_TOKENS, b'{"model":"m","messages":[{"role":"user","content":"x"}]}')
    assert isinstance(found, tuple)
    assert found[0] == "/tokenize"
    with pytest.raises(ValueError):
        found[2].whole(body)
    assert found[2].whole(b'{"count":7,"tokens":[1]}') == b'{"input_tokens":7}'


@given(st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4), lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["choices", "delta", "message", "content", "tool_calls", "function", "usage", "index", "id"]),
                      inner, max_size=4)))  # fmt: skip
def test_no_chunk_makes_it_fall(value: Any) -> None:
    for endpoint in (MESSAGES, RESPONSES):
        back = back_of(endpoint)
        try:
            back.feed(b"data: " + orjson.dumps(value) + b"\n\ndata: [DONE]\n\n")
            back.whole(orjson.dumps(value))
        except ValueError:
            pass


def test_an_event_that_does_not_end_is_not_kept_without_a_bound() -> None:
    back = back_of(MESSAGES)
    back.feed(b"data: " + b"x" * (MOST_HELD - 6))
    with pytest.raises(ValueError, match="too long"):
        back.feed(b"x")
