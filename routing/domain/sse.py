"""Server-sent events, read incrementally: bytes in, events out, and the few events that llmgw itself writes.

Source: WHATWG HTML, "Server-sent events", 9.2.5 and 9.2.6: lines end with LF, CRLF or CR; an empty line ends an event.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

# A lone CR ends a line only if no LF follows, or the two halves of one CRLF would look like an empty line.
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
MOST_HELD = 4 << 20
"""Bytes of one unfinished event that are kept for reading; of a longer one only its beginning and its end are looked at."""
BEGINNING, TAIL = 1 << 10, 16 << 10
"""Bytes of these."""

COMMENT = b": keep-alive\n\n"
"""A comment: clients skip it, and connections and proxies see life."""
DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Event:
    """`raw`: the event's bytes with the empty line that ends it; `data`: its data lines joined, None without any. `beginning`:
    of an event that was too long, of which `raw` is the end."""

    raw: bytes
    data: bytes | None
    beginning: bytes = b""


def data_of(raw: bytes) -> bytes | None:
    """The data of one event; None for a comment or an event without data."""
    if raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2 and raw.endswith(b"\n\n") and b"\r" not in raw:
        return raw[6:-2]  # one data line, as every engine writes it
    lines = []
    for line in _LINE.split(raw):
        if line.startswith(b"data:"):
            lines.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines) if lines else None


class Reader:
    """Cuts a stream of bytes into events. The bytes of all events and of `held` are the bytes that came in."""

    def __init__(self) -> None:
        self.held = b""
        """What came after the last whole event."""
        self.long = b""
        """The beginning of the event that passes now before it is whole."""

    def feed(self, piece: bytes) -> list[Event]:
        """The events that end within `piece`."""
        data = self.held + piece if self.held else piece
        # An end may lie across the seam, so looking goes back by its greatest length less one.
        look = max(0, len(self.held) - 3)
        events = []
        start = 0
        while (match := _END.search(data, look)) is not None:
            raw = data[start : match.end()]
            events.append(Event(raw, None, self.long) if self.long else Event(raw, data_of(raw)))
            self.long = b""
            start = look = match.end()
        self.held = data[start:]
        return events

    def passed(self, piece: bytes, look: Callable[[Event], bytes]) -> bytes:
        """What goes on now that `piece` has come: of each event what `look` lets pass, `piece` itself where that is all of it.
        An event that is not whole is held, up to MOST_HELD; then it passes but for its end."""
        whole = not self.held
        kept = []
        for event in self.feed(piece):
            passed = look(event)
            whole = whole and passed is event.raw
            kept.append(passed)
        if len(self.held) > (4 * TAIL if self.long else MOST_HELD):
            self.long = self.long or self.held[:BEGINNING]
            kept.append(self.held[:-TAIL])
            self.held = self.held[-TAIL:]
        return piece if whole and not self.held else b"".join(kept)


def error_event(error_body: bytes) -> bytes:
    """The event that ends a stream which failed after its status was sent; no `[DONE]` follows it.

    `error_body` is JSON: a line break in it is only for people, and would end the line of data.
    """
    return b"data: " + b"".join(error_body.splitlines()) + b"\n\n"
