"""The beginning of a file far away, as the readers of headers want it: fetched in growing pieces, bounded, kept no longer than it is read."""

from __future__ import annotations

import re
import time
from contextlib import AbstractContextManager
from typing import Protocol

import httpx

from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import MIB, format_bytes

FIRST = 2 * MIB
STEP = 8 * MIB
"""Bytes of the first piece, and the most of a later one."""
MAX_READ = 72 * MIB
"""A header may have 64 MiB."""
DEADLINE = 60.0
"""Seconds for one piece: bytes that come one by one, each in time, are no progress."""
TOTAL = re.compile(r"bytes (?P<start>[0-9]{1,20})-(?P<end>[0-9]{1,20})/(?P<total>[0-9]{1,20})")


class Files(Protocol):
    """A registry, or what else has files that can be read from some byte on."""

    def opened(
        self, repository: str, commit: str, path: str, *, start: int, end: int | None = None
    ) -> AbstractContextManager[httpx.Response]: ...


class RemoteFile:
    """A `Source` (see catalog.domain.gguf) over a registry's file. Headers are read onwards: what lies before the last read is
    kept no longer, and fetched again if somebody goes back."""

    def __init__(self, registry: Files, repository: str, commit: str, path: str, *, size: int) -> None:
        self._registry = registry
        self._where = (repository, commit, path)
        self.size = size
        self._kept = bytearray()
        self._start = 0  # where in the file it begins

    @property
    def _have(self) -> int:
        return self._start + len(self._kept)

    def read(self, offset: int, count: int) -> bytes:
        """Raises Refused: as the registry refuses, `file_changed`, `header_too_large`."""
        end = min(self.size, offset + count)
        if offset < self._start:
            self._kept, self._start = bytearray(), 0
        self._forget(offset)
        while self._have < end:
            if end > MAX_READ:
                text = f"the header of {self._where[2]} has more than {format_bytes(MAX_READ)}"
                raise Refused(Kind.INVALID, "header_too_large", text)
            piece = self._have + STEP
            self._more(max(min(end, piece), min(max(FIRST, 2 * self._have), piece, self.size, MAX_READ)))
            self._forget(offset)
        return bytes(self._kept[offset - self._start : end - self._start])

    def _forget(self, before: int) -> None:
        gone = min(max(0, before - self._start), len(self._kept))
        del self._kept[:gone]
        self._start += gone

    def _more(self, end: int) -> None:
        """Bytes up to before `end`. A server that ignores ranges begins at the start: no more than is wanted is read."""
        start, deadline = self._have, time.monotonic() + DEADLINE
        repository, commit, path = self._where
        with self._registry.opened(repository, commit, path, start=start, end=end) as response:
            skip = start
            if response.status_code == 206:
                found = TOTAL.fullmatch(response.headers.get("content-range", ""))
                if not found or int(found["start"]) != start or int(found["total"]) != self.size:
                    raise self._changed()
                skip = 0
            elif response.status_code != 200:
                raise self._changed()
            try:
                for piece in response.iter_raw():
                    taken = piece[skip:]
                    skip = max(0, skip - len(piece))
                    self._kept += taken[: end - self._have]
                    if self._have >= end:
                        return
                    if time.monotonic() > deadline:
                        brought = f"{format_bytes(self._have - start)} of {format_bytes(end - start)} of {path} came in {DEADLINE:.0f} s"
                        text = f"{brought}: ask again when the registry, or the way to it, is faster"
                        raise Refused(Kind.UPSTREAM, "registry_unreachable", text, retry_after=1.0)
            except httpx.HTTPError as error:
                if self._have == start:
                    text = f"the registry broke off while {path} was read ({type(error).__name__}): it is asked again"
                    raise Refused(Kind.UPSTREAM, "registry_unreachable", text, retry_after=1.0) from None
        if self._have == start:
            raise self._changed()

    def _changed(self) -> Refused:
        repository, _, path = self._where
        text = f"{path} of {repository} is not what the registry said a moment ago ({self.size} bytes): ask anew"
        return Refused(Kind.UPSTREAM, "file_changed", text)
