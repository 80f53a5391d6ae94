"""Compressed answers read plain, however they come in pieces; what is damaged, cut or doubled is an error, not half a text."""

from __future__ import annotations

import gzip
import zlib
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.gateway.inflate import PIECE, Inflated, coding_of
from routing.gateway.response import Broken, Response


class Pieces:
    """A Response that has these pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self.status = 200
        self.headers = [(b"content-encoding", b"gzip"), (b"content-length", b"9"), (b"content-type", b"text/plain")]
        self.aborted = False
        self._pieces = list(pieces)

    async def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def abort(self) -> None:
        self.aborted = True


def inflated(*pieces: bytes) -> tuple[Inflated, Pieces]:
    inner = Pieces(*pieces)
    return Inflated(cast("Response", inner)), inner


async def whole(answer: Inflated) -> bytes:
    out = []
    while piece := await answer.read():
        assert len(piece) <= PIECE
        out.append(piece)
    return b"".join(out)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [piece for piece in [*pieces, data] if piece]


@given(
    text=st.binary(max_size=3000),
    sizes=st.lists(st.integers(1, 40), max_size=20),
    pack=st.sampled_from([gzip.compress, zlib.compress]),
)
async def test_any_text_in_any_pieces_comes_out_as_it_was(text: bytes, sizes: list[int], pack: Any) -> None:
    answer, _ = inflated(*cut(pack(text), sizes))
    assert await whole(answer) == text


async def test_a_small_answer_that_becomes_huge_comes_in_bounded_pieces() -> None:
    answer, _ = inflated(gzip.compress(bytes(50 * PIECE)))
    assert len(await whole(answer)) == 50 * PIECE


async def test_length_and_coding_of_the_packed_body_are_gone() -> None:
    answer, _ = inflated()
    assert answer.headers == [(b"content-type", b"text/plain")]


@pytest.mark.parametrize(
    "pieces",
    [
        (b"this is plain",),
        (gzip.compress(b"text")[:-4],),
        (),
        (gzip.compress(b"one") + gzip.compress(b"two"),),
        (gzip.compress(b"one"), b"rest"),
    ],
)
async def test_what_is_not_whole_and_alone_is_broken(pieces: tuple[bytes, ...]) -> None:
    answer, _ = inflated(*pieces)
    with pytest.raises(Broken):
        await whole(answer)


async def test_pump_waits_where_the_sink_says_so() -> None:
    waits, got = [], []

    async def drain() -> None:
        waits.append(len(got))

    answer, _ = inflated(*cut(gzip.compress(b"abc" * 1000), [20]))
    await answer.pump(lambda piece: bool(got.append(piece)), drain)
    assert b"".join(got) == b"abc" * 1000
    assert len(waits) == len(got)


@pytest.mark.parametrize(
    ("headers", "coding"),
    [([], b""), ([(b"content-encoding", b" GZip ")], b"gzip"), ([(b"content-encoding", b"identity")], b"")],
)
def test_the_coding_of_an_answer(headers: list[tuple[bytes, bytes]], coding: bytes) -> None:
    assert coding_of(headers) == coding
