"""Counting while bytes pass: the usage chunk goes, everything else stays, whatever the cuts."""

from __future__ import annotations

import itertools
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.domain.endpoints import Shape
from routing.domain.meter import BodyMeter, Counts, StreamMeter, read_usage
from routing.domain.sse import MOST_HELD

USAGE = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 4}}


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def token(text: str, **other: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}}], **other})


ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]})
STOP = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
EXTRA = event({"choices": [], "usage": USAGE})
DONE = b"data: [DONE]\n\n"
TRICKY = token('say "usage": {"prompt_tokens": 99} and [DONE] and "choices": []')
STREAM = ROLE + token("a") + TRICKY + b": ping\n\n" + token("c") + STOP + EXTRA + DONE


def run(pieces: list[bytes], *, strip: bool) -> tuple[bytes, StreamMeter]:
    meter = StreamMeter(strip=strip)
    out = b"".join(meter.feed(piece, float(number)) for number, piece in enumerate(pieces))
    return out + meter.finish(), meter


def cut(data: st.DataObject, stream: bytes) -> list[bytes]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    edges = [0, *cuts, len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


@given(st.data(), st.booleans())
def test_any_split_strips_the_usage_chunk_and_nothing_else(data: st.DataObject, strip: bool) -> None:
    out, meter = run(cut(data, STREAM), strip=strip)
    assert out == (STREAM.replace(EXTRA, b"") if strip else STREAM)
    assert meter.counts == Counts(prompt=11, completion=3, cached=4, by_usage=True, finish="stop")
    assert meter.done
    assert meter.error is None
    assert meter.first_token_at is not None


@given(st.data(), st.integers(0, len(STREAM)), st.booleans())
def test_a_stream_that_is_cut_anywhere_loses_no_byte(data: st.DataObject, end: int, strip: bool) -> None:
    part = STREAM[:end]
    out, meter = run(cut(data, part), strip=strip)
    assert out == (part.replace(EXTRA, b"") if strip else part)
    assert meter.counts.estimated == (meter.counts.completion is not None and EXTRA not in part)


@given(st.data(), st.booleans())
def test_an_error_event_is_redacted_wherever_it_is_cut_and_nothing_else_is(data: st.DataObject, strip: bool) -> None:
    error = event({"error": {"message": "lost 10.0.0.5:8880", "code": "mine"}})
    stream = token("a 10.0.0.5:8880") + error + token("b 10.0.0.5:8880")
    meter = StreamMeter(strip=strip, redact=lambda text: text.replace(b"10.0.0.5:8880", b"[internal]"))
    out = b"".join(meter.feed(piece, 0.0) for piece in cut(data, stream))
    assert out == token("a 10.0.0.5:8880") + error.replace(b"10.0.0.5:8880", b"[internal]") + token("b 10.0.0.5:8880")
    assert meter.error == "mine"


@given(st.data(), st.integers(0, len(STREAM)), st.booleans())
def test_only_whole_events_pass(data: st.DataObject, end: int, strip: bool) -> None:
    meter = StreamMeter(strip=strip)
    out = b"".join(meter.feed(piece, 0.0) for piece in cut(data, STREAM[:end]))
    assert out == b"" or out.endswith(b"\n\n")
    assert meter.at_boundary


@pytest.mark.parametrize("strip", [False, True])
def test_one_piece_in_is_the_same_piece_out(strip: bool) -> None:
    meter = StreamMeter(strip=strip)
    for piece in (ROLE, token("a"), token("b"), TRICKY, STOP, token("c") + token("d")):
        assert meter.feed(piece, 0.0) is piece
    assert meter.feed(EXTRA, 0.0) == (b"" if strip else EXTRA)
    assert meter.feed(DONE, 0.0) is DONE


def test_the_first_token_is_the_first_with_something_generated() -> None:
    for first in (
        token("a"),
        event({"choices": [{"delta": {"reasoning_content": "hm"}}]}),
        event({"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}),
        event({"choices": [{"text": "a"}]}),
    ):
        meter = StreamMeter(strip=True)
        meter.feed(b": ping\n\n", 1.0)
        meter.feed(ROLE, 2.0)
        assert meter.first_token_at is None
        meter.feed(first, 3.0)
        meter.feed(token("z"), 4.0)
        assert meter.first_token_at == 3.0


@pytest.mark.parametrize(
    ("last", "wanted"),
    [
        (event({"choices": [{"delta": {}}], "usage": USAGE}), Counts(prompt=11, completion=3, cached=4, by_usage=True)),
        (
            event({"choices": [{"delta": {}}], "timings": {"prompt_n": 5, "cache_n": 2, "predicted_n": 9}}),
            Counts(prompt=7, completion=9, cached=2),
        ),
        (
            event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}, "timings": {"prompt_n": 5, "cache_n": 2, "predicted_n": 9}}),
            Counts(prompt=7, completion=9, cached=2, by_usage=True),
        ),
        (
            event({"choices": [], "timings": {"prompt_n": 5, "cache_n": 2, "predicted_n": 8}, "usage": {"prompt_tokens": 7, "completion_tokens": 9}}),
            Counts(prompt=7, completion=9, cached=2, by_usage=True),
        ),
        (event({"choices": [], "usage": None}), Counts(completion=2, estimated=True)),
        (event({"choices": [], "usage": {"prompt_tokens": "x"}}), Counts(completion=2, estimated=True)),
    ],
)  # fmt: skip
def test_where_counts_come_from(last: bytes, wanted: Counts) -> None:
    _, meter = run([token("a"), last, DONE], strip=True)
    assert meter.counts == wanted or (meter.counts.estimated and wanted.estimated)


def test_timings_in_every_chunk_count_up_to_the_last_one() -> None:
    pieces = [token("a", timings={"prompt_n": 5, "cache_n": 0, "predicted_n": n}) for n in (1, 2, 3)]
    _, meter = run(pieces, strip=True)
    assert meter.counts == Counts(prompt=5, completion=3, cached=0)


@pytest.mark.parametrize(
    "pieces", [[b": ping\n\n", token("b")], [token("b") + b": ping\n\n"], [b": ping\n\n" + token("b")]]
)
def test_a_comment_is_no_token(pieces: list[bytes]) -> None:
    out, meter = run([token("a"), *pieces], strip=False)
    assert out == b"".join([token("a"), *pieces])
    assert (meter.counts.completion, meter.counts.estimated) == (2, True)


def test_a_usage_in_a_chunk_with_choices_is_not_taken_out() -> None:
    last = event({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": USAGE})
    out, _ = run([token("a"), last, DONE], strip=True)
    assert last in out


def test_an_error_event_is_remembered_by_its_code() -> None:
    for error, code in (
        ({"message": "x", "code": 500}, "engine_error"),
        ({"code": "boom"}, "boom"),
        ("x", "engine_error"),
    ):
        _, meter = run([token("a"), event({"error": error})], strip=True)
        assert (meter.error, meter.done) == (code, False)
    _, meter = run([token("a"), token("b", error=None), DONE], strip=True)
    assert meter.error is None


@given(st.data(), st.booleans())
def test_a_document_is_counted_for_any_split(data: st.DataObject, first: bool) -> None:
    text = {"choices": [{"message": {"content": 'x "usage": {"prompt_tokens": 1} ' * 30}}]}
    value = {"usage": USAGE, **text} if first else {**text, "usage": USAGE}
    meter = BodyMeter()
    for piece in cut(data, json.dumps(value).encode()):
        meter.feed(piece)
    assert meter.counts == Counts(prompt=11, completion=3, cached=4, by_usage=True)


def test_a_large_document_is_not_kept() -> None:
    meter = BodyMeter()
    meter.feed(b'{"data":[')
    for _ in range(100):
        meter.feed(b"0.123456," * 10_000)
        assert len(meter._held) <= 128
    meter.feed(b'0],"usage":{"prompt_tokens":5,"total_tokens":5}}')
    assert meter.counts == Counts(prompt=5, by_usage=True)


@pytest.mark.parametrize("wrong", [-1, 2**40, 2**70, 1.5, True, "7", [], {}])
def test_what_cannot_be_a_count_is_none(wrong: Any) -> None:
    read_usage({"prompt_tokens": wrong, "completion_tokens": 3}, counts := Counts())
    assert (counts.prompt, counts.completion) == (None, 3)
    read_usage({"prompt_tokens": 2**40 - 1, "completion_tokens": wrong}, counts := Counts())
    assert (counts.prompt, counts.completion) == (2**40 - 1, None)


@pytest.mark.parametrize(
    ("seconds", "counted"),
    [(0, 0), (12, 12), (12.01, 13), (-1, None), (True, None), ("3", None), (None, None), (2**40, None), (2**40 - 0.5, None), (1e400, None)],
)  # fmt: skip
def test_sound_is_counted_in_whole_seconds_and_its_tokens_stay_unknown(seconds: Any, counted: int | None) -> None:
    read_usage({"type": "duration", "seconds": seconds, "prompt_tokens": 3}, counts := Counts())
    assert (counts.audio, counts.prompt, counts.completion, counts.by_usage) == (counted, None, None, False)


def test_what_was_thought_is_read_where_an_engine_says_it() -> None:
    chat, response = Counts(), Counts()
    read_usage({"prompt_tokens": 5, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 7}}, chat)
    read_usage({"input_tokens": 5, "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 0}}, response)
    assert (chat.reasoning, response.reasoning) == (7, 0)
    read_usage({"prompt_tokens": 5, "completion_tokens": 9, "completion_tokens_details": None}, other := Counts())
    assert other.reasoning is None


WORDS = st.sampled_from(
    ["stop", "length", "tool_calls", "end_turn", "completed", 'a "usage":{"prompt_tokens":9} b', ""]
)
TOKENS = st.integers(0, 10**6)
USAGES = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": TOKENS,
        "completion_tokens": TOKENS,
        "input_tokens": TOKENS,
        "output_tokens": TOKENS,
        "total_tokens": TOKENS,
        "note": WORDS,
        "prompt_tokens_details": st.none() | st.fixed_dictionaries({"cached_tokens": TOKENS}),
        "completion_tokens_details": st.none() | st.fixed_dictionaries({"reasoning_tokens": TOKENS}),
    },
)
DOCUMENTS = st.fixed_dictionaries(
    {"choices": st.lists(st.fixed_dictionaries({"text": WORDS, "finish_reason": st.none() | WORDS}), max_size=3)},
    optional={
        "usage": st.none() | USAGES,
        "timings": st.none()
        | st.fixed_dictionaries({"prompt_n": TOKENS, "predicted_n": TOKENS}, optional={"cache_n": TOKENS}),
        "stop_reason": WORDS,
        "status": WORDS,
    },
)


@given(DOCUMENTS, st.sampled_from(list(Shape)), st.sampled_from([0, orjson.OPT_INDENT_2]))
def test_a_document_that_is_here_as_a_whole_has_the_counts_that_its_pieces_have(
    document: dict[str, Any], shape: Shape, option: int
) -> None:
    text = orjson.dumps(document, option=option)
    pieces, whole = BodyMeter(shape), BodyMeter(shape)
    for at in range(0, len(text), 50):
        pieces.feed(text[at : at + 50])
    whole.whole(text)
    assert whole.counts == pieces.counts


@pytest.mark.parametrize("text", [b"", b"[]", b"no json", b'{"usage":7}', b'{"inner":{"usage":{"prompt_tokens":3}}}'])
def test_what_is_no_usual_document_is_searched(text: bytes) -> None:
    pieces, whole = BodyMeter(), BodyMeter()
    pieces.feed(text)
    whole.whole(text)
    assert whole.counts == pieces.counts


def test_a_chunk_that_is_too_long_to_be_held_is_one_and_what_follows_is_read() -> None:
    chunk = json.dumps({"choices": [{"index": 0, "delta": {"audio": {"data": "x" * MOST_HELD}}}]}).encode()
    pieces = [b"data: " + chunk[:-1], chunk[-1:] + b"\n", b"\ndata: [DONE]\n\n"]
    meter = StreamMeter(strip=True)
    assert b"".join(meter.feed(piece, 1.0) for piece in pieces) + meter.finish() == b"".join(pieces)
    assert (meter.done, meter.first_token_at, meter.counts.completion) == (True, 1.0, 1)
