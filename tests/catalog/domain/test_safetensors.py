"""safetensors headers and indexes: good ones are read, whatever else comes is refused with a code."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.domain.safetensors import MAX_HEADER, BadSafetensors, read_header, read_index


class Bytes:
    def __init__(self, data: bytes, size: int | None = None) -> None:
        self.data, self.size = data, len(data) if size is None else size

    def read(self, offset: int, count: int) -> bytes:
        return self.data[offset : offset + count]


def made(header: Any, data: int = 0) -> Bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return Bytes(len(text).to_bytes(8, "little") + text + bytes(data))


def tensor(dtype: str, shape: list[Any], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


GOOD = {
    "__metadata__": {"format": "pt"},
    "b": tensor("F32", [4, 2], 8, 40),
    "a": tensor("BF16", [4], 0, 8),
    "scalar": tensor("F16", [], 40, 42),
    "empty": tensor("F16", [0, 3], 42, 42),
    "half": tensor("F4", [3, 2], 42, 45),
    "new": tensor("F5_UNHEARD_OF", [3], 45, 48),
}


def test_a_header_is_read() -> None:
    header = read_header(made(GOOD, 48))
    assert [(item.name, item.dtype, item.shape, item.size) for item in header.tensors] == [
        ("a", "BF16", (4,), 8),
        ("b", "F32", (4, 2), 32),
        ("scalar", "F16", (), 2),
        ("empty", "F16", (0, 3), 0),
        ("half", "F4", (3, 2), 3),
        ("new", "F5_UNHEARD_OF", (3,), 3),
    ]
    assert header.metadata == {"format": "pt"}
    assert header.file_size - header.data_offset == 48
    assert sum(item.elements for item in header.tensors) == 4 + 8 + 1 + 0 + 6 + 3


def test_a_padded_header_is_read() -> None:
    assert len(read_header(made(json.dumps(GOOD).encode() + b"   ", 48)).tensors) == 6


BAD = {
    "nothing": (Bytes(b""), "safetensors_not_safetensors"),
    "a page": (Bytes(b"<html>" * 10), "safetensors_not_safetensors"),
    "gguf": (Bytes(b"GGUF" + bytes(40)), "safetensors_not_safetensors"),
    "no object": (made(b"[1,2]"), "safetensors_not_safetensors"),
    "no json": (made(b"{nothing}"), "safetensors_not_safetensors"),
    "doubled": (made(b'{"a":1,"a":1}'), "safetensors_not_safetensors"),
    "deep": (made(b'{"a":' * 100_000), "safetensors_not_safetensors"),
    "a number of a million digits": (made(b'{"a":' + b"9" * 1_000_000 + b"}"), "safetensors_not_safetensors"),
    "no number": (made(b'{"a":NaN}'), "safetensors_not_safetensors"),
    "header past the file": (Bytes((100).to_bytes(8, "little") + b"{}"), "safetensors_truncated"),
    "huge": (Bytes((MAX_HEADER + 1).to_bytes(8, "little") + b"{"), "safetensors_too_large"),
    "too many": (made(b'{"a":[' + b"[]," * 500_000 + b"[]]}"), "safetensors_too_large"),
    "many items": (made(b'{"a":[' + b"0," * 900_000 + b"0]}"), "safetensors_too_large"),
    "dimensions": (made({"a": tensor("U8", [1] * 17, 0, 1)}, 1), "safetensors_too_large"),
    "cut": (made(GOOD, 47), "safetensors_truncated"),
    "too long": (made(GOOD, 49), "safetensors_bad_value"),
    "hole": (made({"a": tensor("U8", [1], 1, 2)}, 2), "safetensors_bad_value"),
    "overlap": (made({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}, 3), "safetensors_bad_value"),
    "size": (made({"a": tensor("F32", [2], 0, 4)}, 4), "safetensors_bad_value"),
    "backwards": (made({"a": tensor("X", [2], 4, 0)}, 4), "safetensors_bad_value"),
    "negative": (made({"a": tensor("U8", [-1], 0, 1)}, 1), "safetensors_bad_value"),
    "a truth": (made({"a": tensor("U8", [True], 0, 1)}, 1), "safetensors_bad_value"),
    "overflow": (made({"a": tensor("X", [2**40, 2**40], 0, 1)}, 1), "safetensors_bad_value"),
    "no tensor": (made({"a": 3}), "safetensors_bad_value"),
    "metadata": (made({"__metadata__": {"a": 3}}), "safetensors_bad_value"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_header_is_refused(name: str) -> None:
    source, code = BAD[name]
    with pytest.raises(BadSafetensors) as refused:
        read_header(source)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":[' + b"[]," * 390_000 + b"[]]}",
        b'{"a":[' + b'"ab",' * 790_000 + b"1]}",
        b'{"a":[' + b"1.5," * 790_000 + b"1]}",
        b'{"' + b'a":{"' * 390_000,
        b'{"' + "😀".encode() * 2_000_000 + b'":1}',
    ],
    ids=["lists", "texts", "numbers", "nested", "wide"],
)
def test_no_header_takes_much_memory(text: bytes) -> None:
    source = made(text)
    tracemalloc.start()
    try:
        with pytest.raises(BadSafetensors):
            read_header(source)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 64 << 20


def test_no_index_takes_much_memory() -> None:
    text = json.dumps(
        {"weight_map": {f"{'x' * 56}.{at}": "a-00001-of-00002.safetensors" for at in range(140_000)}}
    ).encode()
    assert 13 << 20 < len(text) < 14 << 20
    tracemalloc.start()
    try:
        assert read_index(text).tensors == 140_000
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 64 << 20


def index(weights: Any, **more: Any) -> bytes:
    return json.dumps({"metadata": {"total_size": 10}, "weight_map": weights, **more}).encode()


def test_an_index_names_its_files() -> None:
    found = read_index(index({"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors", "c": "model-00001-of-00002.safetensors"}))  # fmt: skip
    assert found.files == ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    assert (found.tensors, found.total_size) == (3, 10)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"{}", b"\xff", index({}), index([1]), index({"a": 1}), index({"a": "../x.safetensors"}),
        index({"a": "/etc/x.safetensors"}), index({"a": "sub/x.safetensors"}), index({"a": "x.py"}), index({"a": ["x"]}),
        index({"a": "x\n.safetensors"}), index({"a": ".x.safetensors"}),
    ],
)  # fmt: skip
def test_a_bad_index_is_refused(text: bytes) -> None:
    with pytest.raises(BadSafetensors) as refused:
        read_index(text)
    assert refused.value.code == "safetensors_bad_index"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
tensors = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "U8", "X"]) | json_values,
        "shape": st.lists(st.integers(-1, 4), max_size=3) | json_values,
        "data_offsets": st.lists(st.integers(-1, 40), max_size=3) | json_values,
    },
)


@given(
    header=st.dictionaries(st.sampled_from(["a", "b", "__metadata__"]), tensors | json_values), data=st.integers(0, 40)
)
def test_whatever_a_header_says_it_is_read_or_refused(header: Any, data: int) -> None:
    read_or_refused(made(header, data))


@given(data=st.binary(max_size=200), length=st.integers(0, 250))
def test_whatever_bytes_come_they_are_read_or_refused(data: bytes, length: int) -> None:
    read_or_refused(Bytes(length.to_bytes(8, "little") + data))


@given(at=st.integers(0, 400), value=st.integers(0, 255), cut=st.integers(0, 500))
def test_a_damaged_header_is_read_or_refused(at: int, value: int, cut: int) -> None:
    data = bytearray(made(GOOD, 48).data)
    data[at % len(data)] = value
    read_or_refused(Bytes(bytes(data[: max(0, len(data) - cut // 2)])))


def read_or_refused(source: Bytes) -> None:
    try:
        header = read_header(source)
    except BadSafetensors as refused:
        assert refused.code.startswith("safetensors_")  # noqa: PT017 - nothing else may be raised
    else:
        assert header.data_offset + sum(item.size for item in header.tensors) == source.size
