"""The way there and back of one request: its body as a chat, and a chat's answer in the words of the API that was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import orjson

from llmgw_site.lib.errors import Refused
from routing.domain.endpoints import CHAT, COUNT_TOKENS, ENDPOINTS, MESSAGES, TOKENIZE, Shape
from routing.domain.envelopes import body_of, error_event
from routing.domain.sse import DONE, MOST_HELD, Reader
from routing.domain.translate import messages_in, messages_out, responses_in, responses_out


class Events(Protocol):
    """Writes the events of an answer from a chat's chunks."""

    def chunk(self, value: dict[str, Any]) -> list[dict[str, Any]]: ...

    def end(self) -> list[dict[str, Any]]: ...


class Back:
    """Of one answer: `whole` or, of a stream, `feed` piece by piece."""

    def __init__(
        self, shape: Shape, whole: Callable[[dict[str, Any]], dict[str, Any]], events: Events | None = None
    ) -> None:
        self._shape = shape
        self._whole = whole
        self._events = events
        self._reader = Reader()

    def whole(self, body: bytes) -> bytes:
        """Raises ValueError where it is no such answer."""
        value = orjson.loads(body)
        if type(value) is not dict:
            raise ValueError("the answer is no object")
        return orjson.dumps(self._whole(value))

    def feed(self, piece: bytes) -> bytes:
        """What the events that end within this piece are in the other API. Comments pass; an unfinished event is held.
        Raises ValueError where one is no chunk."""
        assert self._events is not None  # of what can be streamed
        out = []
        for event in self._reader.feed(piece):
            data = event.data
            if data is None:
                out.append(event.raw)
            elif data == DONE:
                out += map(_written, self._events.end())
            else:
                out.append(self._chunk(orjson.loads(data)))
        if len(self._reader.held) > MOST_HELD:
            raise ValueError("an event is too long")
        return b"".join(out)

    def _chunk(self, value: Any) -> bytes:
        if type(value) is not dict:
            raise ValueError("an event is no chunk of a chat completion")
        error = value.get("error")
        if error:
            inner = error if type(error) is dict else {"message": str(error)}
            code = inner.get("code")
            told = {**inner, "code": code if type(code) is str else "engine_error"}
            return error_event(body_of(500, told, self._shape), self._shape)
        assert self._events is not None
        return b"".join(map(_written, self._events.chunk(value)))


def _written(event: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))


def translated(endpoint: str, body: bytes) -> tuple[str, bytes, Back] | Refused:
    """The path and body that ask the same of who speaks chats, and the way back; or why there are none. The body is checked.

    1. messages          a chat
    2. messages to count   cut into tokens, as vLLM does it by the model's template
    3. responses         a chat
    """
    value: dict[str, Any] = orjson.loads(body)
    try:
        if endpoint == MESSAGES:  # 1
            back = Back(Shape.ANTHROPIC, messages_out.message, messages_out.MessageEvents())
            return _CHAT, orjson.dumps(messages_in.chat_of(value)), back
        if endpoint == COUNT_TOKENS:  # 2
            chat = messages_in.chat_of(value)
            asked = {name: chat[name] for name in ("model", "messages", "tools") if name in chat}
            return ENDPOINTS[TOKENIZE].path, orjson.dumps(asked), Back(Shape.ANTHROPIC, _counted)
        told = responses_out.asked_of(value)  # 3
        events = responses_out.ResponseEvents(told)
        back = Back(Shape.RESPONSES, lambda done: responses_out.response(done, told), events)
        return _CHAT, orjson.dumps(responses_in.chat_of(value)), back
    except Refused as refused:
        return refused


_CHAT = ENDPOINTS[CHAT].path


def _counted(value: dict[str, Any]) -> dict[str, Any]:
    if type(value.get("count")) is not int:
        raise ValueError("the answer has no count of tokens")
    return {"input_tokens": value["count"]}
