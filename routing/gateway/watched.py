"""A file that another process writes atomically and the gateway follows: looked at by `stat`, read when it is another.

A file that is missing or cannot be read leaves the last good content in force and is logged once.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import orjson

from cluster.wire import WireError, from_dict
from llmgw_site.lib import files
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)

LOOK = 0.1
"""Seconds between two looks at the files."""


class WatchedFile:
    """One file: its last good content (None: never there), and whether what lies there was already tried."""

    def __init__(self, path: Path, kind: type[Any]) -> None:
        self.path = path
        self.kind = kind
        self.value: Any = None
        self._tried: tuple[int, int, int] | None = None
        self._missing_logged = False

    def changed(self) -> bool:
        """Whether something lies there that has not been tried yet. Costs one stat."""
        mark = files.mark(self.path)
        if mark is None:
            if self.value is not None and not self._missing_logged:
                self._missing_logged = True
                event(log, "file_missing", level=logging.WARNING, file=self.path.name)
            return False
        if mark == self._tried:
            return False
        self._tried, self._missing_logged = mark, False
        return True

    def read(self) -> bool:
        """Take the new content over; False where it cannot be read, which is logged."""
        try:
            self.value = from_dict(self.kind, orjson.loads(self.path.read_bytes()))
        except (OSError, orjson.JSONDecodeError, WireError) as error:
            event(log, "file_unreadable", level=logging.ERROR, file=self.path.name, error=str(error)[:300])
            return False
        return True
