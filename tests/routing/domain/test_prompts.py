"""The least that a prompt has: its words."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.domain.limits import reckon
from routing.domain.prompts import fewest

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is\n\nthis? "}, {"type": "image_url", "image_url": {"url": "data:a b c"}}]},
    {"role": "assistant", "content": "<think> much that a template leaves out </think> A cat."},
    {"role": "tool", "content": '{"a": 1}', "tool_call_id": "x"},
    {"role": "user", "content": None},
]  # fmt: skip
BLOCKS = [
    {"type": "text", "text": "one two"},
    {"type": "tool_result", "content": [{"type": "text", "text": "three four"}], "tool_use_id": "x"},
    {"type": "tool_result", "content": "five"},
]
ITEMS = [
    {"role": "user", "content": [{"type": "input_text", "text": "one two"}]},
    {"type": "function_call", "name": "f", "arguments": '{"not": "counted"}'},
    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "not counted"}]},
    {"type": "function_call_output", "output": "three four"},
    {"type": "message", "role": "assistant", "content": "not counted"},
]


@pytest.mark.parametrize(
    ("endpoint", "body", "expected"),
    [
        ("completions", {"prompt": "some  words\there"}, 3),
        ("completions", {"prompt": ["some words", "more"]}, 3),
        ("completions", {"prompt": [1, 2, 3, 4]}, 4),
        ("completions", {"prompt": [[1, 2], [3]]}, 3),
        ("chat.completions", {"messages": TALK, "tools": [{"type": "function", "description": "a b c"}]}, 7),
        ("chat.completions", {"messages": TALK[1:2]}, 3),
        ("chat.completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 1),
        ("messages", {"system": "a b", "messages": [{"role": "user", "content": BLOCKS}]}, 7),
        ("messages", {"system": [{"type": "text", "text": "a"}], "messages": [{"role": "user", "content": "b"}]}, 2),
        ("responses", {"instructions": "be kind", "input": "to me"}, 4),
        ("responses", {"input": ITEMS}, 4),
        ("embeddings", {"input": "a b"}, None),
        ("audio.transcriptions", {}, None),
    ],
)
def test_a_prompt_has_a_token_for_each_word_at_the_least(
    endpoint: str, body: dict[str, Any], expected: int | None
) -> None:
    assert fewest(endpoint, orjson.dumps(body), context=None) == expected


def test_it_is_no_more_than_the_model_takes_and_nothing_where_the_body_cannot_be_read() -> None:
    body = orjson.dumps({"prompt": "word " * 500})
    assert fewest("completions", body, context=64) == 64
    assert fewest("completions", b'--form\r\ncontent-disposition: form-data; name="model"', context=None) is None


def test_a_long_text_is_counted_in_pieces_and_never_for_more() -> None:
    for text, words in (("x" * 200_000, 1), ("ab " * 100_000, 100_000), (" " * 70_000, 0), (" x" * 32_768, 32_768)):
        found = fewest("completions", orjson.dumps({"prompt": text}), context=None)
        assert found is not None
        assert max(1, words - 4) <= found <= max(1, words)


@pytest.mark.parametrize(
    ("text", "expected"), [("f();\n// why\ng();", 3), ("{\r/\r/x}\n\n//", 1), ("a / b\n /c", 4), ("/etc", 1)]
)
def test_a_slash_that_begins_a_line_may_be_of_the_token_before(text: str, expected: int) -> None:
    assert fewest("completions", orjson.dumps({"prompt": text}), context=None) == expected


@given(st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["messages", "input", "prompt", "role", "content", "text", "output", "type", "system"]), inner, max_size=4
    ), max_leaves=20), st.sampled_from(["completions", "chat.completions", "messages", "responses"]))  # fmt: skip
def test_whatever_a_body_holds_it_is_at_least_one_and_no_more_than_half_of_its_bytes(inner: Any, endpoint: str) -> None:
    body = orjson.dumps({"messages": inner, "input": inner, "prompt": inner})
    found = fewest(endpoint, body, context=None)
    assert found is not None
    assert 1 <= found <= max(1, len(body) // 2)


def test_what_limits_reserve_is_more_than_it() -> None:
    text = "All happy families are alike; each unhappy family is unhappy in its own way. " * 50
    body = orjson.dumps({"messages": [{"role": "user", "content": text}]})
    least = fewest("chat.completions", body, context=None)
    assert least is not None
    assert 700 == least < reckon("chat.completions", body, longest=0, answers=1, context=None) < 2 * least
