"""What of Anthropic's messages and OpenAI's responses may hold a picture, a film, a sound or a file: the rest is text, or a tool's.

Sources: Anthropic's "Messages" (content blocks), OpenAI's "Responses" (input items), llama.cpp tools/server/server-chat.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from routing.domain.endpoints import Shape

Place = tuple[str, Any]

_PLAIN_BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"})
"""Of texts, and of what a model asked a tool for: whatever address stands there, nobody fetches it."""
_PLAIN_ITEMS = frozenset({"function_call", "reasoning", "custom_tool_call", "item_reference"})
_PLAIN_PARTS = frozenset({"input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text"})


def blocks(shape: Shape, value: Mapping[str, Any]) -> Iterator[Place]:
    """Blocks and parts of a checked body that are no plain text, each with where it stands; and tools on other servers."""
    if shape is Shape.ANTHROPIC:
        yield from _of("system", value.get("system"), _PLAIN_BLOCKS)
        for number, message in enumerate(value["messages"]):
            yield from _of(f"messages[{number}].content", message["content"], _PLAIN_BLOCKS)
        yield from _servers("mcp_servers", value.get("mcp_servers"), "url")
    else:
        given = value["input"]
        for number, item in enumerate(given if type(given) is list else ()):
            place = f"input[{number}]"
            kind = item.get("type")
            if type(kind) is str and kind in _PLAIN_ITEMS:
                continue
            if kind in (None, "message"):
                yield from _of(f"{place}.content", item.get("content"), _PLAIN_PARTS)
            elif kind in ("function_call_output", "custom_tool_call_output"):
                yield from _of(f"{place}.output", item.get("output"), _PLAIN_PARTS)
            else:
                yield place, item
        yield from _servers("tools", value.get("tools"), "server_url")


def _of(place: str, content: Any, plain: frozenset[str]) -> Iterator[Place]:
    """A string is text; the results of tools have contents of their own."""
    for at, part in enumerate(content if type(content) is list else ()):
        kind = part.get("type") if type(part) is dict else ""
        if type(part) is not dict or (type(kind) is str and kind in plain):
            continue
        if kind == "tool_result":
            yield from _of(f"{place}[{at}].content", part.get("content"), plain)
        else:
            yield f"{place}[{at}]", part


def _servers(place: str, servers: Any, name: str) -> Iterator[Place]:
    for at, server in enumerate(servers if type(servers) is list else ()):
        if type(server) is dict and name in server:
            yield f"{place}[{at}].{name}", server[name]
