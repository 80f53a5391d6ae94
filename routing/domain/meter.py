"""Token and time accounting folded over an answer while it passes. Bytes in, the client's bytes out.

The cost per chunk decides what one core carries, so a chunk in the middle of a stream is searched for four short words
and never parsed; JSON is read only where one of them stands, and until the first token is seen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from routing.domain import jsonbytes
from routing.domain.endpoints import Shape
from routing.domain.sse import DONE, Event, Reader

_OBJECT = re.compile(rb"\s*:\s*\{")
LONGEST_USAGE = 16 << 10
"""Bytes that a usage object may have; what is longer is none."""


@dataclass(slots=True)
class Counts:
    """Tokens of one request; None is not known. `estimated`: counted from the events that passed."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None  # of the completion
    audio: int | None = None  # seconds of sound that was heard, where these are what is counted
    estimated: bool = False
    by_usage: bool = False  # from a usage object, which llama.cpp's timings do not overrule
    finish: str = ""  # why the engine ended the answer, of the first choice that did; empty: not known


MOST_TOKENS = 2**40
"""What an engine counts from here on is no count: sums of many of these still fit where limits and reports are counted."""


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < MOST_TOKENS else None


def _seconds(value: Any) -> int | None:
    """Whole ones, a part of one as one: engines and providers count them so."""
    return _whole(math.ceil(value)) if type(value) in (int, float) and 0 <= value < MOST_TOKENS else None


def read_usage(usage: Any, counts: Counts) -> None:
    """Take a usage object over, if it holds counts.

    1. of chats, completions, embeddings; those have no completion
    2. of responses and messages; these do not count among their input what came from the cache, or went into it
    3. of rankings, which some engines give a sum only
    4. of transcriptions that are counted by time
    """
    if type(usage) is not dict:
        return
    get = usage.get
    if get("type") == "duration":  # 4
        counts.audio = _seconds(get("seconds"))
        return
    prompt, completion = _whole(get("prompt_tokens")), _whole(get("completion_tokens"))  # 1
    details, inner = get("prompt_tokens_details"), get("completion_tokens_details")
    cached = _whole(details.get("cached_tokens")) if type(details) is dict else None
    if prompt is None and completion is None:
        prompt, completion = _whole(get("input_tokens")), _whole(get("output_tokens"))  # 2
        details, inner = get("input_tokens_details"), get("output_tokens_details")
        cached = (
            _whole(details.get("cached_tokens")) if type(details) is dict else _whole(get("cache_read_input_tokens"))
        )
        if prompt is not None and type(details) is not dict:
            prompt += (cached or 0) + (_whole(get("cache_creation_input_tokens")) or 0)
    if prompt is None and completion is None:
        prompt = _whole(get("total_tokens"))  # 3
        if prompt is None:
            return
    counts.prompt, counts.completion, counts.estimated = prompt, completion, False
    counts.by_usage = True
    if cached is not None:
        counts.cached = cached
    if type(inner) is dict and (reasoning := _whole(inner.get("reasoning_tokens"))) is not None:
        counts.reasoning = reasoning


def read_timings(timings: Any, counts: Counts) -> None:
    """Take llama.cpp's `timings` over: `prompt_n` tokens were computed, `cache_n` came from the cache."""
    if type(timings) is not dict:
        return
    prompt, cached = _whole(timings.get("prompt_n")), _whole(timings.get("cache_n"))
    predicted = _whole(timings.get("predicted_n"))
    if prompt is None or predicted is None:
        return
    counts.prompt, counts.completion, counts.cached = prompt + (cached or 0), predicted, cached
    counts.estimated = False


_FINISH = re.compile(rb'"(?:finish_reason|stop_reason)"\s*:\s*"([a-z_]{1,40})"')
"""Within a text the quotes would be escaped."""


def find_finish(data: bytes, counts: Counts) -> None:
    """Read why the answer ended, if these bytes say so and nothing has yet."""
    if not counts.finish and (found := _FINISH.search(data)) is not None:
        counts.finish = found[1].decode()


_ENDED = re.compile(
    rb'"status"\s*:\s*"(completed|incomplete|cancelled|failed)"|"incomplete_details"\s*:\s*\{\s*"reason"\s*:\s*"([a-z_]{1,40})"'
)
_TELLING = {"": 0, "completed": 1, "incomplete": 2, "cancelled": 3, "failed": 3}
"""Items of a response have a status, too: the response's own is the worst of them."""


def find_ended(data: bytes, counts: Counts) -> None:
    """The same of a response, which says it by its status, and by a reason where it is incomplete."""
    for found in _ENDED.finditer(data):
        status, reason = found.groups()
        if reason is not None:
            counts.finish = reason.decode()
        elif _TELLING.get(counts.finish, 4) < _TELLING[said := status.decode()]:
            counts.finish = said


def find_counts(data: bytes, counts: Counts) -> int:
    """Read `usage` and `timings` objects in JSON text; usage wins.

    Within a JSON string the quotes would be escaped, so these are real fields. Returns where an object begins that
    does not end within `data` (the caller brings more), else -1.
    """
    unfinished = -1
    for name, usage in ((b'"usage"', True), (b'"timings"', False)):
        at = data.find(name)
        while at >= 0:
            opening = _OBJECT.match(data, at + len(name))
            if opening is not None:
                end = jsonbytes.value_end(data, opening.end() - 1)
                if end < 0:
                    unfinished = at if unfinished < 0 else min(at, unfinished)
                    break
                _take(data[opening.end() - 1 : end], counts, usage=usage)
            at = data.find(name, at + len(name))
    return unfinished


def _take(text: bytes, counts: Counts, *, usage: bool) -> None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return
    if usage:
        read_usage(value, counts)
    else:
        _read_beside(value, counts)


def _read_beside(timings: dict[str, Any], counts: Counts) -> None:
    """Timings say what usage did not."""
    if not counts.by_usage:
        read_timings(timings, counts)
    elif counts.cached is None:
        counts.cached = _whole(timings.get("cache_n"))


_SEAM = 128
"""Bytes that are kept of a piece: a name with its value may lie across its end."""


class BodyMeter:
    """Reads the counts of an answer that is one JSON document, piece by piece, without keeping the document."""

    def __init__(self, shape: Shape = Shape.OPENAI) -> None:
        self.counts = Counts()
        self._held = b""
        self._find_finish = find_ended if shape is Shape.RESPONSES else find_finish

    def whole(self, document: bytes) -> None:
        """All of it at once, if it is small: parsing it takes a fifth of the time that looking for its counts does."""
        try:
            value = orjson.loads(document)
        except orjson.JSONDecodeError:
            value = None
        usage = value.get("usage") if type(value) is dict else None
        if type(usage) is not dict:
            self.feed(document)
            return
        self._find_finish(document, self.counts)
        read_usage(usage, self.counts)
        if type(timings := value.get("timings")) is dict:
            _read_beside(timings, self.counts)

    def feed(self, piece: bytes) -> None:
        data = self._held + piece if self._held else piece
        self._find_finish(data, self.counts)
        if b'"usage"' not in data and b'"timings"' not in data:
            self._held = data[-_SEAM:]
            return
        rest = find_counts(data, self.counts)
        self._held = data[rest:] if rest >= 0 and len(data) - rest <= LONGEST_USAGE else data[-_SEAM:]


class Summing(Protocol):
    """See several.py."""

    def take(self, data: bytes, counts: Counts) -> bool: ...

    def cut(self, events: int, counts: Counts) -> None: ...


class StreamMeter:
    """Reads an event stream on its way to the client. A piece goes on as it came, but for events that are not whole yet:
    they are held until they are.

    strip    the client did not ask for usage, so the chunk that llmgw asked for is taken out (F14)
    redact   what is done with the bytes of an error event
    each     adds up where each of several answers has a usage of its own
    """

    def __init__(
        self, *, strip: bool, redact: Callable[[bytes], bytes] | None = None, each: Summing | None = None
    ) -> None:
        self.counts = Counts()
        self._each = each
        self.first_token_at: float | None = None
        self.done = False
        """`[DONE]` was seen."""
        self.error: str | None = None
        """Code of an error event that the engine sent within the stream."""
        self._strip = strip
        self._redact = redact
        self._reader = Reader()
        self._events = 0
        self._plain = False  # the first token was seen and no event is unfinished: the common state
        self._last = b""  # the last piece that was not read: why an answer ended mostly stands in it

    @property
    def at_boundary(self) -> bool:
        """Whether an event of llmgw's own may be put in here: only whole events have passed."""
        return not self._reader.long

    def feed(self, piece: bytes, now: float) -> bytes:
        """What goes to the client now that this piece has come; `now` in seconds of the caller's clock."""
        if (
            self._plain
            and piece.startswith(b"data:")
            and piece.endswith(b"\n\n")
            and b"\n:" not in piece  # a comment is no token
            and b'"usage"' not in piece
            and b"[DONE]" not in piece
            and b'"error"' not in piece
            and b'"timings"' not in piece
        ):
            self._events += piece.count(b"\n\n")
            self._last = piece
            return piece
        passed = self._reader.passed(piece, lambda event: self._look(event, now))
        self._plain = self.first_token_at is not None and not self._reader.held
        return passed

    def _look(self, event: Event, now: float) -> bytes:
        """Account for one event. What of it goes on: all, nothing of a usage chunk that this client did not ask for, or
        an error as it may be told."""
        raw, data = event.raw, event.data
        if data is None:
            if event.beginning:
                self._count(now)
            return raw
        if data == DONE:
            self.done = True
            return raw
        find_finish(data, self.counts)
        if b'"usage"' in data or b'"timings"' in data:
            if self._each is None or not self._each.take(data, self.counts):
                find_counts(data, self.counts)
            if self._strip and _is_usage_chunk(data):
                return b""
        if b'"error"' in data and (code := error_code(data)) is not None:
            self.error = self.error or code
            return raw if self._redact is None else self._redact(raw)  # no token
        if self.first_token_at is None and not _has_token(data):
            return raw
        self._count(now)
        return raw

    def _count(self, now: float) -> None:
        """An event that brings something generated."""
        self._events += 1
        if self.first_token_at is None:
            self.first_token_at = now

    def finish(self) -> bytes:
        """At the end of the stream, however it came: the rest that was held. Fills in counts if none were reported."""
        counts = self.counts
        find_finish(self._last, counts)
        if counts.completion is None and self._events:
            # Engines send one token an event, or a few when they run ahead: a lower bound, marked as estimated.
            counts.completion, counts.estimated = self._events, True
        elif self._each is not None and not self.done:
            self._each.cut(self._events, counts)
        rest, self._reader.held = self._reader.held, b""
        return rest


def parsed(data: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return value if type(value) is dict else {}


def _is_usage_chunk(data: bytes) -> bool:
    """The extra chunk of `include_usage`: counts, and an empty `choices`."""
    value = parsed(data)
    return type(value.get("usage")) is dict and value.get("choices") == []


def error_code(data: bytes) -> str | None:
    error = parsed(data).get("error")
    if error is None:
        return None
    code = error.get("code") if type(error) is dict else None
    return code[:100] if type(code) is str and code and not code.isdecimal() else "engine_error"


def _has_token(data: bytes) -> bool:
    """Whether a chunk carries something generated: text, reasoning, a tool call."""
    choices = parsed(data).get("choices")
    if type(choices) is not list:
        return False
    for choice in choices:
        if type(choice) is not dict:
            continue
        if choice.get("text"):
            return True
        delta = choice.get("delta")
        if type(delta) is dict and any(value for name, value in delta.items() if name != "role"):
            return True
    return False
