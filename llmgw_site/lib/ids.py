"""Readable, time-sortable ids with a kind prefix, such as `rec_0mhx3k2f9q4t7vzj5c8d2b6n1e`.

Pure: time and entropy come in. Shells call `clock.new_id(kind)`.
"""

from __future__ import annotations

from functools import lru_cache

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford base 32: no i, l, o, u


_SPELLED = (_ALPHABET * 8).encode()
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]  # ten bits a step: ids are made for each request


def _base32(value: int, length: int) -> str:
    """`length` characters, an even number, of the lowest bits of `value`."""
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(5 * length - 10, -1, -10)])


@lru_cache(maxsize=4)
def _second(value: int) -> str:
    """The upper 8 of the 10 characters of a time, without the 10 bits that change within a second."""
    return _base32(value, 8)


def make_id(kind: str, *, now_ms: int, entropy: bytes) -> str:
    """`kind` + `_` + 10 characters of Unix milliseconds + 16 characters of 80 random bits.

    Sorts by time within a kind. Raises ValueError if fewer than 10 bytes of entropy come in.
    """
    if len(entropy) < 10:
        raise ValueError("an id needs 10 bytes of entropy")
    return dated(kind, now_ms=now_ms, rest=_base32(int.from_bytes(entropy[:10], "big"), 16))


def spelled(entropy: bytes) -> str:
    """A character for each byte, of its lower five bits: the random parts of many ids at once."""
    return entropy.translate(_SPELLED).decode()


def dated(kind: str, *, now_ms: int, rest: str) -> str:
    """The id that ends with `rest`."""
    return f"{kind}_{_second(now_ms >> 10)}{_PAIRS[now_ms & 1023]}{rest}"


def is_id(kind: str, text: str) -> bool:
    """Whether `text` has the shape of an id of this kind."""
    prefix, _, rest = text.partition("_")
    return prefix == kind and len(rest) == 26 and all(c in _ALPHABET for c in rest)
