"""A bounded reader of GGUF headers. Pure: bytes come from a `Source`, nothing is opened here.

Layout (little-endian, versions 2 and 3): magic, version u32, tensor count u64, pair count u64; pairs of key, type, value;
tensor infos of name, dimensions, type, offset; padding; data. A header is data from strangers: every length is checked
against what is left of the header's bound and of the file before anything is allocated, arrays that nobody asks for are
skipped, and what the header promises must lie within the file. `read_header` raises `BadGguf` and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from catalog.domain.foreign import plain
from catalog.domain.gguf_types import GGML_TYPES
from llmgw_site.lib.units import MIB, format_bytes

MAX_HEADER = 64 * MIB
MAX_STRING = 16 * MIB
MAX_KEY = 65_535
MAX_NAME = 64
MAX_ARRAY = 4_000_000
MAX_PAIRS = 100_000
MAX_TENSORS = 100_000
MAX_DIMENSIONS = 4
MAX_NESTING = 2
KEPT_STRING = 1 * MIB
"""Longer text values are skipped like arrays."""
KEPT_ARRAY = 4096
"""Numbers of an array that are kept (per-layer figures); longer ones are counted and skipped."""
MAX_KEPT = 8 * MIB
"""Most bytes of keys and values that are kept of one header, whatever its counts."""
CHUNK = 1 * MIB
MAX_MESSAGE = 1000

Value = int | float | bool | str | tuple[int | float | bool, ...]


class Source(Protocol):
    """A file, or its beginning, as the reader needs it."""

    @property
    def size(self) -> int:
        """Bytes of the whole file."""

    def read(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes at `offset`, or fewer where the file ends."""


class BadGguf(ValueError):
    """The file is refused. `code` is stable, the text says what is wrong at which byte."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = plain(message, MAX_MESSAGE)  # names of the file stand in it
        super().__init__(self.message)


@dataclass(frozen=True, slots=True)
class Array:
    """An array that was not kept: how many elements of which type it has."""

    type: int
    count: int


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    dimensions: tuple[int, ...]
    type: int
    offset: int  # from the beginning of the data

    @property
    def elements(self) -> int:
        product = 1
        for size in self.dimensions:
            product *= size
        return product


@dataclass(frozen=True, kw_only=True)
class Header:
    """What stands before the data. `pairs` has every key; a value that was too long to keep is an `Array` or None."""

    version: int
    pairs: Mapping[str, Value | Array | None]
    tensors: tuple[Tensor, ...]
    alignment: int
    data_offset: int
    data_size: int  # bytes from data_offset to the end of the last tensor
    file_size: int
    sizes: Mapping[str, int] = field(default_factory=dict)  # bytes of each tensor


_SCALARS: Mapping[int, struct.Struct] = {
    0: struct.Struct("<B"), 1: struct.Struct("<b"), 2: struct.Struct("<H"), 3: struct.Struct("<h"),
    4: struct.Struct("<I"), 5: struct.Struct("<i"), 6: struct.Struct("<f"), 7: struct.Struct("<B"),
    10: struct.Struct("<Q"), 11: struct.Struct("<q"), 12: struct.Struct("<d"),
}  # fmt: skip
_BOOL, _STRING, _ARRAY = 7, 8, 9
_U32, _U64 = _SCALARS[4], _SCALARS[10]


def read_header(source: Source) -> Header:
    """The header of a GGUF file.

    1. `gguf_not_gguf`      the magic is missing
    2. `gguf_bad_version`   a version or byte order that nobody writes today
    3. `gguf_truncated`     the file ends before its header, or before the data that the header promises
    4. `gguf_too_large`     a count or length over its bound, or the header over 64 MiB
    5. `gguf_bad_value`     an unknown type, a doubled key, text that is no UTF-8, a tensor off its place
    """
    cursor = _Cursor(source)
    if source.size < 4 or cursor.take(4) != b"GGUF":  # 1
        raise BadGguf("gguf_not_gguf", "The file does not begin with GGUF: it is no GGUF file.")
    version = cursor.number(_U32)
    if version not in (2, 3):  # 2
        raise BadGguf("gguf_bad_version", _version_problem(version))
    tensor_count, pair_count = cursor.number(_U64), cursor.number(_U64)
    cursor.bound("tensors", tensor_count, MAX_TENSORS, each=24)
    cursor.bound("metadata pairs", pair_count, MAX_PAIRS, each=13)
    pairs: dict[str, Value | Array | None] = {}
    for _ in range(pair_count):
        key = cursor.text("a key", MAX_KEY)
        if key in pairs:
            raise BadGguf("gguf_bad_value", f"The key {key[:80]!r} stands twice in the header.")
        pairs[key] = cursor.value(cursor.number(_U32), key)
    tensors = tuple(_tensor(cursor) for _ in range(tensor_count))
    return _placed(version, pairs, tensors, cursor.at, source.size)


def _version_problem(version: int) -> str:
    if version & 0xFFFF == 0 and version:
        return (
            "The file is in big-endian byte order, which engines on these machines do not read: fetch the usual build."
        )
    return f"GGUF version {version} is not readable (2 and 3 are): convert the model anew."


class _Cursor:
    """A position in the header, fed in chunks. Never asks for more than is left of the file and of the bound."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._end = min(source.size, MAX_HEADER)
        self._chunk = b""
        self._start = 0
        self._kept = 0
        self.at = 0

    @property
    def left(self) -> int:
        return self._end - self.at

    def need(self, count: int) -> None:
        """Refuse if `count` more bytes are not there."""
        if count > self.left:
            if self._end == self._source.size:
                raise BadGguf(
                    "gguf_truncated",
                    f"The file ends at {self._end} bytes, within its header ({count} bytes more are needed at byte "
                    f"{self.at}): it is not complete, fetch it again.",
                )
            raise BadGguf("gguf_too_large", f"The header is larger than {format_bytes(MAX_HEADER)}.")

    def bound(self, what: str, count: int, most: int, *, each: int = 0) -> None:
        """Refuse a count over its bound, or one whose smallest elements (`each` bytes) would not fit into the rest."""
        if count > most:
            raise BadGguf("gguf_too_large", f"The header states {count} {what}; at most {most} are accepted.")
        self.need(count * each)

    def take(self, count: int) -> bytes:
        self.need(count)
        begin = self.at - self._start
        if begin + count > len(self._chunk):
            self._start, begin = self.at, 0
            self._chunk = self._source.read(self.at, min(max(count, CHUNK), self.left))
            if len(self._chunk) < count:
                raise BadGguf("gguf_truncated", "The file became shorter while it was read: it is not complete.")
        self.at += count
        return self._chunk[begin : begin + count]

    def skip(self, count: int) -> None:
        self.need(count)
        self.at += count

    def number(self, kind: struct.Struct) -> int:
        value: int = kind.unpack(self.take(kind.size))[0]
        return value

    def keep(self, count: int) -> bool:
        """Whether `count` more bytes may be kept in memory."""
        self._kept += count
        return self._kept <= MAX_KEPT

    def text(self, what: str, most: int) -> str:
        length = self.number(_U64)
        self.bound(f"bytes of {what}", length, most, each=1)
        if not self.keep(length):
            raise BadGguf("gguf_too_large", f"The header's names are larger than {format_bytes(MAX_KEPT)} together.")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise BadGguf("gguf_bad_value", f"The text of {what} before byte {self.at} is no UTF-8.") from None

    def value(self, kind: int, key: str) -> Value | Array | None:
        if kind == _STRING:
            return self._string(key)
        if kind == _ARRAY:
            return self._array(key)
        return self._scalar(kind, key)

    def _scalar(self, kind: int, key: str) -> int | float | bool:
        form = _SCALARS.get(kind)
        if form is None:
            raise BadGguf("gguf_bad_value", f"The key {key[:80]!r} has a value of unknown type {kind}.")
        value: int | float = form.unpack(self.take(form.size))[0]
        if kind == _BOOL:
            if value not in (0, 1):
                raise BadGguf("gguf_bad_value", f"The key {key[:80]!r} is neither true nor false.")
            return bool(value)
        return value

    def _string(self, key: str) -> str | None:
        length = self.number(_U64)
        self.bound(f"bytes of text for {key[:80]!r}", length, MAX_STRING, each=1)
        if length > KEPT_STRING or not self.keep(length):
            self.skip(length)
            return None
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise BadGguf("gguf_bad_value", f"The text of {key[:80]!r} is no UTF-8.") from None

    def _array(self, key: str, nesting: int = 1) -> Array | tuple[int | float | bool, ...]:
        kind, count = self.number(_U32), self.number(_U64)
        what = f"elements for {key[:80]!r}"
        if kind in _SCALARS:
            form = _SCALARS[kind]
            self.bound(what, count, MAX_ARRAY, each=form.size)
            if nesting > 1 or count > KEPT_ARRAY or not self.keep(count * 32):
                self.skip(count * form.size)
                return Array(kind, count)
            numbers = struct.unpack(f"<{count}{form.format[1]}", self.take(count * form.size))
            return tuple(bool(item) for item in numbers) if kind == _BOOL else numbers
        if kind == _STRING:
            self.bound(what, count, MAX_ARRAY, each=8)
            for _ in range(count):
                length = self.number(_U64)
                self.bound(f"bytes of text for {key[:80]!r}", length, MAX_STRING, each=1)
                self.skip(length)
            return Array(kind, count)
        if kind == _ARRAY and nesting < MAX_NESTING:
            self.bound(what, count, MAX_ARRAY, each=12)
            for _ in range(count):
                self._array(key, nesting + 1)
            return Array(kind, count)
        raise BadGguf("gguf_bad_value", f"The key {key[:80]!r} is an array of type {kind}, which is not readable.")


def _tensor(cursor: _Cursor) -> Tensor:
    name = cursor.text("a tensor's name", MAX_NAME)
    count = cursor.number(_U32)
    cursor.bound(f"dimensions of {name!r}", count, MAX_DIMENSIONS, each=8)
    dimensions = tuple(cursor.number(_U64) for _ in range(count))
    return Tensor(name, dimensions, cursor.number(_U32), cursor.number(_U64))


def _placed(
    version: int, pairs: Mapping[str, Value | Array | None], tensors: tuple[Tensor, ...], at: int, file_size: int
) -> Header:
    """Check where the tensors lie, and that the file holds all of them."""
    alignment = pairs.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 8 or alignment > MIB or alignment & (alignment - 1):
        raise BadGguf(
            "gguf_bad_value", f"general.alignment is {alignment!r}: a power of two from 8 to 1048576 is needed."
        )
    data = _padded(at, alignment)
    sizes: dict[str, int] = {}
    end = 0
    ordered = sorted(tensors, key=lambda item: item.offset)
    for number, tensor in enumerate(ordered):
        if tensor.name in sizes:
            raise BadGguf("gguf_bad_value", f"The tensor {tensor.name!r} stands twice in the header.")
        if tensor.offset % alignment or tensor.offset < end:
            raise BadGguf("gguf_bad_value", f"The tensor {tensor.name!r} lies off its place (offset {tensor.offset}).")
        following = ordered[number + 1].offset if number + 1 < len(ordered) else max(file_size - data, tensor.offset)
        size = _bytes(tensor)
        sizes[tensor.name] = following - tensor.offset if size is None else size
        end = tensor.offset + sizes[tensor.name]
    if tensors and data + end > file_size:
        raise BadGguf(
            "gguf_truncated",
            f"The file has {file_size} bytes, its header promises {data + end}: it is not complete, fetch it again.",
        )
    return Header(
        version=version, pairs=pairs, tensors=tensors, alignment=alignment, data_offset=data, data_size=end,
        file_size=file_size, sizes=sizes,
    )  # fmt: skip


def _bytes(tensor: Tensor) -> int | None:
    """Bytes of a tensor; None for a type that is not in the table, whose size its neighbour tells."""
    if 0 in tensor.dimensions:
        raise BadGguf("gguf_bad_value", f"The tensor {tensor.name!r} has a dimension of 0.")
    if tensor.elements >= 1 << 62:
        raise BadGguf("gguf_too_large", f"The tensor {tensor.name!r} states {tensor.elements} elements.")
    known = GGML_TYPES.get(tensor.type)
    if known is None:
        return None
    row = tensor.dimensions[0] if tensor.dimensions else 1
    if row % known.block:
        raise BadGguf(
            "gguf_bad_value", f"The rows of {tensor.name!r} ({row}) do not divide into blocks of {known.block}."
        )
    return tensor.elements // known.block * known.bytes


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
