"""What a chat completion says, whole or in chunks, in one form for all who write it anew.

Source: OpenAI's API reference (chat completions, streaming); `reasoning_content` as llama.cpp and vLLM have it, `reasoning` as
newer vLLM and OpenRouter, `stop_reason` as vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from llmgw_site.lib.errors import Kind, Refused


class Delta(NamedTuple):
    """`kind`: `reasoning`, `text` or `tool`. Of a tool `number` is which call it is, `text` a part of its arguments; `id` and
    `name` stand where the call begins."""

    kind: str
    text: str
    number: int = 0
    id: str = ""
    name: str = ""
    logprobs: list[Any] | None = None


@dataclass(slots=True)
class Said:
    """What is known of an answer so far; of a whole one, all of it."""

    id: str = ""
    model: str = ""
    created: int = 0
    finish: str = ""  # stop, length, tool_calls, content_filter; empty: not yet
    stop: str = ""  # the stop sequence that ended it
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoned: int = 0
    begun: bool = False
    _calls: dict[int, tuple[str, str]] = field(default_factory=dict)

    def take(self, value: dict[str, Any], *, whole: bool = False) -> list[Delta]:
        """Account for a chunk, or for a `whole` completion, and say what it brings. Only the first choice counts.
        Raises ValueError for a whole one that is none."""
        if whole and type(value.get("choices")) is not list:
            raise ValueError("the answer is no chat completion")
        if not self.begun:
            self.begun = True
            self.id, self.model = _text(value.get("id")) or "0", _text(value.get("model"))
            created = value.get("created")
            self.created = created if type(created) is int else 0
        self._usage(value.get("usage"))
        choices = value.get("choices")
        choice = choices[0] if type(choices) is list and choices else None
        if type(choice) is not dict:
            return []
        self.finish = _text(choice.get("finish_reason")) or self.finish
        self.stop = _text(choice.get("stop_reason")) or self.stop
        said = choice.get("message" if whole else "delta")
        return self._deltas(said, choice.get("logprobs")) if type(said) is dict else []

    def _usage(self, usage: Any) -> None:
        if type(usage) is not dict:
            return
        self.prompt, self.completion = _whole(usage.get("prompt_tokens")), _whole(usage.get("completion_tokens"))
        details, made = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
        self.cached = min(self.prompt, _whole(details.get("cached_tokens"))) if type(details) is dict else 0
        self.reasoned = _whole(made.get("reasoning_tokens")) if type(made) is dict else 0

    def _deltas(self, said: dict[str, Any], logprobs: Any) -> list[Delta]:
        """1. reasoning; 2. text, a refusal too; 3. calls of tools: one that has no name yet is held back until it has."""
        out = []
        if reasoning := _text(said.get("reasoning_content")) or _text(said.get("reasoning")):  # 1
            out.append(Delta("reasoning", reasoning))
        if text := _text(said.get("content")) or _text(said.get("refusal")):  # 2
            listed = logprobs.get("content") if type(logprobs) is dict else None
            out.append(Delta("text", text, logprobs=listed if type(listed) is list else None))
        calls = said.get("tool_calls")
        for place, call in enumerate(calls if type(calls) is list else ()):  # 3
            if type(call) is not dict:
                continue
            index = call.get("index")
            number = index if type(index) is int else place
            function = call.get("function")
            function = function if type(function) is dict else {}
            part = _text(function.get("arguments"))
            known = self._calls.get(number)
            if known is not None and known[0]:
                out.append(Delta("tool", part, number))
                continue
            name, held = _text(function.get("name")), (known[1] if known else "") + part
            self._calls[number] = (name, "" if name else held)
            if name:
                out.append(Delta("tool", held, number, _text(call.get("id")) or f"call_{self.id}_{number}", name))
        return out


def _text(value: Any) -> str:
    return value if type(value) is str else ""


def _whole(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0


def unsupported(what: str, param: str) -> Refused:
    """What a chat completion has no words for."""
    return Refused(
        Kind.INVALID,
        "not_supported",
        f"What answers for this model speaks chat completions only, which have no {what}: leave '{param}' out, or use a "
        "model whose engine speaks this API.",
        param=param,
    )
