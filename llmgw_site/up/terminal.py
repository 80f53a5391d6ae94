"""What the supervisor says: plain lines, and on a terminal one moving line for what is being waited for."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from llmgw_site.lib.units import format_seconds

STILL = 10.0
"""Seconds after which a wait says again that it goes on, where lines cannot move."""
APART = 1.0
"""Seconds between two lines of this kind, whatever changes: a refusal's request id changes with each try."""


class Terminal:
    """`say` for what happened, `waiting` (as often as one likes) for what is being waited for."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._moving = out.isatty()
        self._began = time.monotonic()
        self._what = ""
        self._since, self._told, self._untold = 0.0, -STILL, False
        self._drawn = False

    def say(self, text: str) -> None:
        """A line that stays. The time since the start stands before it."""
        self._erase()
        stamp = f"{time.monotonic() - self._began:6.1f} s  "
        if self._moving:
            stamp = f"\x1b[2m{stamp}\x1b[0m"
        self._write(f"{stamp}{text}\n")

    def block(self, text: str) -> None:
        """Lines without a stamp, to be read and copied."""
        self._erase()
        self._write(f"\n{text}\n\n")

    def waiting(self, what: str) -> None:
        """What is being waited for now; never more than STILL seconds pass without a word about it."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._since, self._untold = what, now, True
        if self._moving:
            self._erase()
            width = shutil.get_terminal_size().columns  # a line that wraps could not be taken back
            self._write(f"   ...    {what} ({format_seconds(now - self._since)})"[: width - 1])
            self._drawn = True
        elif self._untold and now - self._told >= APART:
            self._told, self._untold = now, False
            self.say(f"waiting: {what}")
        elif now - self._told >= STILL:
            self._told = now
            self.say(f"still waiting: {what} ({format_seconds(now - self._since)})")

    def _erase(self) -> None:
        if self._drawn:
            self._write("\r\x1b[K")
            self._drawn = False

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):  # nobody reads any more; the services go on
            pass
