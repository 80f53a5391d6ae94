"""Which bytes of a file a request asks for (RFC 9110 §14). Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_RANGE = re.compile(r"bytes=(?P<first>[0-9]{0,19})-(?P<last>[0-9]{0,19})")


class Asked(NamedTuple):
    """Bytes from `start` to before `end`. `part`: a range was asked for (206), if only that of all bytes."""

    start: int
    end: int
    part: bool = False


def asked(header: str, size: int) -> Asked | None:
    """What a Range header names of a file of `size` bytes; None: nothing of it is there (416).

    1. no header, several ranges, or one that has no sense   the whole file, as if it were not there
    2. `-N`     the last N bytes
    3. `A-B`, `A-`   as far as the file goes
    """
    found = _RANGE.fullmatch(header.replace(" ", ""))
    if found is None or not (found["first"] or found["last"]):  # 1
        return Asked(0, size)
    if not found["first"]:  # 2
        count = min(int(found["last"]), size)
        return Asked(size - count, size, part=True) if count else None
    start, last = int(found["first"]), int(found["last"]) if found["last"] else size - 1
    if found["last"] and last < start:  # 1
        return Asked(0, size)
    return Asked(start, min(last + 1, size), part=True) if start < size else None  # 3
