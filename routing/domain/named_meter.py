"""Token and time accounting of streams whose events have names: Anthropic's messages and OpenAI's responses.

As StreamMeter in meter.py, of which it has the face: an event in the middle is searched for a few words and never parsed.
Nothing is taken out of such a stream: its counts are always in it.

Sources: Anthropic's "Streaming messages", OpenAI's "Streaming events" of responses; llama.cpp tools/server/server-task.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from routing.domain.endpoints import Shape
from routing.domain.meter import Counts, find_counts, parsed, read_usage
from routing.domain.sse import Event, Reader

_LOOK = {
    Shape.ANTHROPIC: (b'"usage"', b'"error"', b'message_stop"', b'"stop_reason"'),
    Shape.RESPONSES: (b'"usage"', b'"error"', b'completed"', b'incomplete"', b'failed"'),
}
"""What an event must have one of to be read at all, once a token was seen. Words, and no pattern: that takes ten times as long."""
_PIECES = {
    Shape.ANTHROPIC: re.compile(rb'"type"\s*:\s*"content_block_delta"'),
    Shape.RESPONSES: re.compile(rb'"type"\s*:\s*"response\.[a-z_.]+\.delta"'),
}
"""Events that bring something generated. Within a text the quotes would be escaped."""
_TYPE = re.compile(rb'"type"\s*:\s*"([a-z_.]{1,100})"')
_LAST = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})


class NamedMeter:
    """`redact`: what is done with the bytes of an error event."""

    def __init__(self, shape: Shape, *, redact: Callable[[bytes], bytes] | None = None) -> None:
        self.counts = Counts()
        self.first_token_at: float | None = None
        self.done = False
        """The event that ends such a stream was seen."""
        self.error: str | None = None
        """Code of an error event, or of an answer that ended as failed."""
        self._redact = redact
        self._reader = Reader()
        self._piece = _PIECES[shape]
        self._words = _LOOK[shape]
        self._events = 0
        self._plain = False  # the first token was seen and no event is unfinished: the common state

    @property
    def at_boundary(self) -> bool:
        """Whether an event of llmgw's own may be put in here: only whole events have passed."""
        return not self._reader.long

    def feed(self, piece: bytes, now: float) -> bytes:
        """What goes to the client now that this piece has come; `now` in seconds of the caller's clock."""
        if self._plain and piece.endswith(b"\n\n") and not self._marked(piece):
            self._events += len(self._piece.findall(piece))
            return piece
        passed = self._reader.passed(piece, lambda event: self._look(event, now))
        self._plain = self.first_token_at is not None and not self._reader.held
        return passed

    def _marked(self, data: bytes) -> bool:
        for word in self._words:  # noqa: SIM110  a generator would cost more than the search
            if word in data:
                return True
        return False

    def _look(self, event: Event, now: float) -> bytes:
        raw, data = event.raw, event.data
        if data is None and not event.beginning:
            return raw
        if data is None:
            self._look_at_long(event, now)
            return raw
        if self._piece.search(data) is not None:
            self._events += 1
            if self.first_token_at is None:
                self.first_token_at = now
        if not self._marked(data):
            return raw
        value = parsed(data)
        kind = value.get("type")
        if type(kind) is not str:
            kind = None
        if kind in _LAST:
            self.done = True
        self._ended(kind, value)
        self._count(kind, value)
        failed = kind == "error" or kind == "response.failed" or ("error" in value and kind is None)
        if failed:
            self.error = self.error or _code(value)
            return raw if self._redact is None else self._redact(raw)
        return raw

    def _look_at_long(self, event: Event, now: float) -> None:
        """What it is stands in its beginning, and what it counts in its end."""
        if self._piece.search(event.beginning) is not None:
            self._events += 1
            if self.first_token_at is None:
                self.first_token_at = now
        found = _TYPE.search(event.beginning)
        kind = found[1].decode() if found is not None else ""
        if kind in _LAST:
            self.done = True
            self._ended(kind, {})
            find_counts(event.raw, self.counts)

    def _ended(self, kind: Any, value: dict[str, Any]) -> None:
        """1. a message says why with its last counts; 2. a response by the name of its last event, or what it lacks."""
        if kind == "message_delta":  # 1
            delta = value.get("delta")
            reason = delta.get("stop_reason") if type(delta) is dict else None
        elif kind in _LAST and kind != "message_stop":  # 2
            response = value.get("response")
            details = response.get("incomplete_details") if type(response) is dict else None
            reason = details.get("reason") if type(details) is dict else None
            reason = reason or kind.removeprefix("response.")
        else:
            return
        if type(reason) is str:
            self.counts.finish = reason[:40]

    def _count(self, kind: Any, value: dict[str, Any]) -> None:
        """1. an answer's beginning says what its prompt has; 2. its end, what came of it, and some engines the prompt again;
        3. a response's last event has all of it."""
        counts = self.counts
        inner = value.get("message" if kind == "message_start" else "response")
        usage = inner.get("usage") if type(inner) is dict else value.get("usage")
        if type(usage) is not dict:
            return
        prompt, cached = counts.prompt, counts.cached
        read_usage(usage, counts)
        if kind == "message_start":  # 1: one token, or none, is not what it will have; a prompt of none is not known
            counts.prompt, counts.completion, counts.by_usage = counts.prompt or None, None, False
        elif kind == "message_delta" and not counts.prompt:  # 2
            counts.prompt, counts.cached = prompt, cached

    def finish(self) -> bytes:
        """At the end of the stream, however it came: the rest that was held. Fills in counts if none were reported."""
        counts = self.counts
        if counts.completion is None:
            counts.completion = self._events or None
            counts.estimated = counts.completion is not None or counts.prompt is not None
        rest, self._reader.held = self._reader.held, b""
        return rest


def _code(value: dict[str, Any]) -> str:
    """The stable code of an error: its own, or Anthropic's type."""
    response = value.get("response")
    holder = response if type(response) is dict else value
    error = holder.get("error")
    for found in (error if type(error) is dict else {}, holder):
        for name in ("code", "type"):
            code = found.get(name)
            if type(code) is str and code and code != "error" and not code.isdecimal():
                return code[:100]
    return "engine_error"
