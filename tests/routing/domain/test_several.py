"""Counts of several answers: added up where each has its own, a lower bound where only the first has."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.domain.meter import BodyMeter, Counts, StreamMeter
from routing.domain.several import Tally, Told

TIMINGS = {"prompt_n": 1, "predicted_n": 3}


def usage(prompt: int, completion: int, cached: int = 0) -> dict[str, Any]:
    details = {"cached_tokens": cached}
    return {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": details}


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def said(index: int, text: str = "a") -> bytes:
    return event(choices=[{"index": index, "delta": {"content": text}}])


def read(pieces: list[bytes], *, answers: int, prompts: int) -> StreamMeter:
    meter = StreamMeter(strip=True, each=Told(answers, prompts))
    for number, piece in enumerate(pieces):
        meter.feed(piece, float(number))
    meter.finish()
    return meter


def test_usage_of_each_answer_is_added_up_and_a_prompt_counts_once() -> None:
    ends = [event(choices=[], usage=usage(32, made, 31), timings=TIMINGS) for made in (3, 5)]
    pieces = [said(0), said(1), ends[0], said(1), ends[1], b"data: [DONE]\n\n"]
    copies = read(pieces, answers=2, prompts=1).counts
    assert (copies.prompt, copies.cached, copies.completion, copies.estimated) == (32, 31, 8, False)
    texts = read(pieces, answers=2, prompts=2).counts
    assert (texts.prompt, texts.cached, texts.completion) == (64, 62, 8)


def test_a_usage_without_timings_is_of_all_answers_however_often_it_comes() -> None:
    pieces = [said(0), event(choices=[], usage=usage(9, 2)), said(1), event(choices=[], usage=usage(9, 7))]
    counts = read([*pieces, b"data: [DONE]\n\n"], answers=2, prompts=1).counts
    assert (counts.prompt, counts.completion, counts.estimated) == (9, 7, False)


def test_of_a_stream_that_breaks_off_what_passed_of_the_others_is_counted() -> None:
    end = event(choices=[], usage=usage(32, 1), timings=TIMINGS)
    counts = read([said(0), end, *[said(1)] * 20], answers=2, prompts=1).counts
    assert (counts.completion, counts.estimated) == (17, True)
    counts = read([said(0), said(1), end], answers=2, prompts=1).counts
    assert (counts.completion, counts.estimated) == (1, True)


@pytest.mark.parametrize(
    ("told", "prompts", "prompt"), [(1, 1, 32), (3, 1, 32), (1, 2, 32), (2, 2, 32), (3, 2, 48), (2, 4, 64)]
)
def test_of_a_stream_that_breaks_off_the_prompt_is_what_was_told_of_it(told: int, prompts: int, prompt: int) -> None:
    end = event(choices=[], usage=usage(32, 5, 31), timings=TIMINGS)
    counts = read([said(0), said(1), *[end] * told], answers=4, prompts=prompts).counts
    assert (counts.prompt, counts.completion, counts.estimated) == (prompt, 5 * told, True)


def whole(document: bytes, cuts: list[int], *, prompts: int) -> Counts:
    meter, tally = BodyMeter(), Tally(prompts)
    edges = [0, *sorted(cuts), len(document)]
    for at, end in itertools.pairwise(edges):
        meter.feed(document[at:end])
        tally.feed(document[at:end])
    tally.apply(meter.counts)
    return meter.counts


def document(*choices: tuple[str, str], **other: Any) -> bytes:
    made = [{"text": text, "index": n, "finish_reason": end} for n, (text, end) in enumerate(choices)]
    return json.dumps({"choices": made, "usage": usage(7, 4), **other}, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("ends", "least"),
    [
        ((("a", "length"), ("b", "length"), ("c", "length")), 12),
        ((("a", "length"), ("b", "stop"), ("c", "length")), 9),
        ((("a", "stop"), ("b", "length")), 5),
        ((("a", "stop"), ("one two three four five six seven eight nine", "stop")), 8),
    ],
)
@given(data=st.data())
def test_of_a_document_with_the_first_answers_usage_the_others_are_counted_at_least(
    data: st.DataObject, ends: tuple[tuple[str, str], ...], least: int
) -> None:
    text = document(*ends, timings=TIMINGS)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=6))
    counts = whole(text, cuts, prompts=1)
    assert (counts.prompt, counts.completion, counts.estimated) == (7, least, True)
    assert whole(text, cuts, prompts=2).prompt is None


@pytest.mark.parametrize(
    "text",
    [
        document(("a", "length"), ("b", "length")),
        document(("a", "length"), timings=TIMINGS),
        document(('"finish_reason":"length" "timings"', "length"), timings=TIMINGS),
    ],
    ids=["of all", "one answer", "words of the answer"],
)
def test_what_says_the_count_of_all_is_believed(text: bytes) -> None:
    counts = whole(text, [], prompts=1)
    assert (counts.prompt, counts.completion, counts.estimated) == (7, 4, False)
