"""Bounded readers of safetensors headers and of the index beside several files. Pure: bytes come from a `Source`.

Layout (safetensors, "Format"): length of the header as u64 little-endian, the header as a JSON object, maybe padded with
spaces, then the data. The header maps a tensor's name to dtype, shape and its place in the data; `__metadata__` maps text to
text. A header is data from strangers: its size and its counts are bounded before it is parsed, and what it promises must
lie within the file, without holes. `read_header` and `read_index` raise `BadSafetensors` and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catalog.domain.foreign import plain
from catalog.domain.gguf import Source
from llmgw_site.lib.units import MIB, format_bytes

MAX_HEADER = 8 * MIB
MAX_INDEX = 16 * MIB
"""DeepSeek-V3's index has 9 MB and 92,000 tensors, the header of one of its files 0.1 MB."""
MAX_TENSORS = 100_000
MAX_MEMORY = 61 * MIB
"""What is made of a text is many times as large (`_taken`): a header of 38,000 tensors, an index of 140,000."""
MAX_DIMENSIONS = 16
MAX_FIGURE = 1 << 60
DTYPE_BITS: Mapping[str, int] = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16,
    "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6,
    "F6_E3M2": 6, "F4": 4, "C64": 64,
}  # fmt: skip
MAX_MESSAGE = 1000
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.safetensors")


class BadSafetensors(ValueError):
    """The file is refused. `code` is stable, the text says what is wrong."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = plain(message, MAX_MESSAGE)  # names of the file stand in it
        super().__init__(self.message)


@dataclass(frozen=True, slots=True)
class Tensor:
    """`size` in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int

    @property
    def elements(self) -> int:
        product = 1
        for count in self.shape:
            product *= count
        return product


@dataclass(frozen=True, kw_only=True)
class Header:
    """What stands before the data. Sizes in bytes."""

    tensors: tuple[Tensor, ...]
    metadata: Mapping[str, str]
    data_offset: int
    file_size: int


@dataclass(frozen=True, kw_only=True)
class Index:
    """Which files a model consists of. `total_size`: bytes of all tensors, 0 where it is not stated."""

    files: tuple[str, ...]
    tensors: int
    total_size: int


def read_header(source: Source) -> Header:
    """The header of a safetensors file.

    1. `safetensors_not_safetensors`  its first bytes are no length of a header, or no JSON object follows
    2. `safetensors_too_large`        header, tensors or dimensions over their bounds
    3. `safetensors_truncated`        the file ends before its header, or before the data that the header promises
    4. `safetensors_bad_value`        what is no tensor; data that overlaps, has holes, or is not as long as its shape says
    """
    if source.size < 8:
        raise BadSafetensors(
            "safetensors_not_safetensors", "The file is shorter than 8 bytes: it is no safetensors file."
        )
    length = int.from_bytes(source.read(0, 8), "little")
    if length < 2 or source.read(8, 1) != b"{":  # 1
        raise BadSafetensors(
            "safetensors_not_safetensors", "No header follows the first 8 bytes: it is no safetensors file."
        )
    if length > MAX_HEADER:  # 2
        text = f"The header has {format_bytes(length)}, more than {format_bytes(MAX_HEADER)}."
        raise BadSafetensors("safetensors_too_large", text)
    if 8 + length > source.size:  # 3
        text = f"The file has {source.size} bytes and ends within its header of {length}: fetch it again."
        raise BadSafetensors("safetensors_truncated", text)
    raw = _parsed(source.read(8, length), "safetensors_not_safetensors", "header")
    metadata = raw.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise BadSafetensors("safetensors_bad_value", "__metadata__ does not map text to text.")
    if len(raw) > MAX_TENSORS:
        raise BadSafetensors("safetensors_too_large", f"The header has {len(raw)} tensors, more than {MAX_TENSORS}.")
    placed = sorted((_tensor(name, value) for name, value in raw.items()), key=lambda item: item[:2])
    end = 0
    for start, stop, tensor in placed:  # 4
        if start != end:
            text = f"The data of {tensor.name[:80]} begins at byte {start}; the tensor before it ends at {end}."
            raise BadSafetensors("safetensors_bad_value", text)
        end = stop
    if 8 + length + end != source.size:
        short = source.size < 8 + length + end
        code = "safetensors_truncated" if short else "safetensors_bad_value"
        text = f"The header promises {8 + length + end} bytes and the file has {source.size}: fetch it again."
        raise BadSafetensors(code, text)
    tensors = tuple(tensor for _, _, tensor in placed)
    return Header(tensors=tensors, metadata=metadata, data_offset=8 + length, file_size=source.size)


def _tensor(name: str, value: Any) -> tuple[int, int, Tensor]:
    what = name[:80]
    if not isinstance(value, dict):
        raise BadSafetensors("safetensors_bad_value", f"{what} is no tensor: an object is needed.")
    dtype, shape, offsets = value.get("dtype"), _figures(value.get("shape")), _figures(value.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
        text = f"{what} is no tensor: dtype, shape and data_offsets are needed, with counts that are not negative."
        raise BadSafetensors("safetensors_bad_value", text)
    if len(shape) > MAX_DIMENSIONS:
        raise BadSafetensors(
            "safetensors_too_large", f"{what} has {len(shape)} dimensions, more than {MAX_DIMENSIONS}."
        )
    start, stop = offsets
    tensor = Tensor(name, dtype[:40], shape, stop - start)
    bits = DTYPE_BITS.get(dtype)
    if stop < start or tensor.elements > MAX_FIGURE or (bits is not None and tensor.elements * bits != tensor.size * 8):
        text = f"{what} is {dtype[:40]} of shape {list(shape)} and has {stop - start} bytes, which is not that size."
        raise BadSafetensors("safetensors_bad_value", text)
    return start, stop, tensor


def _figures(value: Any) -> tuple[int, ...] | None:
    """A list of counts; None: it is none."""
    if not isinstance(value, list):
        return None
    good = all(isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= MAX_FIGURE for item in value)
    return tuple(value) if good else None


def read_index(text: bytes) -> Index:
    """Which files a model consists of, by its `*.safetensors.index.json`. Raises BadSafetensors.

    1. `safetensors_too_large`       over its bounds
    2. `safetensors_bad_index`       no JSON object with a `weight_map` from tensors to names of files beside it
    """
    if len(text) > MAX_INDEX:  # 1
        raise BadSafetensors("safetensors_too_large", f"The index has more than {format_bytes(MAX_INDEX)}.")
    if not text.isascii():  # others would take four times the memory, and nobody names tensors so
        raise BadSafetensors("safetensors_bad_index", "The index is no ASCII text.")
    raw = _parsed(text, "safetensors_bad_index", "index")
    weights, metadata = raw.get("weight_map"), raw.get("metadata")
    if not isinstance(weights, dict) or not weights:  # 2
        raise BadSafetensors("safetensors_bad_index", "The index has no weight_map of tensors and their files.")
    files = {file for file in weights.values() if isinstance(file, str)}
    for file in (*files, *(value for value in weights.values() if not isinstance(value, str))):
        if not isinstance(file, str) or not FILE.fullmatch(file):
            shown = repr(file[:80]) if isinstance(file, str) else "what is no text"
            raise BadSafetensors("safetensors_bad_index", f"The index names {shown}, which is no file beside it.")
    size = metadata.get("total_size") if isinstance(metadata, dict) else 0
    known = _figures([size])
    return Index(files=tuple(sorted(files)), tensors=len(weights), total_size=known[0] if known else 0)


def _parsed(text: bytes, code: str, what: str) -> dict[str, Any]:
    """A JSON object whose keys are there once. Counted before it is parsed."""
    if (taken := _taken(text)) > MAX_MEMORY:
        words = f"The {what} has so many items that reading it takes {format_bytes(taken)}, more than {format_bytes(MAX_MEMORY)}."
        raise BadSafetensors("safetensors_too_large", words)
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number, parse_int=_number)
    except _Doubled as error:
        raise BadSafetensors(code, f"The {what} names {str(error)[:80]!r} twice.") from None
    except (ValueError, RecursionError):
        raise BadSafetensors(code, f"The {what} is no JSON object.") from None
    if not isinstance(found, dict):
        raise BadSafetensors(code, f"The {what} is no JSON object.")
    return found


def _taken(text: bytes) -> int:
    """Bytes that parsing a text takes at most, as measured: of each entry of an object, of each comma, of each object or array;
    and the text itself, read and in pieces: three times four bytes a character where one of them is no ASCII."""
    entries, containers = text.count(b":"), text.count(b"[") + text.count(b"{")
    return (
        205 * entries
        + 80 * text.count(b",")
        + 100 * containers
        + (7 * len(text) // 4 if text.isascii() else 12 * len(text))
    )


class _Doubled(Exception):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        raise _Doubled(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return found


def _no_number(text: str) -> None:
    raise ValueError(text)


def _number(text: str) -> int:
    if len(text) > 20:
        raise ValueError(text[:20])
    return int(text)
