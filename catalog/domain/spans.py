"""Which bytes of a file are still to be fetched, and who fetches which. Pure: offsets in, offsets out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SEGMENT = 8 << 20
"""Bytes that are remembered together: at most so many are fetched twice by each connection when a fetch was killed."""
RUN = 16
"""Segments that one request asks for at most, so that the connections stay busy to the end."""


class Span(NamedTuple):
    """Bytes from `start` to before `end`; both on a segment's border, or the file's end."""

    start: int
    end: int


def segments(size: int) -> int:
    """How many segments a file of `size` bytes has."""
    return -(-size // SEGMENT)


def missing(done: Sequence[bool], size: int, connections: int) -> list[Span]:
    """The bytes of segments that are not done, in order, cut so that every connection gets some and none gets more than RUN."""
    left = sum(not item for item in done)
    most = max(1, min(RUN, left // max(1, connections)))
    spans: list[Span] = []
    at = 0
    while at < len(done):
        if done[at]:
            at += 1
            continue
        stop = at
        while stop < len(done) and not done[stop] and stop - at < most:
            stop += 1
        spans.append(Span(at * SEGMENT, min(stop * SEGMENT, size)))
        at = stop
    return spans
