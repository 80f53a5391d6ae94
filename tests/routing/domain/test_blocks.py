"""Addresses in messages and responses: refused where an engine would fetch them, and nowhere else."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from routing.domain.endpoints import MESSAGES, RESPONSES
from routing.domain.openai import parse

HOST = "http://10.0.0.1/x.png"
DATA = "data:image/png;base64,AAAA"


def picture(url: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "url", "url": url}}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def result(*parts: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t", "content": list(parts)}


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"messages": [user({"type": "text", "text": HOST}), {"role": "assistant", "content": HOST}]}, ""),
        ({"messages": [user(picture(HOST))]}, "messages[0].content[0].source.url"),
        ({"messages": [user(result(picture(HOST)))]}, "messages[0].content[0].content[0].source.url"),
        ({"messages": [user({"type": "tool_result", "tool_use_id": "t", "content": HOST})]}, ""),
        ({"messages": [user(result({"type": "text", "text": HOST}))]}, ""),
        ({"messages": [user({"type": "tool_use", "id": "t", "name": "get", "input": {"url": HOST}})]}, ""),
        ({"messages": [user({"type": "thinking", "thinking": HOST})]}, ""),
        ({"messages": [user({"type": "image", "source": {"type": "base64", "data": "AAAA"}})]}, ""),
        ({"messages": [user({"type": "new", "x": [HOST]})]}, "messages[0].content[0].x[0]"),
        ({"messages": [user()], "system": [picture(HOST)]}, "system[0].source.url"),
        ({"messages": [user()], "mcp_servers": [{"type": "url", "url": HOST}]}, "mcp_servers[0].url"),
    ],
)
def test_addresses_in_messages(body: dict[str, Any], place: str) -> None:
    assert parse(MESSAGES, orjson.dumps({"model": "m", **body}), max_depth=64).fetched == place


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"input": HOST, "instructions": HOST}, ""),
        ({"input": [{"role": "user", "content": HOST}]}, ""),
        ({"input": [user({"type": "input_text", "text": HOST})]}, ""),
        ({"input": [user({"type": "input_image", "image_url": HOST})]}, "input[0].content[0].image_url"),
        ({"input": [user({"type": "input_image", "image_url": DATA})]}, ""),
        ({"input": [user({"type": "input_file", "file_url": HOST})]}, "input[0].content[0].file_url"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": HOST}]}, ""),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": HOST}]}, ""),
        (
            {"input": [{"type": "function_call_output", "output": [{"type": "input_image", "image_url": HOST}]}]},
            "input[0].output[0].image_url",
        ),
        ({"input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": HOST}]}]}, ""),
        ({"input": [{"type": "computer_call_output", "output": {"image_url": HOST}}]}, "input[0].output.image_url"),
        ({"input": "x", "tools": [{"type": "mcp", "server_url": HOST}]}, "tools[0].server_url"),
    ],
)
def test_addresses_in_responses(body: dict[str, Any], place: str) -> None:
    assert parse(RESPONSES, orjson.dumps({"model": "m", **body}), max_depth=64).fetched == place
