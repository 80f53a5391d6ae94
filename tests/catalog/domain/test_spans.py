"""What is left to fetch, as spans that connections share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catalog.domain.spans import RUN, SEGMENT, Span, missing, segments

S = SEGMENT


def test_a_new_file_is_divided_over_the_connections() -> None:
    assert missing([False] * 8, 8 * S - 5, 4) == [
        Span(0, 2 * S),
        Span(2 * S, 4 * S),
        Span(4 * S, 6 * S),
        Span(6 * S, 8 * S - 5),
    ]


def test_only_what_is_missing_is_fetched() -> None:
    assert missing([True, False, True, True, False], 5 * S - 1, 1) == [Span(S, 2 * S), Span(4 * S, 5 * S - 1)]
    assert missing([True] * 3, 3 * S, 4) == []
    assert missing([], 0, 4) == []


def test_a_small_file_is_one_span() -> None:
    assert missing([False], 10, 4) == [Span(0, 10)]


@given(done=st.lists(st.booleans(), max_size=200), short=st.integers(0, SEGMENT - 1), connections=st.integers(1, 16))
def test_spans_cover_exactly_what_is_missing(done: list[bool], short: int, connections: int) -> None:
    size = max(0, len(done) * S - short)
    assert segments(size) == len(done)
    spans = missing(done, size, connections)
    covered = [number for span in spans for number in range(span.start // S, segments(span.end))]
    assert covered == [number for number, item in enumerate(done) if not item]
    assert all(0 < span.end - span.start <= RUN * S for span in spans)
    assert all(span.start % S == 0 and (span.end % S == 0 or span.end == size) for span in spans)
    if covered:
        assert len(spans) >= min(connections, len(covered))
