"""The bounded GGUF reader: files that the reference writer makes, and files that somebody made to hurt."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf as reference
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catalog.domain import gguf
from catalog.domain.gguf import Array, BadGguf, Header, read_header
from tests.tiny import tiny_gguf

U32, U64 = "<I", "<Q"


@dataclass
class Bytes:
    """A source in memory; `size` may claim more than there is. Counts what was asked for."""

    data: bytes
    size: int = -1
    asked: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.size = len(self.data) if self.size < 0 else self.size

    def read(self, offset: int, count: int) -> bytes:
        self.asked.append((offset, count))
        return self.data[offset : offset + count]


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack(U64, len(raw)) + raw


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack(U32, kind) + value


def array(kind: int, count: int, body: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + body


def tensor(name: str = "t", dims: tuple[int, ...] = (8,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(U32, len(dims)) + struct.pack(f"<{len(dims)}QIQ", *dims, kind, offset)


def file(
    *pairs: bytes,
    tensors: tuple[bytes, ...] = (),
    data: int = 0,
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:
    tensor_count, pair_count = counts or (len(tensors), len(pairs))
    head = b"GGUF" + struct.pack("<IQQ", version, tensor_count, pair_count) + b"".join(pairs) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32) + b"\0" * data


def code(data: bytes, **more: Any) -> str:
    with pytest.raises(BadGguf) as bad:
        read_header(Bytes(data, **more))
    assert bad.value.message == str(bad.value)
    return bad.value.code


def test_it_reads_what_the_reference_writer_wrote() -> None:
    path = tiny_gguf()
    header = read_header(Bytes(path.read_bytes()))
    known = reference.GGUFReader(path)
    assert {t.name for t in header.tensors} == {t.name for t in known.tensors}
    assert header.sizes == {t.name: t.n_bytes for t in known.tensors}
    assert {t.name: t.elements for t in header.tensors} == {t.name: int(t.n_elements) for t in known.tensors}
    assert header.data_offset == known.data_offset
    assert header.data_offset + header.data_size == path.stat().st_size
    assert header.pairs["general.name"] == "tiny"
    tokens = header.pairs["tokenizer.ggml.tokens"]
    assert isinstance(tokens, Array)
    assert tokens.count == len(known.fields["tokenizer.ggml.tokens"].data)


def test_every_value_type_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "all.gguf"
    writer = reference.GGUFWriter(path, "llama")
    values: dict[str, Any] = {"uint8": 200, "int8": -3, "uint16": 60_000, "int16": -30_000, "uint32": 1 << 31,
                              "int32": -5, "uint64": 1 << 60, "int64": -(1 << 60), "float32": 0.5, "float64": 0.25,
                              "bool": True, "string": "caf\u00e9"}  # fmt: skip
    for kind, value in values.items():
        getattr(writer, f"add_{kind}")(f"x.{kind}", value)
    writer.add_array("x.list", [1, 2, 3])
    writer.add_array("x.texts", ["a", "b"])
    writer.add_tensor("w", np.zeros((2, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_header(Bytes(path.read_bytes()))
    assert {kind: header.pairs[f"x.{kind}"] for kind in values} == values
    assert header.pairs["x.list"] == (1, 2, 3)
    assert header.pairs["x.texts"] == Array(8, 2)
    assert header.sizes == {"w": 256}


@pytest.mark.parametrize("kind", sorted(gguf.GGML_TYPES))
def test_tensor_sizes_agree_with_the_reference(kind: int) -> None:
    ours = gguf.GGML_TYPES[kind]
    try:
        theirs = reference.GGMLQuantizationType(kind)
    except ValueError:
        pytest.skip("newer than the reference package")
    size = reference.GGML_QUANT_SIZES[theirs]
    if ours.name == "Q8_1":
        size = (32, 36)  # ggml keeps two halves since 2023, the package still counts two floats
    assert (ours.name, (ours.block, ours.bytes)) == (theirs.name, size)


@pytest.mark.parametrize(
    "data", [b"", b"G", b"GGU", b"GGML" + b"\0" * 60, b"\x7fELF" + b"\0" * 60, b"PK\3\4" + b"\0" * 60]
)
def test_another_kind_of_file_is_no_gguf(data: bytes) -> None:
    assert code(data) == "gguf_not_gguf"


@pytest.mark.parametrize("version", [0, 1, 4, 0x0300_0000, 0xFFFF_FFFF])
def test_versions_that_nobody_writes_today_are_refused(version: int) -> None:
    assert code(file(version=version)) == "gguf_bad_version"


def test_version_two_is_read() -> None:
    assert read_header(Bytes(file(version=2))).version == 2


def test_every_cut_of_a_real_file_is_refused() -> None:
    whole = tiny_gguf().read_bytes()
    header = read_header(Bytes(whole))
    cuts = [*range(0, header.data_offset, 37), *range(header.data_offset, len(whole), 9973), len(whole) - 1]
    assert {code(whole[:cut]) for cut in cuts} == {"gguf_not_gguf", "gguf_truncated"}


def test_a_file_that_shrinks_while_it_is_read_is_refused() -> None:
    whole = tiny_gguf().read_bytes()
    assert code(whole[:1000], size=len(whole)) == "gguf_truncated"


ABSURD = {
    "tensors": (file(counts=(1 << 63, 0)), "gguf_too_large"),
    "tensors that could not fit": (file(counts=(90_000, 0)), "gguf_truncated"),
    "pairs": (file(counts=(0, (1 << 64) - 1)), "gguf_too_large"),
    "pairs that could not fit": (file(counts=(0, 90_000)), "gguf_truncated"),
    "key length": (file(struct.pack(U64, 1 << 62) + b"\0" * 32, counts=(0, 1)), "gguf_too_large"),
    "string length": (file(pair("k", 8, struct.pack(U64, 1 << 40))), "gguf_too_large"),
    "string over the end": (file(pair("k", 8, struct.pack(U64, 1 << 20))), "gguf_truncated"),
    "array": (file(pair("k", 9, array(4, 1 << 60))), "gguf_too_large"),
    "array over the end": (file(pair("k", 9, array(4, 1_000_000))), "gguf_truncated"),
    "array of strings over the end": (file(pair("k", 9, array(8, 1_000_000))), "gguf_truncated"),
    "nested too deep": (file(pair("k", 9, array(9, 1, array(9, 1, array(4, 0))))), "gguf_bad_value"),
    "array of nothing known": (file(pair("k", 9, array(99, 1))), "gguf_bad_value"),
    "unknown type": (file(pair("k", 13, b"\0" * 8)), "gguf_bad_value"),
    "bool of two": (file(pair("k", 7, b"\2")), "gguf_bad_value"),
    "key no utf-8": (file(text(b"\xff") + struct.pack("<IB", 0, 1), counts=(0, 1)), "gguf_bad_value"),
    "value no utf-8": (file(pair("k", 8, text(b"\xff"))), "gguf_bad_value"),
    "key twice": (file(pair("k", 0, b"\1"), pair("k", 0, b"\1")), "gguf_bad_value"),
    "alignment 0": (file(pair("general.alignment", 4, struct.pack(U32, 0))), "gguf_bad_value"),
    "alignment 24": (file(pair("general.alignment", 4, struct.pack(U32, 24))), "gguf_bad_value"),
    "alignment huge": (file(pair("general.alignment", 4, struct.pack(U32, 1 << 31))), "gguf_bad_value"),
    "alignment text": (file(pair("general.alignment", 8, text("32"))), "gguf_bad_value"),
    "name too long": (file(tensors=(tensor("x" * 65),), data=64), "gguf_too_large"),
    "dimensions": (file(tensors=(tensor(dims=(1,) * 5),), data=64), "gguf_too_large"),
    "dimension zero": (file(tensors=(tensor(dims=(8, 0)),), data=64), "gguf_bad_value"),
    "product overflows": (file(tensors=(tensor(dims=(1 << 40, 1 << 40)),), data=64), "gguf_too_large"),
    "rows no whole blocks": (file(tensors=(tensor(dims=(33,), kind=2),), data=64), "gguf_bad_value"),
    "offset off alignment": (file(tensors=(tensor(offset=8),), data=64), "gguf_bad_value"),
    "offset beyond the end": (file(tensors=(tensor(offset=1 << 40),), data=64), "gguf_truncated"),
    "overlap": (file(tensors=(tensor("a"), tensor("b")), data=64), "gguf_bad_value"),
    "tensor twice": (file(tensors=(tensor("a"), tensor("a", offset=32)), data=64), "gguf_bad_value"),
    "data missing": (file(tensors=(tensor(),), data=31), "gguf_truncated"),
}  # fmt: skip


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_figures_are_refused_for_what_they_are(name: str) -> None:
    data, expected = ABSURD[name]
    assert code(data) == expected


def test_absurd_figures_cost_no_memory() -> None:
    for data, _ in ABSURD.values():
        source = Bytes(data, size=1 << 45)  # a file that claims to be large enough for anything
        tracemalloc.start()
        try:
            outcome(source)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 1 << 20
        assert all(count <= gguf.MAX_STRING for _, count in source.asked)


def test_a_header_over_its_bound_is_refused_however_large_the_file() -> None:
    data = file(*(pair(f"k{n}", 8, struct.pack(U64, gguf.MAX_STRING)) + b"\0" * gguf.MAX_STRING for n in range(5)))
    assert code(data) == "gguf_too_large"


def test_a_type_of_tomorrow_takes_the_room_up_to_its_neighbour() -> None:
    data = file(tensors=(tensor("a", kind=777), tensor("b", offset=64), tensor("c", kind=778, offset=96)), data=160)
    assert read_header(Bytes(data)).sizes == {"a": 64, "b": 32, "c": 64}


def test_long_arrays_and_texts_are_skipped_not_kept() -> None:
    texts = b"".join(text(f"token {n}") for n in range(50_000))
    data = file(
        pair("tokens", 9, array(8, 50_000, texts)),
        pair("scores", 9, array(6, 50_000, b"\0" * 200_000)),
        pair("long", 8, text("x" * (gguf.KEPT_STRING + 1))),
        pair("short", 9, array(4, 2, struct.pack("<II", 7, 8))),
    )
    assert dict(read_header(Bytes(data)).pairs) == {
        "tokens": Array(8, 50_000),
        "scores": Array(6, 50_000),
        "long": None,
        "short": (7, 8),
    }


def outcome(source: Bytes) -> Header | str:
    """A header, or a code: nothing else may come out, whatever the bytes."""
    try:
        return read_header(source)
    except BadGguf as bad:
        return bad.code


CODES = {"gguf_not_gguf", "gguf_bad_version", "gguf_truncated", "gguf_too_large", "gguf_bad_value"}
SEEDS = [data for data, _ in ABSURD.values() if len(data) < 4096]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """The head of a real file or of an absurd one, with bytes, numbers and cuts changed."""
    real = tiny_gguf().read_bytes()
    data = bytearray(draw(st.sampled_from([real[:16_000], *SEEDS])))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, max(0, len(data) - 8)))
        data[at : at + 8] = draw(
            st.one_of(
                st.binary(min_size=1, max_size=8),
                st.sampled_from([0, 1, 8, 9, 31, 255, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 63]).map(
                    lambda number: struct.pack(U64, number)
                ),
            )
        )
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@given(data=mutated(), extra=st.sampled_from([0, 1 << 20, 1 << 45]))
@example(data=b"", extra=1 << 45)
def test_whatever_the_bytes_there_is_a_header_or_a_code(data: bytes, extra: int) -> None:
    result = outcome(Bytes(data, size=len(data) + extra))
    assert isinstance(result, Header) or result in CODES


@given(data=st.binary(max_size=300))
def test_random_bytes_after_the_magic_end_in_a_code(data: bytes) -> None:
    result = outcome(Bytes(b"GGUF\3\0\0\0" + data))
    assert isinstance(result, Header) or result in CODES


@pytest.mark.prove
@settings(max_examples=10_000)
@given(data=mutated(), extra=st.sampled_from([0, 1 << 20, 1 << 45]))
def test_prove_that_no_mutation_escapes(data: bytes, extra: int) -> None:
    result = outcome(Bytes(data, size=len(data) + extra))
    assert isinstance(result, Header) or result in CODES
