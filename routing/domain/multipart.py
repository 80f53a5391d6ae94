"""A form with files (multipart/form-data), read while it passes: its fields by name, and where each value stands.

Strict on purpose: what engines could read otherwise than we do is refused, since the model's name decides who may ask.
Source: RFC 7578, RFC 2046 §5.1.1.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from llmgw_site.lib.errors import Refused
from routing.domain.bodies import refused

_BOUNDARY = re.compile(
    rb"""\s*multipart/form-data\s*;\s*boundary=("?)([0-9A-Za-z'()+_,./:=?-]{1,70})\1\s*""", re.IGNORECASE
)
_OPTION = rb"""\s*;\s*(?:name|filename|filename\*)=(?:"[^"\\\r\n]*"|[^\s;"\\]+)"""
_DISPOSITION = re.compile(rb"form-data(?:" + _OPTION + rb")+\s*", re.IGNORECASE)
_FILE = re.compile(rb";\s*filename\*?=", re.IGNORECASE)
_NAME = re.compile(rb""";\s*name=(?:"([^"\\\r\n]*)"|([^\s;"\\]+))""", re.IGNORECASE)
MOST_HEADERS = 8 << 10
"""Bytes of one part's headers."""
KEPT = 4 << 10
"""Bytes of a field's value that are kept; a longer one is no model's name."""


class Field(NamedTuple):
    """A part that has ended. `start`, `end`: where its value stands in the body. `value`: its first KEPT bytes, of a file none."""

    name: str
    file: bool
    value: bytes
    start: int
    end: int


def boundary_of(content_type: bytes) -> bytes:
    """Raises Refused `invalid_multipart`."""
    found = _BOUNDARY.fullmatch(content_type)
    if found is None:
        raise _wrong("the content type must be multipart/form-data with a plain boundary, and no other parameter")
    return found[2]


class Scanner:
    """Fed with a body piece by piece, it keeps no more than an unfinished line of it, or a part's headers."""

    def __init__(self, boundary: bytes) -> None:
        self.done = False
        """The last boundary was seen."""
        self._line = b"--" + boundary
        self._buffer = b"\r\n"  # so that the first boundary looks like all others
        self._at = -2  # where the buffer begins in the body
        self._name: str | None = None  # of the part whose value comes; None: its headers do
        self._file = False
        self._value = b""
        self._start = 0
        self._opened = False  # the first boundary was seen

    def feed(self, piece: bytes) -> list[Field]:
        """The fields that end within this piece. Raises Refused `invalid_multipart`."""
        self._buffer += piece
        fields: list[Field] = []
        while not self.done:
            if self._opened and self._name is None:
                if not self._headers():
                    break
            elif not self._part(fields):
                break
        if self.done:
            self._buffer = b""
        return fields

    def _part(self, fields: list[Field]) -> bool:
        """Read to the next boundary; False: more must come."""
        delimiter = b"\r\n" + self._line
        at = self._buffer.find(delimiter)
        if not self._opened and (at > 0 or (at < 0 and len(self._buffer) >= len(delimiter))):
            raise _wrong("it does not begin with its boundary")
        tail = self._buffer[at + len(delimiter) : at + len(delimiter) + 2] if at >= 0 else b""
        if at < 0 or len(tail) < 2:
            keep = at if at >= 0 else max(0, len(self._buffer) - len(delimiter) + 1)
            self._take(keep)
            return False
        if tail not in (b"\r\n", b"--"):
            raise _wrong("a boundary is followed by something else")
        self._take(at)
        if self._name is not None:
            fields.append(Field(self._name, self._file, self._value, self._start, self._at))
        self._name, self._opened = None, True
        self.done = tail == b"--"
        self._skip(len(delimiter) + (0 if tail == b"--" else 2))
        return True

    def _headers(self) -> bool:
        """Read a part's headers; False: more must come."""
        end = self._buffer.find(b"\r\n\r\n")
        if (end if end >= 0 else len(self._buffer)) > MOST_HEADERS:
            raise _wrong("the headers of a part are too long")
        if end < 0:
            return False
        found = []
        for line in self._buffer[:end].split(b"\r\n"):
            name, colon, value = line.partition(b":")
            if not colon or not re.fullmatch(rb"[!-9;-~]+", name):
                raise _wrong("a part has a header that is none")
            if name.lower() == b"content-disposition":
                found.append(value.strip())
        names = _NAME.findall(found[0]) if len(found) == 1 and _DISPOSITION.fullmatch(found[0]) else []
        if len(names) != 1:
            raise _wrong('each part needs one plain header such as: Content-Disposition: form-data; name="model"')
        self._name = (names[0][0] or names[0][1]).decode("utf-8", "replace")
        self._file = _FILE.search(found[0]) is not None
        self._value = b""
        self._skip(end + 4)
        self._start = self._at
        return True

    def _take(self, count: int) -> None:
        """So many bytes of the value pass."""
        if self._name is not None and not self._file and len(self._value) < KEPT:
            self._value = (self._value + self._buffer[:count])[:KEPT]
        self._skip(count)

    def _skip(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._at += count


def _wrong(why: str) -> Refused:
    return refused("invalid_multipart", f"The form cannot be read: {why}.")
