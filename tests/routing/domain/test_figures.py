"""Engines' own figures, read from pages as engines write them: both spellings, all ranks, absent is not zero."""

from __future__ import annotations

import time

import pytest

from routing.domain.figures import MISSED, Figures, Scraped, Span, figures_in, heard
from tests.fakes.pages import LLAMA, VLLM


def test_llama_cpp_says_what_it_has_and_nothing_else_is_known() -> None:
    assert figures_in(LLAMA) == Figures(running=3, waiting=2, prompt_tokens=41, generated_tokens=12, steps=15)


def test_the_ranks_of_vllm_are_taken_together() -> None:
    assert figures_in(VLLM) == Figures(
        running=5, waiting=2, kv_used=0.75, prompt_tokens=111, generated_tokens=150, steps=9, prefix_queries=100,
        prefix_hits=60, preemptions=1, first_token=Span(seconds=2.0, count=4), token=Span(seconds=2.0, count=100),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        (b"vllm:gpu_cache_usage_perc", b"vllm:kv_cache_usage_perc", 0.5),
        (b"vllm:prompt_tokens", b"vllm:prompt_tokens_total", 7),
        (b"vllm:generation_tokens", b"vllm:generation_tokens_total", 7),
        (b"vllm:gpu_prefix_cache_queries", b"vllm:prefix_cache_queries_total", 7),
        (b"vllm:gpu_prefix_cache_hits_total", b"vllm:prefix_cache_hits", 7),
        (b"vllm:num_preemptions", b"vllm:num_preemptions_total", 7),
    ],
)
def test_a_renamed_figure_is_found_by_either_name_and_counted_once_where_both_are_shown(
    old: bytes, new: bytes, value: float
) -> None:
    line = b'{model_name="m"} %g\n' % value
    by_old = figures_in(old + line)
    assert by_old is not None
    assert value in (getattr(by_old, name) for name in Figures.__slots__)
    assert by_old == figures_in(new + line) == figures_in(old + line + new + line)


def test_a_renamed_histogram_too() -> None:
    pages = [
        b'vllm:%b_sum{engine="0"} 2.0\nvllm:%b_count{engine="0"} 8.0\n' % (name, name)
        for name in (b"time_per_output_token_seconds", b"inter_token_latency_seconds")
    ]
    assert figures_in(pages[0]) == figures_in(pages[1]) == figures_in(b"".join(pages))
    assert figures_in(pages[0]) == Figures(token=Span(seconds=2.0, count=8.0))


@pytest.mark.parametrize(
    "page",
    [
        b"", b"up 1\n", b"llamacpp:requests_processing 1e999\n", b"llamacpp:requests_processing 1.2.3\n",
        b"vllm:num_requests_running NaN\n", b"vllm:num_requests_running +Inf\n", b"vllm:num_requests_running -1\n",
        b"vllm:num_requests_running 1e300\n", b'vllm:num_requests_running{engine="0} 1\n', b"x" * 100, b"\x00\xff\n",
        b'vllm:e2e_request_latency_seconds_bucket{le="1.0"} 4\n', b"<html>vllm:num_requests_running 1</html>",
    ],
)  # fmt: skip
def test_what_is_no_figure_is_not_known(page: bytes) -> None:
    assert figures_in(page) is None


def test_absent_is_not_zero() -> None:
    found = figures_in(b"vllm:num_requests_running 0.0\nvllm:num_requests_waiting NaN\n")
    assert found == Figures(running=0)
    assert found.requests == 0
    nothing = figures_in(b"vllm:num_preemptions_total 0\n")
    assert nothing is not None
    assert nothing.requests is None


def test_labels_may_hold_anything() -> None:
    page = b'vllm:num_requests_running{engine="0",model_name="a}b \\" {c"} 2.0 1756000000000\r\n'
    assert figures_in(page) == Figures(running=2)


@pytest.mark.parametrize(
    "line", [b"llamacpp:requests_processing{\n", b'vllm:num_requests_running{a="', b"vllm:" + b"a" * 60]
)
def test_pages_without_an_end_take_time_in_proportion_to_their_length(line: bytes) -> None:
    def seconds(lines: int) -> float:
        began = time.process_time()
        assert figures_in(line * lines) is None
        return time.process_time() - began

    assert seconds(32_000) < 16 * 5 * max(seconds(2_000), 0.001)


# --- from one scrape to the next ---


def test_figures_are_stale_after_three_missed_scrapes_and_back_with_the_next() -> None:
    found = figures_in(LLAMA)
    known = heard(Scraped(), found, 10.0)
    for missed in range(1, MISSED):
        known = heard(known, None, 10.0 + missed)
        assert (known.figures, known.missed) == (found, missed)
    known = heard(known, None, 14.0)
    assert known.figures is None
    assert known.still(15.0) == 5.0  # that nothing was heard does not make it younger
    assert heard(known, found, 16.0).figures == found
    assert heard(known, found, 16.0).still(16.0) == 6.0


def test_an_engine_is_still_from_its_last_work_on() -> None:
    before = heard(Scraped(), Figures(running=1, steps=5, generated_tokens=3), 10.0)
    assert before.still(12.0) == 2.0
    same = heard(before, Figures(running=4, waiting=9, steps=5, generated_tokens=3), 12.0)
    assert same.still(13.0) == 3.0  # more requests are no work
    moved = heard(same, Figures(running=1, steps=6, generated_tokens=3), 14.0)
    assert moved.still(14.5) == 0.5
    assert heard(moved, Figures(running=0, steps=0, generated_tokens=0), 16.0).still(16.0) == 0.0  # it began anew


def test_an_engine_that_counts_no_work_is_never_known_to_be_still() -> None:
    assert heard(Scraped(), Figures(running=1), 10.0).still(99.0) is None
    assert Scraped().still(99.0) is None
