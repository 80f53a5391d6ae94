"""Reads an event stream that another gateway meters: only what is needed to end it properly."""

from __future__ import annotations

import re

from routing.domain.endpoints import Shape
from routing.domain.meter import Counts, error_code

_KEPT = 32
"""Bytes that are kept of an unfinished event: longer than the words that are looked for."""
_ERROR = re.compile(rb'(?:^|\n)data: ?(\{"(?:error"|type": ?"error").*)')
_ENDS = {
    Shape.OPENAI: (b"[DONE]",),
    Shape.ANTHROPIC: (b'message_stop"',),
    Shape.RESPONSES: (b'response.completed"', b'response.incomplete"', b'response.failed"'),
}
"""What a stream says last. Within a text the quote would be escaped."""


class PassMeter:
    """Has the face of StreamMeter and passes every piece as it came; counts nothing."""

    counts: Counts | None = None

    def __init__(self, shape: Shape = Shape.OPENAI) -> None:
        self._end, *self._ends = _ENDS[shape]
        self.first_token_at: float | None = None
        """When the first event came that says anything; comments do not."""
        self.done = False
        """The last event was seen."""
        self.error: str | None = None
        """Code of an error event that has passed: whoever sent it has said how the stream ends."""
        self._tail = b""  # of an event that is unfinished

    @property
    def at_boundary(self) -> bool:
        """Whether an event of llmgw's own may be put in here."""
        return not self._tail

    def feed(self, piece: bytes, now: float) -> bytes:
        data = self._tail + piece if self._tail else piece
        self._tail = b"" if data.endswith((b"\n\n", b"\r\n\r\n")) else data[-_KEPT:]
        if self._end in data or (self._ends and any(end in data for end in self._ends)):
            self.done = True
        elif b'"error"' in data and self.error is None and (found := _ERROR.search(data)) is not None:
            self.error = error_code(found[1]) or "engine_error"
        if self.first_token_at is None and self.error is None and b"data:" in data:
            self.first_token_at = now
        return piece

    def finish(self) -> bytes:
        return b""
