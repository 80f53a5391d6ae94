"""What projectors take, by their headers. Against the engine's own figures: tests/e2e/test_memory.py."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.domain.gguf import Header, read_header
from catalog.domain.projectors import is_projector, takes
from tests.tiny import tiny_gguf
from tests.tiny_vision import TINY, projector_bytes


class Bytes:
    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    def read(self, offset: int, count: int) -> bytes:
        return self.data[offset : offset + count]


def header(size: int = 400, **pairs: Any) -> Header:
    named = {f"clip.{key.replace('__', '.')}": value for key, value in pairs.items()}
    return Header(
        version=3, pairs={"general.architecture": "clip", **named}, tensors=(), alignment=32, data_offset=0, data_size=0,
        file_size=size,
    )  # fmt: skip


LARGE = {"vision__embedding_length": 1024, "vision__feed_forward_length": 4096, "vision__patch_size": 14}


def test_a_real_one_is_read() -> None:
    found = read_header(Bytes(projector_bytes()))
    assert is_projector(found)
    assert not is_projector(read_header(Bytes(tiny_gguf().read_bytes())))
    told = takes(found)
    assert told.size == len(projector_bytes())
    assert told.compute == TINY.tokens * (3 * TINY.patch**2 + TINY.feed_forward + 3 * TINY.width) * 4


@pytest.mark.parametrize(
    ("pairs", "positions"),
    [
        ({"vision__image_size": 336}, 576),
        ({"vision__image_size": 336, "projector_type": "qwen2vl_merger"}, 4096 * 4),
        ({"vision__image_size": 336, "projector_type": "pixtral", "vision__spatial_merge_size": 1}, 1024),
        ({"vision__image_size": 336, "vision__image_max_pixels": 14 * 14 * 5000}, 5000),
        ({"vision__image_size": 1 << 40}, 1 << 16),
    ],
)
def test_the_largest_picture_counts(pairs: dict[str, Any], positions: int) -> None:
    assert takes(header(**LARGE, **pairs)).compute == positions * (588 + 4096 + 3072) * 4


@pytest.mark.parametrize(
    "pairs",
    [{}, {"vision__embedding_length": True}, {"vision__embedding_length": "x"}, {"vision__embedding_length": -1}],
)
def test_what_tells_no_shape_is_guessed(pairs: dict[str, Any]) -> None:
    assert takes(header(**pairs)).compute == 100


def test_what_hears_counts_half_a_minute() -> None:
    found = takes(header(audio__embedding_length=1280, audio__feed_forward_length=5120))
    assert found.compute == 1500 * (3 + 5120 + 3 * 1280) * 4


NAMES = (
    "embedding_length",
    "feed_forward_length",
    "patch_size",
    "image_size",
    "image_max_pixels",
    "spatial_merge_size",
)
ODD = st.one_of(st.integers(-(1 << 63), 1 << 63), st.floats(), st.booleans(), st.text(max_size=5), st.none())


@given(st.dictionaries(st.sampled_from([f"vision__{name}" for name in NAMES]) | st.just("projector_type"), ODD))
def test_no_header_makes_it_fall_or_takes_more_than_is_believed(pairs: dict[str, Any]) -> None:
    assert 0 <= takes(header(**pairs)).compute < 1 << 42
