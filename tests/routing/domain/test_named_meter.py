"""Streams with named events: however they are cut, they pass unchanged and are counted once."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.domain.endpoints import Shape
from routing.domain.named_meter import NamedMeter
from routing.domain.passing import PassMeter
from routing.domain.sse import MOST_HELD


def event(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


TEXTS = st.lists(
    st.text(max_size=20) | st.sampled_from(['"usage":{}', 'message_stop"', '"type":"content_block_delta"'])
)


def messages(texts: list[str]) -> bytes:
    deltas = (event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}) for text in texts)
    start = {
        "usage": {"input_tokens": 4, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 1, "output_tokens": 1}
    }
    end = event("message_delta", delta={}, usage={"output_tokens": 99}) + event("message_stop")
    return event("message_start", message=start) + event("ping") + b"".join(deltas) + end


def responses(texts: list[str]) -> bytes:
    deltas = (event("response.output_text.delta", delta=text) for text in texts)
    usage = {"input_tokens": 10, "output_tokens": 99, "input_tokens_details": {"cached_tokens": 5}}
    return (
        event("response.created", response={"usage": None})
        + b"".join(deltas)
        + event("response.completed", response={"usage": usage})
    )


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(at)]


@given(TEXTS, st.lists(st.integers(0, 10_000), max_size=20), st.sampled_from([Shape.ANTHROPIC, Shape.RESPONSES]))
def test_any_cut_passes_unchanged_and_is_counted(texts: list[str], places: list[int], shape: Shape) -> None:
    data = messages(texts) if shape is Shape.ANTHROPIC else responses(texts)
    meter, passing = NamedMeter(shape), PassMeter(shape)
    pieces = cut(data, places)
    out = b"".join(meter.feed(piece, 1.0) for piece in pieces) + meter.finish()
    assert out == data
    assert b"".join(passing.feed(piece, 1.0) for piece in pieces) == data
    assert meter.done
    assert passing.done
    assert (meter.counts.prompt, meter.counts.completion, meter.counts.cached) == (10, 99, 5)
    assert meter.error is None
    assert passing.error is None
    assert (meter.first_token_at is not None) == bool(texts)


@given(TEXTS, st.lists(st.integers(0, 10_000), max_size=20), st.sampled_from([Shape.ANTHROPIC, Shape.RESPONSES]))
def test_a_stream_that_was_cut_is_counted_by_what_passed_and_never_more(
    texts: list[str], places: list[int], shape: Shape
) -> None:
    data = messages(texts) if shape is Shape.ANTHROPIC else responses(texts)
    data = data[: data.index(b"event: message_delta" if shape is Shape.ANTHROPIC else b"event: response.completed")]
    meter = NamedMeter(shape)
    for piece in cut(data, places):
        meter.feed(piece, 1.0)
    meter.finish()
    assert not meter.done
    assert meter.counts.completion == (len(texts) or None)
    assert meter.counts.estimated == (bool(texts) or meter.counts.prompt is not None)


def test_an_answer_that_failed_has_its_code_and_the_event_is_redacted() -> None:
    failed = event("response.failed", response={"error": {"code": "server_error", "message": "at 10.0.0.1"}})
    meter = NamedMeter(Shape.RESPONSES, redact=lambda raw: raw.replace(b"10.0.0.1", b"[internal]"))
    assert b"[internal]" in meter.feed(failed, 1.0)
    assert (meter.error, meter.done) == ("server_error", True)
    meter = NamedMeter(Shape.ANTHROPIC)
    meter.feed(event("error", error={"type": "overloaded_error", "message": "busy"}), 1.0)
    assert (meter.error, meter.done) == ("overloaded_error", False)


@pytest.mark.parametrize("step", [4093, 1 << 16, (1 << 16) + 1, MOST_HELD])
def test_of_an_event_that_is_too_long_to_be_held_beginning_and_end_are_read(step: int) -> None:
    picture = {"type": "image_generation_call", "result": "x" * (MOST_HELD + 1_000_000)}
    usage = {"input_tokens": 10, "output_tokens": 99, "input_tokens_details": {"cached_tokens": 5}}
    whole = event("response.completed", response={"output": [picture], "usage": usage})
    data = event("response.created", response={"usage": None}) + event("response.output_text.delta", delta="a") + whole
    meter = NamedMeter(Shape.RESPONSES)
    passed, boundaries = b"", []
    for at in range(0, len(data), step):
        passed += meter.feed(data[at : at + step], 1.0)
        boundaries.append((meter.at_boundary, passed.endswith(b"\n\n")))
    assert passed == data
    assert meter.done
    assert all(whole for free, whole in boundaries if free)
    assert boundaries[-1] == (True, True)
    counts = meter.counts
    assert (counts.prompt, counts.completion, counts.cached, counts.finish) == (10, 99, 5, "completed")


@pytest.mark.parametrize("more", range(4))
def test_what_follows_an_event_that_was_too_long_to_be_held_is_read(more: int) -> None:
    delta = event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": "x" * MOST_HELD})
    cut = len(delta) - more  # also within the empty line that ends it
    meter = NamedMeter(Shape.ANTHROPIC)
    last = event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 3}) + event("message_stop")
    pieces = (delta[:cut], delta[cut:] + last)
    assert b"".join(meter.feed(piece, 1.0) for piece in pieces) == delta + last
    assert (meter.done, meter.first_token_at, meter.counts.completion, meter.counts.finish) == (
        True, 1.0, 3, "tool_use",
    )  # fmt: skip
