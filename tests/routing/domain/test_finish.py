"""Why an answer ended is read on its way: from documents in any pieces and from streams, never from what a model says."""

from __future__ import annotations

import orjson
import pytest

from routing.domain.endpoints import Shape
from routing.domain.meter import BodyMeter, StreamMeter
from routing.domain.named_meter import NamedMeter


def chunk(content: str, finish: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": content} if content else {}, "finish_reason": finish}
    return b"data: " + orjson.dumps({"id": "x", "choices": [choice], **more}) + b"\n\n"


def through(*pieces: bytes) -> str:
    meter = StreamMeter(strip=False)
    for piece in pieces:
        assert meter.feed(piece, 1.0) == piece
    meter.finish()
    return meter.counts.finish


LAST, DONE = chunk("", "length"), b"data: [DONE]\n\n"
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'


def test_a_stream_says_it_in_its_last_chunk_however_the_pieces_fall() -> None:
    assert through(chunk("a"), chunk("b"), LAST, DONE) == "length"
    assert through(chunk("a"), chunk("b"), LAST, USAGE, DONE) == "length"
    assert through(chunk("a"), chunk("b") + LAST, USAGE + DONE) == "length"
    assert through(chunk("a") + chunk("b") + LAST + USAGE + DONE) == "length"
    assert (
        through(chunk("a"), chunk("", "tool_calls", usage={"prompt_tokens": 1, "completion_tokens": 2}), DONE)
        == "tool_calls"
    )
    assert through(chunk("a"), chunk("b"), LAST) == "length"  # cut off behind it


def test_a_stream_that_was_cut_says_nothing() -> None:
    assert through(chunk("a"), chunk("b")) == ""
    assert through(DONE) == ""


def test_what_a_model_says_is_no_reason() -> None:
    said = 'it ends with "finish_reason":"stop"'
    assert through(chunk("a"), chunk(said), LAST, DONE) == "length"
    assert through(chunk(said), chunk("b"), DONE) == ""


@pytest.mark.parametrize("size", [1, 7, 40, 10_000])
def test_a_document_says_it_in_any_pieces(size: int) -> None:
    body = orjson.dumps(
        {"choices": [{"message": {"content": "x" * 300}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}
    )
    meter = BodyMeter()
    for start in range(0, len(body), size):
        meter.feed(body[start : start + size])
    assert (meter.counts.finish, meter.counts.prompt) == ("stop", 3)


def test_messages_say_it_by_their_own_name() -> None:
    meter = NamedMeter(Shape.ANTHROPIC)
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}
    meter.feed(b"event: message_delta\ndata: " + orjson.dumps(delta) + b"\n\n", 1.0)
    assert meter.counts.finish == "end_turn"
