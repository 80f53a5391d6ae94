"""Limits: windows, shares, what a request is reckoned to take, and what a client is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain import leasing
from llmgw_site.lib.errors import HTTP_STATUS
from routing.domain import limits
from routing.domain.leases import PerMinute
from routing.domain.limits import (
    Standing,
    Window,
    fits_alone,
    headers,
    overshoot,
    owed,
    reached,
    reckon,
    room_in,
    share,
    span_text,
)
from routing.domain.snapshot import LimitEntry
from routing.domain.tenancy import Bound

PROJECT = Bound(scope_id="proj_1", kind="project", name="search", limit=LimitEntry())
KEY = Bound(scope_id="key_1", kind="key", name="ci", limit=LimitEntry())


def test_a_minute_slides_by_whole_seconds() -> None:
    window = Window()
    window.take(10.2, 3)
    window.take(10.9, 1)
    window.take(40.0, 2)
    assert window.total(70.9) == 6
    assert window.slots(70.0) == ((1.0, 4), (31.0, 2))
    assert window.reset(70.0) == 31.0
    assert window.total(71.0) == 2
    assert window.total(101.0) == 0
    assert window.reset(101.0) == 0.0


def test_what_is_given_back_leaves_the_second_that_it_was_taken_in() -> None:
    window = Window()
    window.take(10.2, 5)
    window.take(12.0, 5)
    window.give_back(10.9, 4)
    assert window.slots(12.0) == ((59.0, 1), (61.0, 5))
    window.give_back(11.0, 1)  # nothing was taken then
    assert window.total(12.0) == 6
    window.give_back(12.0, 99)
    assert window.total(12.0) == 1


@pytest.mark.parametrize(
    ("free", "amount", "expected"), [(5, 5, 0.0), (1, 3, 2.0), (0, 6, 9.0), (0, 7, None), (-3, 1, 9.0), (-9, 1, None)]
)
def test_when_there_is_room(free: int, amount: int, expected: float | None) -> None:
    assert room_in(((2.0, 3), (9.0, 3)), free, amount) == expected


@given(
    takes=st.lists(st.tuples(st.floats(0.0, 5.0), st.integers(1, 9)), max_size=40),
    limit=st.integers(1, 30),
    asked=st.integers(1, 40),
)
def test_no_minute_has_more_than_the_limit_and_the_wait_is_right_to_the_second(
    takes: list[tuple[float, int]], limit: int, asked: int
) -> None:
    window, now, taken = Window(), 0.0, []
    for pause, amount in takes:
        now += pause
        if window.total(now) + amount <= limit:
            window.take(now, amount)
            taken.append((now, amount))
        assert sum(n for at, n in taken if now - 60 < at <= now) <= limit
    wait = room_in(window.slots(now), limit - window.total(now), asked)
    if asked > limit:
        assert wait is None
    else:
        assert wait is not None
        assert window.total(now + wait) + asked <= limit
        if wait > 1:  # a second less, and in a true minute it would not have been so either
            then = now + wait - 1.001
            assert sum(n for at, n in taken if then - 60 < at) + asked > limit


@given(st.integers(1, 10**9), st.integers(1, 1000))
def test_shares_are_at_most_the_limit_together_unless_there_are_more_edges_than_it_is_high(
    limit: int, edges: int
) -> None:
    assert share(limit, edges) >= 1
    assert share(limit, edges) * edges <= max(limit, edges)
    assert overshoot(limit, edges) == (0 if edges == 1 else share(limit, edges) * edges)


def test_a_limit_of_nothing_lets_nothing_in() -> None:
    assert share(0, 3) == overshoot(0, 3) == 0
    assert not fits_alone(0, 3, 0, 1)
    assert owed(0, 3, 0, 0) == 0


@pytest.mark.parametrize(
    ("edges", "taken", "amount", "fits", "debt"),
    [
        (3, 0, 33, True, 0),
        (3, 1, 33, False, 0),
        (3, 33, 0, True, 0),
        (3, 0, 34, True, 34 * 60 / 33),  # more than a share, which would never pass
        (3, 33, 34, True, 67 * 60 / 33),
        (3, 33, 67, True, 100 * 60 / 33),
        (3, 34, 67, False, 101 * 60 / 33),  # more than the limit
        (3, 0, 101, False, 101 * 60 / 33),
        (1, 0, 100, True, 0),
        (1, 1, 100, False, 0),
        (200, 0, 1, True, 0),
        (200, 0, 2, True, 120),
    ],
)
def test_what_an_edge_lets_in_by_itself_of_a_hundred(
    edges: int, taken: int, amount: int, fits: bool, debt: float
) -> None:
    assert fits_alone(100, edges, taken, amount) == fits
    assert owed(100, edges, taken, amount) == pytest.approx(debt)


@pytest.mark.parametrize(
    ("edges", "largest", "expected"),
    [(1, 100, 0), (3, 0, 99), (3, 33, 99), (3, 34, 201), (3, 67, 300), (3, 100, 300), (200, 2, 600)],
)
def test_how_far_large_requests_can_go_over_a_hundred(edges: int, largest: int, expected: int) -> None:
    assert overshoot(100, edges, largest) == expected


@pytest.mark.parametrize(
    ("endpoint", "longest", "answers", "context", "expected"),
    [
        ("chat.completions", 50, 1, None, 151),
        ("chat.completions", 50, 3, None, 251),
        ("chat.completions", None, 2, None, 101 + 2 * limits.OUTPUT),
        ("chat.completions", 50, 1, 64, 114),
        ("chat.completions", 10**9, 2, 64, 192),
        ("chat.completions", None, 1, 64, 128),
        ("audio.transcriptions", None, 1, None, limits.PICTURE),
        ("images.edits", None, 1, 64, 64),
        ("responses", 0, 1, None, 101),
        ("embeddings", None, 1, None, 101),
        ("rerank", 7, 1, None, 101),
        ("tokenize", None, 1, None, 0),
        ("messages.count_tokens", None, 1, None, 0),
    ],
)
def test_what_a_request_is_reckoned_to_take(
    endpoint: str, longest: int | None, answers: int, context: int | None, expected: int
) -> None:
    assert reckon(endpoint, b" " * 400, longest=longest, answers=answers, context=context) == expected


def test_a_picture_is_not_reckoned_by_its_bytes() -> None:
    body = b'{"messages":[' + b" " * 4000 + b'"data:image/png;base64,' + b"iVBORw0K" * 50_000 + b'"]}'
    assert reckon("embeddings", body, longest=None, answers=1, context=None) < 2100
    for text in (b"words and words " * 9000, "文".encode() * 9000):  # what has spaces, or is no ASCII, is text
        told = reckon("embeddings", b'{"input":"' + text + b'"}', longest=None, answers=1, context=None)
        assert told > len(text) // 4


@pytest.mark.parametrize(
    ("endpoint", "body", "expected"),
    [
        ("chat.completions", {}, (None, 1)),
        ("chat.completions", {"max_tokens": 5, "max_completion_tokens": 9, "n": 2}, (9, 2)),
        ("chat.completions", {"max_tokens": -1, "n": None}, (None, 1)),
        ("chat.completions", {"max_tokens": 1, "n_predict": 900, "n": 1, "n_cmpl": 3}, (900, 3)),
        ("chat.completions", {"max_tokens": 7, "n_predict": -1, "n_cmpl": "3"}, (7, 1)),
        ("responses", {"max_output_tokens": 0}, (0, 1)),
        ("responses", {"max_output_tokens": "many"}, (None, 1)),
        ("completions", {"prompt": ["a", "b"], "n": 2, "max_tokens": 1}, (1, 4)),
        ("completions", {"prompt": [1, 2, 3]}, (None, 1)),
        ("completions", {"prompt": [[1], [2]]}, (None, 2)),
    ],
)
def test_how_long_answers_may_be_and_how_many(
    endpoint: str, body: dict[str, object], expected: tuple[int | None, int]
) -> None:
    assert limits.lengths(endpoint, body) == expected


def test_a_refusal_names_the_limit_where_it_is_set_and_when_it_passes() -> None:
    told = reached(PROJECT, leasing.TOKENS, 10_000, amount=800, room=300, wait=12.2)
    assert told.code == "tokens_limit_reached"
    assert HTTP_STATUS[told.kind] == 429
    assert told.message == (
        "The limit of 10000 tokens a minute of the project 'search' is reached; this request needs 800 and 300 are left: "
        "try again in 13 s."
    )
    assert told.retry_after == 12.2
    assert told.extra["limit"] == {
        "name": "tokens_per_minute",
        "value": 10_000,
        "set_at": "project",
        "id": "proj_1",
        "of": "search",
    }
    told = reached(KEY, leasing.REQUESTS, 60, amount=1, room=0, wait=1.0)
    assert (told.code, told.message) == (
        "requests_limit_reached",
        "The limit of 60 requests a minute of this key ('ci') is reached: try again in 1 s.",
    )
    told = reached(PROJECT, leasing.PARALLEL, 2, amount=1, room=0, wait=None)
    assert (told.code, told.retry_after) == ("parallel_limit_reached", limits.LATER)
    assert "2 requests at a time of the project 'search'" in told.message
    told = limits.too_much(KEY, leasing.TOKENS, 1000, 5000)
    assert (told.code, told.retry_after) == ("request_over_limit", None)
    for kind in leasing.KINDS:
        told = limits.too_much(KEY, kind, 0, 1)
        assert (told.code, told.retry_after) == ("request_over_limit", None)
        assert told.message.startswith("The limit of 0 ")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-1, "0s"),
        (0.0196, "20ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (59.9994, "1m0s"),
        (60, "1m0s"),
        (366.5, "6m6.5s"),
    ],
)
def test_spans_as_openai_writes_them(seconds: float, text: str) -> None:
    assert span_text(seconds) == text


def test_headers_tell_of_the_limit_with_the_least_left() -> None:
    wide, narrow = Standing(1000, 40, 3.0), Standing(50, 10, 61.0)
    assert limits.tightest([wide, narrow]) is narrow
    assert limits.tightest([]) is None
    assert headers(narrow, None) == [
        (b"x-ratelimit-limit-requests", b"50"),
        (b"x-ratelimit-remaining-requests", b"10"),
        (b"x-ratelimit-reset-requests", b"1m1s"),
    ]
    assert dict(headers(None, Standing(7, -2, 0.0)))[b"x-ratelimit-remaining-tokens"] == b"0"


def test_a_counter_is_not_forgotten_while_a_request_that_counts_there_goes_on() -> None:
    counter = PerMinute("proj_1", leasing.TOKENS)
    counter.limit = 1000
    counter.take(0.0, 100, counted=False)
    assert not counter.idle(500.0)  # its minute is over, its end is not
    counter.settle(0.0, 500.0, reserved=100, used=700, counted=False)
    assert counter.window.total(501.0) == 600  # what it had more counts from its end on
    assert not counter.idle(501.0)
    assert counter.idle(600.0)
