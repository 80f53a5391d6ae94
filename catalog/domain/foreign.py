"""What strangers wrote: JSON bounded before it is parsed, and text made fit to be kept and shown. Pure."""

from __future__ import annotations

from typing import Any

import orjson

MAX_ITEMS = 150_000
"""Objects, arrays and commas of a JSON text. What a parser makes of them is up to forty times as large as the text."""
MOST = 1 << 60
"""No sum over what a header states is told as more: what it goes into has 64 bits."""


class TooMany(ValueError):
    """A text has more items than anybody needs."""


def parsed(data: bytes | bytearray) -> Any:
    """The value of a JSON text, whose length the caller has bounded. Raises ValueError, in words.

    1. TooMany: more items than MAX_ITEMS
    2. no JSON, or nested too deeply
    """
    if data.count(b",") + data.count(b"{") + data.count(b"[") > MAX_ITEMS:  # 1
        raise TooMany(f"it has more than {MAX_ITEMS} items")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:  # 2
        raise ValueError("it is no JSON") from None


def plain(value: Any, most: int) -> str:
    """The first `most` characters of a text without what no database keeps and no screen shows; "" of what is no text."""
    return "".join(filter(str.isprintable, value[:most])) if isinstance(value, str) else ""
