"""The event reader gives the same events for every way of cutting the bytes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.domain.sse import Reader, data_of, error_event

END = st.sampled_from([b"\n", b"\r\n", b"\r"])
LINES = st.sampled_from(
    [b"data: one", b"data:two", b"data: {\"a\":\"\\n\"}", b": comment", b"event: x", b"id: 1", b"data", b"data:  two spaces"]
)  # fmt: skip


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    out = b""
    for _ in range(draw(st.integers(0, 5))):
        end = draw(END)
        for line in draw(st.lists(LINES, min_size=1, max_size=3)):
            out += line + end
        out += end
    return out + draw(st.sampled_from([b"", b"data: rest", b"data: rest\n", b":"]))


def datas(pieces: list[bytes]) -> list[bytes]:
    reader = Reader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    assert b"".join(event.raw for event in events) + reader.held == b"".join(pieces)
    return [event.data for event in events if event.data is not None]


@given(streams(), st.data())
def test_any_split_gives_the_same_events(stream: bytes, data: st.DataObject) -> None:
    whole = datas([stream])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    edges = [0, *cuts, len(stream)]
    assert datas([stream[a:b] for a, b in itertools.pairwise(edges)]) == whole
    assert datas([stream[n : n + 1] for n in range(len(stream))]) == whole


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        (b"data: x\n\n", b"x"),
        (b"data:x\n\n", b"x"),
        (b"data:  x\n\n", b" x"),
        (b"data: x\r\n\r\n", b"x"),
        (b"data: x\rdata: y\r\r", b"x\ny"),
        (b"data: x\ndata: y\n\n", b"x\ny"),
        (b"data\n\n", b""),
        (b": ping\n\n", None),
        (b"event: e\nid: 1\n\n", None),
        (b"event: e\ndata: x\n\n", b"x"),
        (b"\n\n", None),
    ],
)
def test_data_of_one_event(raw: bytes, data: bytes | None) -> None:
    assert data_of(raw) == data


def test_an_error_is_one_line_of_data_however_its_json_is_laid_out() -> None:
    assert error_event(b'{\r\n  "error": {\n "code": "mine"}\r}') == b'data: {  "error": { "code": "mine"}}\n\n'
