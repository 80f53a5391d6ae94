"""Bodies and events in which anything stands in any place: each is read, translated or refused, and nothing breaks."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from llmgw_site.lib.errors import Refused
from routing.domain.endpoints import MESSAGES, RESPONSES, Shape
from routing.domain.named_meter import NamedMeter
from routing.domain.openai import parse
from routing.domain.translate.back import translated

ODD = st.sampled_from([None, 1, True, "", "x", [], {}, [1], [[]], [{}], {"type": []}, {"type": "text", "text": []}])
TEXT: dict[str, Any] = {"type": "text", "text": "a"}
MESSAGE: dict[str, Any] = {
    "model": "m", "max_tokens": 5, "system": [TEXT], "stream": True, "metadata": {"user_id": "u"}, "stop_sequences": ["x"],
    "messages": [
        {"role": "user", "content": [TEXT, {"type": "image", "source": {"type": "base64", "media_type": "i", "data": "A"}},
                                     {"type": "tool_result", "tool_use_id": "x", "content": [TEXT]}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "1", "input": {}}]},
    ],
    "tools": [{"name": "n", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "n"},
    "output_config": {"format": {"type": "json_schema", "schema": {}}},
}  # fmt: skip
RESPONSE: dict[str, Any] = {
    "model": "m", "instructions": "i", "stream": True, "reasoning": {"effort": "low"}, "text": {"format": {"type": "json_object"}},
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:x"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
        {"type": "reasoning", "summary": [{"text": "t"}]}, {"type": "function_call", "name": "n", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "r"}]},
    ],
    "tools": [{"type": "function", "name": "n"}], "tool_choice": {"type": "function", "name": "n"},
}  # fmt: skip
EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "response.completed", "response": {"usage": {"input_tokens": 1}, "incomplete_details": {"reason": "r"}}},
    {"type": "error", "error": {"message": "x", "code": "a"}},
]


def odd(value: Any) -> st.SearchStrategy[Any]:
    """The value with something else in some of its places, or nothing."""
    if isinstance(value, dict):
        inner: Any = st.fixed_dictionaries({}, optional={name: odd(item) for name, item in value.items()})
    elif isinstance(value, list):
        inner = st.tuples(*(odd(item) for item in value)).map(list)
    else:
        inner = st.just(value)
    return st.integers(0, 9).flatmap(lambda roll: ODD if not roll else inner)


def read(endpoint: str, value: Any) -> None:
    body = orjson.dumps(value)
    try:
        parse(endpoint, body, max_depth=50)
    except Refused:
        return
    found = translated(endpoint, body)
    if isinstance(found, Refused):
        assert found.code == "not_supported"


@given(odd(MESSAGE).map(lambda value: {**MESSAGE, **value} if isinstance(value, dict) else value))
def test_messages(value: Any) -> None:
    read(MESSAGES, value)


@given(odd(RESPONSE).map(lambda value: {**RESPONSE, **value} if isinstance(value, dict) else value))
def test_responses(value: Any) -> None:
    read(RESPONSES, value)


def test_types_that_are_no_words() -> None:
    for odd_type in ([], {}, 1, None):
        part = {"type": odd_type}
        read(MESSAGES, {**message_of(part), "tool_choice": part})
        read(RESPONSES, {"model": "m", "input": [part]})
        read(RESPONSES, {"model": "m", "input": [{"role": odd_type, "content": [part]}]})
        read(RESPONSES, {"model": "m", "input": [{"type": "reasoning", "content": odd_type}]})


def message_of(part: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [part]}]}


@given(st.sampled_from([Shape.ANTHROPIC, Shape.RESPONSES]), st.lists(st.sampled_from(EVENTS).flatmap(odd), max_size=4))
def test_events(shape: Shape, events: list[Any]) -> None:
    meter = NamedMeter(shape)
    for event in [*events, {"type": [], "usage": 1, "error": 1}]:
        piece = b"data: " + orjson.dumps(event) + b"\n\n"
        assert meter.feed(piece, 1.0) == piece
    meter.finish()
