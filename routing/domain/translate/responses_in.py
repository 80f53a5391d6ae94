"""OpenAI's responses as a chat: the request. What would change the answer and has no words in a chat is refused
(`not_supported`); unknown fields pass.

Source: OpenAI's API reference (responses: create, input items).
"""

from __future__ import annotations

from typing import Any

from routing.domain.translate.chat import unsupported

_OURS = frozenset({
    "input", "instructions", "tools", "tool_choice", "max_output_tokens", "text", "reasoning", "top_logprobs", "include", "store",
    "truncation", "background", "conversation", "previous_response_id", "prompt", "max_tool_calls", "service_tier", "stream_options",
    "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "context_management",
})  # fmt: skip
_KEPT_ELSEWHERE = {
    "previous_response_id": "memory of earlier responses",
    "conversation": "memory of conversations",
    "prompt": "stored prompts",
    "background": "work in the background",
}


def chat_of(value: dict[str, Any]) -> dict[str, Any]:
    """The chat that a checked body asks for. Raises Refused `not_supported`."""
    for name, what in _KEPT_ELSEWHERE.items():
        if value.get(name):
            raise unsupported(what, name)
    chat: dict[str, Any] = {name: item for name, item in value.items() if name not in _OURS}
    chat["messages"] = _messages(value)
    if value.get("max_output_tokens") is not None:
        chat["max_tokens"] = value["max_output_tokens"]
    if value.get("tools"):
        chat["tools"] = [_tool(tool, f"tools[{at}]") for at, tool in enumerate(value["tools"])]
    if value.get("tool_choice") is not None:
        chat["tool_choice"] = _choice(value["tool_choice"])
    reasoning = value.get("reasoning")
    if type(reasoning) is dict and reasoning.get("effort"):
        chat["reasoning_effort"] = reasoning["effort"]
    if value.get("top_logprobs"):
        chat["logprobs"], chat["top_logprobs"] = True, value["top_logprobs"]
    text = value.get("text")
    wanted = text.get("format") if type(text) is dict else None
    if type(wanted) is dict and wanted.get("type") == "json_schema":
        schema = {name: item for name, item in wanted.items() if name != "type"}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif type(wanted) is dict and wanted.get("type") == "json_object":
        chat["response_format"] = {"type": "json_object"}
    if value.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    return chat


def _messages(value: dict[str, Any]) -> list[dict[str, Any]]:
    """What an assistant thought, said and asked its tools for is one message, as a chat has it."""
    out: list[dict[str, Any]] = []
    if value.get("instructions"):
        out.append({"role": "system", "content": value["instructions"]})
    given = value["input"]
    if type(given) is str:
        return [*out, {"role": "user", "content": given}]
    for number, item in enumerate(given):
        place, kind = f"input[{number}]", item.get("type")
        if kind in (None, "message") and "role" in item:
            role = "system" if item["role"] == "developer" else item["role"]
            content = _content(item.get("content"), f"{place}.content")
            if role == "assistant":
                spoken = content if type(content) is str else "".join(part.get("text", "") for part in content)
                said = _assistant(out)
                said["content"] = (said.get("content") or "") + spoken
            else:
                out.append({"role": role, "content": content})
        elif kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            _assistant(out).setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            out += _result(item, f"{place}.output")
        elif kind == "reasoning":
            parts = item.get("content") or item.get("summary")
            texts = parts if type(parts) is list else []
            thought = "".join(str(part.get("text", "")) for part in texts if type(part) is dict)
            if thought:
                _assistant(out)["reasoning_content"] = thought
        else:
            raise unsupported(f"item '{str(kind)[:100]}'", place)
    return out


def _assistant(out: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message that is under way, or a new one."""
    if not out or out[-1]["role"] != "assistant":
        out.append({"role": "assistant", "content": None})
    return out[-1]


def _result(item: dict[str, Any], place: str) -> list[dict[str, Any]]:
    """A chat's tool returns text: the pictures that it returned follow as the user's."""
    content = _content(item.get("output") or "", place)
    parts = content if type(content) is list else []
    text = content if type(content) is str else "\n".join(part["text"] for part in parts if part["type"] == "text")
    others = [part for part in parts if part["type"] != "text"]
    result = {"role": "tool", "tool_call_id": item.get("call_id"), "content": text}
    return [result, {"role": "user", "content": others}] if others else [result]


def _content(content: Any, place: str) -> Any:
    if type(content) is not list:
        return content if type(content) is str else ""
    return [_part(part, f"{place}[{at}]") for at, part in enumerate(content)]


def _part(part: Any, place: str) -> dict[str, Any]:
    kind = part.get("type") if type(part) is dict else None
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": str(part.get("text", ""))}
    if kind == "refusal":
        return {"type": "text", "text": str(part.get("refusal", ""))}
    if kind == "input_image" and part.get("image_url"):
        image = {"url": part["image_url"], **({"detail": part["detail"]} if part.get("detail") else {})}
        return {"type": "image_url", "image_url": image}
    if kind == "input_file" and part.get("file_data"):
        return {"type": "file", "file": {name: part[name] for name in ("filename", "file_data") if name in part}}
    raise unsupported(f"'{str(kind)[:100]}' of this kind", place)


def _tool(tool: dict[str, Any], place: str) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise unsupported(f"tool '{str(tool.get('type'))[:100]}'", place)
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {name: tool[name] for name in names if tool.get(name) is not None}}


def _choice(choice: Any) -> Any:
    if type(choice) is not dict:
        return choice
    if choice.get("type") != "function":
        raise unsupported(f"choice of a tool '{str(choice.get('type'))[:100]}'", "tool_choice")
    return {"type": "function", "function": {"name": choice.get("name")}}
