"""Labels: names with values that administrators give to nodes and that profiles may ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MOST = 64
_KEY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"[A-Za-z0-9._:/@+-]{0,63}")


def problem(labels: Any) -> str:
    """Why these are no labels; empty if they are.

    1. no mapping of texts to texts, or more than 64
    2. a name that is not 1 to 63 letters, digits and . _ / - with a letter or digit at both ends
    3. a value that is not up to 63 letters, digits and . _ : / @ + -
    """
    if not isinstance(labels, Mapping) or len(labels) > MOST:  # 1
        return f'up to {MOST} names with texts are needed, such as {{"zone": "b"}}'
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):  # 1
            return f'names with texts are needed, such as {{"zone": "b"}}, not {str(key)[:40]!r}: {str(value)[:40]!r}'
        if not _KEY.fullmatch(key):  # 2
            return f"{key[:80]!r} is no name of a label: write 1 to 63 letters, digits and . _ / - that begin and end plainly"
        if not _VALUE.fullmatch(value):  # 3
            return f"{value[:80]!r} is no value of the label {key}: write up to 63 letters, digits and . _ : / @ + -"
    return ""
