"""Bytes, seconds and money as people write and read them. Binary units (1 KiB = 1024 bytes) throughout."""

from __future__ import annotations

import re

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
_FACTOR = {"": 1, "b": 1, "k": KIB, "kib": KIB, "m": MIB, "mib": MIB, "g": GIB, "gib": GIB, "t": TIB, "tib": TIB,
           "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}  # fmt: skip
LONGEST = 30
"""Digits of a size that are read: a float holds no number of hundreds of them."""
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """`512MiB`, `1.5 GiB`, `20 MB` (decimal), `4096` to bytes. Raises ValueError naming what is accepted."""
    match = _SIZE.fullmatch(text)
    factor = _FACTOR.get(match[2].lower()) if match else None
    if match is None or factor is None or len(match[1]) > LONGEST:
        raise ValueError(f"{text[:LONGEST]!r} is no size; write for example 4096, 512MiB or 1.5GiB")
    return int(float(match[1]) * factor)


def format_bytes(count: int) -> str:
    """Bytes as a person reads them: `98362432` becomes `93.8 MiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def exact_bytes(count: int) -> str:
    """Bytes as a form has them and `parse_bytes` takes them back unchanged: `8 GiB`, `98362432`."""
    for unit, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB)):
        if count and count % factor == 0:
            return f"{count // factor} {unit}"
    return str(count)


def format_seconds(seconds: float) -> str:
    """Seconds as a person reads them: `75` becomes `1 min 15 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


MILLION = 1_000_000
"""Micro-units, which all amounts of money are kept in, to a unit of the currency."""


def format_money(micro: int, currency: str) -> str:
    """Micro-units as a person reads them: to the cent, half of one rounded up, and exactly where it is less than one.

    Whole numbers all the way: a float has no 1.005 and no billions with six decimals.
    """
    if 0 < micro < MILLION // 100:
        return f"0.{micro:06d} {currency}"
    cents = (micro * 200 + MILLION) // (2 * MILLION)
    return f"{cents // 100:,}.{cents % 100:02d} {currency}"
