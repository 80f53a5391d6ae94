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


@pytest.mark.parametrize("pause", [0, 400])
def test_messages_say_it_apart_from_their_counts_too(pause: int) -> None:
    meter = NamedMeter(Shape.ANTHROPIC)
    meter.feed(b"event: content_block_delta\ndata: " + orjson.dumps({"type": "content_block_delta"}) + b"\n\n", 1.0)
    delta = orjson.dumps({"type": "message_delta", "delta": {"stop_reason": "max_tokens", "x": "y" * pause}})
    meter.feed(b"event: message_delta\ndata: " + delta + b"\n\n", 1.0)
    meter.feed(b'event: message_stop\ndata: {"type":"message_stop"}\n\n', 1.0)
    assert (meter.counts.finish, meter.done) == ("max_tokens", True)


CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
WHOLE = {"status": "completed", "incomplete_details": None}
ITEM = {"type": "message", "status": "completed", "content": [{"text": 'a "status":"failed" b'}]}


@pytest.mark.parametrize(
    ("kind", "response", "finish"),
    [
        ("response.completed", WHOLE, "completed"),
        ("response.incomplete", CUT, "max_output_tokens"),
        ("response.incomplete", {"status": "incomplete"}, "incomplete"),
        ("response.failed", {"status": "failed", "error": {"code": "server_error"}}, "failed"),
        ("response.output_item.done", WHOLE, ""),
    ],
)
def test_responses_say_it_by_their_last_event(kind: str, response: dict[str, object], finish: str) -> None:
    meter = NamedMeter(Shape.RESPONSES)
    for event in ({"type": "response.output_text.delta", "delta": "a"}, {"type": kind, "response": response}):
        meter.feed(b"data: " + orjson.dumps(event) + b"\n\n", 1.0)
    assert meter.counts.finish == finish


@pytest.mark.parametrize("size", [1, 7, 40, 10_000])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("ended", "finish"),
    [
        (WHOLE, "completed"),
        (CUT, "max_output_tokens"),
        ({"status": "incomplete", "incomplete_details": {}}, "incomplete"),
        ({"status": "failed", "error": {"code": "server_error"}}, "failed"),
    ],
)
def test_responses_that_are_documents_say_it_by_their_status_and_not_by_that_of_their_items(
    ended: dict[str, object], finish: str, first: bool, size: int
) -> None:
    output = {"output": [ITEM, ITEM]}
    body = orjson.dumps({**ended, **output} if first else {**output, **ended}, option=orjson.OPT_INDENT_2)
    meter = BodyMeter(Shape.RESPONSES)
    for start in range(0, len(body), size):
        meter.feed(body[start : start + size])
    assert meter.counts.finish == finish
