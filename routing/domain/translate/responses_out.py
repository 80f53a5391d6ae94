"""A chat's answer as OpenAI's response, whole or as events. Source: OpenAI's API reference (responses, streaming events)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from routing.domain.translate.chat import Delta, Said

_ECHOED: dict[str, Any] = {
    "instructions": None, "max_output_tokens": None, "metadata": {}, "parallel_tool_calls": True, "previous_response_id": None,
    "reasoning": None, "temperature": None, "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": None,
    "truncation": "disabled", "user": None,
}  # fmt: skip
"""What of a request its response says again, and what it says where the request does not."""


def asked_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """What the response to a request repeats of it."""
    return {name: other if value.get(name) is None else value[name] for name, other in _ECHOED.items()}


def response(value: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The response of a whole completion."""
    said = Said()
    items = [_Item(delta, at, said.id) for at, delta in enumerate(said.take(value, whole=True))]
    return _response(said, asked, [item.done() for item in items], ended=True)


def _response(said: Said, asked: Mapping[str, Any], output: list[dict[str, Any]], *, ended: bool) -> dict[str, Any]:
    cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(said.finish)
    status = ("incomplete" if cut else "completed") if ended else "in_progress"
    usage = {
        "input_tokens": said.prompt,
        "input_tokens_details": {"cached_tokens": said.cached},
        "output_tokens": said.completion,
        "output_tokens_details": {"reasoning_tokens": said.reasoned},
        "total_tokens": said.prompt + said.completion,
    }
    return {
        "id": f"resp_{said.id}",
        "object": "response",
        "created_at": said.created,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": cut} if cut and ended else None,
        "model": said.model,
        "output": output,
        **asked,
        "usage": usage if ended else None,
    }


class _Item:
    """An item of the output under way: what was thought, said, or asked of a tool."""

    def __init__(self, delta: Delta, index: int, said_id: str) -> None:
        self.kind = delta.kind
        self.index = index
        self.call = delta.number
        self.text = delta.text
        self.logprobs = list(delta.logprobs or ())
        self._id, self._name = delta.id, delta.name
        self.id = f"{_PREFIX[delta.kind]}_{said_id}_{index}"

    def add(self, delta: Delta) -> None:
        self.text += delta.text
        self.logprobs += delta.logprobs or ()

    def part(self, text: str) -> dict[str, Any]:
        """Its one content part."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self.logprobs if text else []}

    def begun(self) -> dict[str, Any]:
        return {**self._frame("in_progress"), **({"arguments": ""} if self.kind == "tool" else {"content": []})}

    def done(self) -> dict[str, Any]:
        inside = {"arguments": self.text} if self.kind == "tool" else {"content": [self.part(self.text)]}
        return {**self._frame("completed"), **inside}

    def _frame(self, status: str) -> dict[str, Any]:
        if self.kind == "tool":
            frame: dict[str, Any] = {"type": "function_call", "call_id": self._id, "name": self._name}
        elif self.kind == "reasoning":
            frame = {"type": "reasoning", "summary": []}
        else:
            frame = {"type": "message", "role": "assistant"}
        return {"id": self.id, "status": status, **frame}


_PREFIX = {"reasoning": "rs", "text": "msg", "tool": "fc"}


class ResponseEvents:
    """Writes the events of a response from a chat's chunks: items one after the other, each begun and ended."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self._said = Said()
        self._asked = asked
        self._items: list[_Item] = []
        self._open: _Item | None = None
        self._number = -1

    def chunk(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        first = not self._said.begun
        deltas = self._said.take(value)
        out: list[dict[str, Any]] = []
        if first:
            begun = _response(self._said, self._asked, [], ended=False)
            out += [
                self._event("response.created", response=begun),
                self._event("response.in_progress", response=begun),
            ]
        for delta in deltas:
            out += self._delta(delta)
        return out

    def end(self) -> list[dict[str, Any]]:
        """The chat has ended as it should."""
        out = self._close()
        last = _response(self._said, self._asked, [item.done() for item in self._items], ended=True)
        return [*out, self._event(f"response.{last['status']}", response=last)]

    def _delta(self, delta: Delta) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        item = self._open
        if item is None or item.kind != delta.kind or (delta.kind == "tool" and item.call != delta.number):
            known = [one for one in self._items if delta.kind == "tool" and not delta.name and one.call == delta.number]
            if known:  # of a call that was taken for ended: its last event has it all
                known[-1].add(delta)
                return []
            out += self._close()
            self._open = item = _Item(delta._replace(text="", logprobs=None), len(self._items), self._said.id)
            self._items.append(item)
            out.append(self._event("response.output_item.added", output_index=item.index, item=item.begun()))
            if item.kind != "tool":
                out.append(self._of(item, "response.content_part.added", part=item.part("")))
        item.add(delta)
        if delta.text:
            more = {"logprobs": delta.logprobs or []} if item.kind == "text" else {}
            out.append(self._of(item, f"{_EVENTS[item.kind]}.delta", delta=delta.text, **more))
        return out

    def _close(self) -> list[dict[str, Any]]:
        item, self._open = self._open, None
        if item is None:
            return []
        name = "arguments" if item.kind == "tool" else "text"
        more = {"logprobs": item.logprobs} if item.kind == "text" else {}
        out = [self._of(item, f"{_EVENTS[item.kind]}.done", **{name: item.text}, **more)]
        if item.kind != "tool":
            out.append(self._of(item, "response.content_part.done", part=item.part(item.text)))
        return [*out, self._event("response.output_item.done", output_index=item.index, item=item.done())]

    def _of(self, item: _Item, kind: str, **more: Any) -> dict[str, Any]:
        place = {} if item.kind == "tool" else {"content_index": 0}
        return self._event(kind, item_id=item.id, output_index=item.index, **place, **more)

    def _event(self, kind: str, **more: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number, **more}


_EVENTS = {
    "reasoning": "response.reasoning_text",
    "text": "response.output_text",
    "tool": "response.function_call_arguments",
}
