"""Requests of messages and responses as chats: what each part becomes, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from llmgw_site.lib.errors import Refused
from routing.domain.translate import messages_in, responses_in

PNG = "iVBORw0KGgo="
DATA = f"data:image/png;base64,{PNG}"
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
SEEN = {"type": "image_url", "image_url": {"url": DATA}}
CALL = {"id": "t1", "type": "function", "function": {"name": "get", "arguments": '{"city":"Oslo"}'}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def of_messages(*messages: Any, **more: Any) -> dict[str, Any]:
    return messages_in.chat_of({"model": "m", "messages": list(messages), **more})


def of_input(*items: Any, **more: Any) -> dict[str, Any]:
    return responses_in.chat_of({"model": "m", "input": list(items), **more})


def test_a_conversation_with_a_tool_and_a_picture_of_messages() -> None:
    chat = of_messages(
        {"role": "user", "content": [{"type": "text", "text": "What?"}, IMAGE]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "get", "input": {"city": "Oslo"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}, IMAGE]},
                {"type": "text", "text": "And?"},
            ],
        },
        system=[{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}],
        max_tokens=9,
        stop_sequences=["x"],
        tools=[{"name": "get", "description": "d", "input_schema": SCHEMA}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        metadata={"user_id": "u"},
        unknown=[1],
        stream=True,
    )
    assert chat == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be\nbrief."},
            {"role": "user", "content": [{"type": "text", "text": "What?"}, SEEN]},
            {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "t1", "content": "rain"},
            {"role": "user", "content": [{"type": "text", "text": "And?"}, SEEN][::-1]},
        ],
        "max_tokens": 9,
        "stop": ["x"],
        "tools": [{"type": "function", "function": {"name": "get", "description": "d", "parameters": SCHEMA}}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "user": "u",
        "unknown": [1],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_conversation_with_a_tool_and_a_picture_of_a_response() -> None:
    chat = of_input(
        {"role": "developer", "content": "Mind."},
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": DATA}],
        },
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "t1", "name": "get", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call_output", "call_id": "t1", "output": "rain"},
        {"role": "user", "content": "And?"},
        instructions="Be brief.",
        max_output_tokens=9,
        tools=[{"type": "function", "name": "get", "description": "d", "parameters": SCHEMA, "strict": True}],
        tool_choice={"type": "function", "name": "get"},
        reasoning={"effort": "low"},
        text={"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}},
        store=False,
        unknown=[1],
    )
    assert chat == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "system", "content": "Mind."},
            {"role": "user", "content": [{"type": "text", "text": "What?"}, SEEN]},
            {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "t1", "content": "rain"},
            {"role": "user", "content": "And?"},
        ],
        "max_tokens": 9,
        "tools": [
            {"type": "function", "function": {"name": "get", "description": "d", "parameters": SCHEMA, "strict": True}}
        ],
        "tool_choice": {"type": "function", "function": {"name": "get"}},
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
        "unknown": [1],
    }


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "get"}, {"type": "function", "function": {"name": "get"}}),
    ],
)
def test_the_choice_of_a_tool(choice: Any, expected: Any) -> None:
    assert of_messages({"role": "user", "content": "x"}, tool_choice=choice)["tool_choice"] == expected


def test_a_document_and_a_schema_of_messages() -> None:
    pdf = {
        "type": "document",
        "title": "a.pdf",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PNG},
    }
    text = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}
    wanted = {"format": {"type": "json_schema", "schema": SCHEMA}}
    chat = of_messages({"role": "user", "content": [pdf, text]}, output_config=wanted)
    data = f"data:application/pdf;base64,{PNG}"
    assert chat["messages"][0]["content"] == [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": data}},
        {"type": "text", "text": "words"},
    ]
    assert chat["response_format"]["json_schema"]["schema"] == SCHEMA


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools[0]"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"messages": [{"role": "user", "content": [{"type": "search_result"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "assistant", "content": [IMAGE]}]}, "messages[0].content[0]"),
    ],
)
def test_messages_that_a_chat_has_no_words_for(body: dict[str, Any], param: str) -> None:
    with pytest.raises(Refused) as caught:
        messages_in.chat_of({"model": "m", "messages": [{"role": "user", "content": "x"}], **body})
    assert (caught.value.code, caught.value.param) == ("not_supported", param)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"input": [{"type": "computer_call"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input[0].content[0]"),
    ],
)
def test_responses_that_a_chat_has_no_words_for(body: dict[str, Any], param: str) -> None:
    with pytest.raises(Refused) as caught:
        responses_in.chat_of({"model": "m", "input": "x", **body})
    assert (caught.value.code, caught.value.param) == ("not_supported", param)
