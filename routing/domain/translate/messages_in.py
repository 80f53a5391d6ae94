"""Anthropic's messages as a chat: the request. Fields that a chat has no words for, and that nobody needs, are left out;
what would change the answer is refused (`not_supported`). Unknown fields pass.

Source: Anthropic's API reference (messages, tool use, vision, PDF support).
"""

from __future__ import annotations

from typing import Any

import orjson

from routing.domain.translate.chat import unsupported

_OURS = frozenset({
    "messages", "system", "tools", "tool_choice", "stop_sequences", "metadata", "thinking", "output_format", "output_config",
    "context_management", "service_tier", "mcp_servers", "container", "stream_options", "inference_geo",
})  # fmt: skip
_CHOICE = {"auto": "auto", "any": "required", "none": "none"}


def chat_of(value: dict[str, Any]) -> dict[str, Any]:
    """The chat that a checked body asks for. Raises Refused `not_supported`."""
    for name in ("mcp_servers", "container"):
        if value.get(name):
            raise unsupported("tools on other servers", name)
    chat: dict[str, Any] = {name: item for name, item in value.items() if name not in _OURS}
    chat["messages"] = _messages(value)
    if value.get("stop_sequences"):
        chat["stop"] = value["stop_sequences"]
    user = value["metadata"].get("user_id") if type(value.get("metadata")) is dict else None
    if type(user) is str:
        chat["user"] = user
    if value.get("tools"):
        chat["tools"] = [_tool(tool, f"tools[{at}]") for at, tool in enumerate(value["tools"])]
    _choice(value.get("tool_choice"), chat)
    _format(value, chat)
    if value.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    return chat


def _messages(value: dict[str, Any]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    system = value.get("system")
    if system:
        texts = [system] if type(system) is str else [str(block.get("text", "")) for block in system]
        out.append({"role": "system", "content": "\n".join(texts)})
    for number, message in enumerate(value["messages"]):
        role, content, place = message["role"], message["content"], f"messages[{number}].content"
        if type(content) is str:
            out.append({"role": role, "content": content})
        elif role == "assistant":
            out.append(_assistant(content, place))
        else:
            out += _user(role, content, place)
    return out


def _assistant(blocks: list[dict[str, Any]], place: str) -> dict[str, Any]:
    texts, thoughts, calls = [], [], []
    for at, block in enumerate(blocks):
        kind = block.get("type")
        if kind == "text":
            texts.append(str(block.get("text", "")))
        elif kind == "thinking":
            thoughts.append(str(block.get("thinking", "")))
        elif kind == "tool_use":
            arguments = orjson.dumps(block.get("input") or {}).decode()
            function = {"name": block.get("name"), "arguments": arguments}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif kind != "redacted_thinking":
            raise unsupported(f"'{str(kind)[:100]}' of an assistant", f"{place}[{at}]")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts or not calls else None}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _user(role: str, blocks: list[dict[str, Any]], place: str) -> list[dict[str, Any]]:
    """Results of tools are messages of their own, before what else the user says. A chat's tool returns text: the pictures
    that it returned follow as the user's."""
    results: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for at, block in enumerate(blocks):
        where = f"{place}[{at}]"
        if block.get("type") != "tool_result":
            parts.append(_part(block, where))
            continue
        content = block.get("content") or ""
        items = content if type(content) is list else []
        inner = [_part(item, f"{where}.content") for item in items if type(item) is dict]
        text = content if type(content) is str else "\n".join(item["text"] for item in inner if item["type"] == "text")
        results.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text})
        parts += [item for item in inner if item["type"] != "text"]
    if not parts and results:
        return results
    plain = all(part["type"] == "text" for part in parts) and len(parts) == 1
    return [*results, {"role": role, "content": parts[0]["text"] if plain else parts}]


def _part(block: dict[str, Any], place: str) -> dict[str, Any]:
    kind, source = block.get("type"), block.get("source")
    source = source if type(source) is dict else {}
    url = source.get("url") if source.get("type") == "url" else None
    if source.get("type") == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
    if kind == "text":
        return {"type": "text", "text": str(block.get("text", ""))}
    if kind == "image" and url:
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "document" and source.get("type") == "text":
        return {"type": "text", "text": str(source.get("data", ""))}
    if kind == "document" and source.get("type") == "base64":
        return {"type": "file", "file": {"filename": str(block.get("title") or "document"), "file_data": url}}
    raise unsupported(f"'{str(kind)[:100]}' of this kind", place)


def _tool(tool: dict[str, Any], place: str) -> dict[str, Any]:
    if tool.get("type") not in (None, "custom"):
        raise unsupported(f"tool '{str(tool['type'])[:100]}'", place)
    function = {"name": tool.get("name"), "parameters": tool.get("input_schema") or {"type": "object"}}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _choice(choice: Any, chat: dict[str, Any]) -> None:
    if type(choice) is not dict:
        return
    kind = choice.get("type")
    if kind == "tool":
        chat["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif type(kind) is str and kind in _CHOICE:
        chat["tool_choice"] = _CHOICE[kind]
    if choice.get("disable_parallel_tool_use"):
        chat["parallel_tool_calls"] = False


def _format(value: dict[str, Any], chat: dict[str, Any]) -> None:
    config = value.get("output_config")
    wanted = config.get("format") if type(config) is dict else value.get("output_format")
    if type(wanted) is dict and wanted.get("type") == "json_schema":
        schema = {"name": "answer", "schema": wanted.get("schema"), "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
