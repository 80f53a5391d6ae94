"""A chat's answer as Anthropic's message, whole or as events. Source: Anthropic's API reference (messages, streaming)."""

from __future__ import annotations

from typing import Any

import orjson

from routing.domain.translate.chat import Delta, Said

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_EMPTY: dict[str, dict[str, Any]] = {
    "reasoning": {"type": "thinking", "thinking": "", "signature": ""},
    "text": {"type": "text", "text": ""},
}


def message(value: dict[str, Any]) -> dict[str, Any]:
    """The message of a whole completion."""
    said = Said()
    content = []
    for delta in said.take(value, whole=True):
        if delta.kind == "tool":
            content.append({"type": "tool_use", "id": delta.id, "name": delta.name, "input": _input(delta.text)})
        else:
            block = _EMPTY[delta.kind]
            content.append({**block, ("thinking" if delta.kind == "reasoning" else "text"): delta.text})
    return {**_head(said), "content": content, **_end(said), "usage": _usage(said)}


def _head(said: Said) -> dict[str, Any]:
    return {"id": f"msg_{said.id}", "type": "message", "role": "assistant", "model": said.model}


def _end(said: Said) -> dict[str, Any]:
    if said.stop and said.finish == "stop":
        return {"stop_reason": "stop_sequence", "stop_sequence": said.stop}
    return {"stop_reason": _REASONS.get(said.finish, "end_turn"), "stop_sequence": None}


def _usage(said: Said) -> dict[str, int]:
    return {
        "input_tokens": said.prompt - said.cached,
        "cache_read_input_tokens": said.cached,
        "output_tokens": said.completion,
    }


def _input(text: str) -> Any:
    """Arguments are an object here; what a model wrote that is none stands in one."""
    try:
        value = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return {"arguments": text}
    return value if type(value) is dict else {"arguments": value}


class MessageEvents:
    """Writes the events of a message from a chat's chunks: blocks one after the other, each begun and ended."""

    def __init__(self) -> None:
        self._said = Said()
        self._open: tuple[str, int] | None = None  # kind and number of the block that is under way
        self._blocks = -1  # index of the last block
        self._tools: dict[int, int] = {}  # number of a call to the index of its block

    def chunk(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        first = not self._said.begun
        deltas = self._said.take(value)
        out: list[dict[str, Any]] = []
        if first:
            empty: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage(Said())}
            out.append({"type": "message_start", "message": {**_head(self._said), **empty}})
        for delta in deltas:
            out += self._delta(delta)
        return out

    def end(self) -> list[dict[str, Any]]:
        """The chat has ended as it should."""
        last = {"type": "message_delta", "delta": _end(self._said), "usage": _usage(self._said)}
        return [*self._close(), last, {"type": "message_stop"}]

    def _delta(self, delta: Delta) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        known = self._tools.get(delta.number) if delta.kind == "tool" else None
        index = known if known is not None else self._blocks
        if known is None and (delta.kind == "tool" or self._open != (delta.kind, 0)):
            out += self._close()
            self._blocks = index = self._blocks + 1
            self._open = (delta.kind, delta.number)
            block = _EMPTY.get(delta.kind) or {"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}}
            if delta.kind == "tool":
                self._tools[delta.number] = index
            out.append({"type": "content_block_start", "index": index, "content_block": block})
        if delta.text:
            kind, name = _NAMES[delta.kind]
            out.append({"type": "content_block_delta", "index": index, "delta": {"type": kind, name: delta.text}})
        return out

    def _close(self) -> list[dict[str, Any]]:
        if self._open is None:
            return []
        self._open = None
        return [{"type": "content_block_stop", "index": self._blocks}]


_NAMES = {
    "reasoning": ("thinking_delta", "thinking"),
    "text": ("text_delta", "text"),
    "tool": ("input_json_delta", "partial_json"),
}
