"""A file that is on its way: its bytes beside their map, so that a fetch goes on wherever it was broken off.

`NAME.part` has the file's full length from the start; `NAME.map` says what it is to become, and one byte for each segment: 1
is there. A segment is marked after its bytes were written, so a killed process never claims too much; a power cut may, and
the checksum finds it.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from threading import Condition
from types import TracebackType

from catalog.domain.spans import SEGMENT, segments
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.files import sync_folder
from llmgw_site.lib.units import format_bytes

RESERVE = 1 << 30
"""Bytes of a disk that no fetch uses."""


class Part:
    """The bytes of one file. Writers share it; each writes its own span. `mark`: what the file is to become, on one line."""

    def __init__(self, target: Path, *, size: int, mark: str, reserve: int = RESERVE) -> None:
        self.target, self.size = target, size
        self.part = target.with_name(target.name + ".part")
        self.map = target.with_name(target.name + ".map")
        self._head = (mark + "\n").encode()
        self.changed = Condition()
        target.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._map = os.open(self.map, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                self.done = self._remembered()
                self._make_room(reserve)
            except BaseException:
                os.close(self._map)
                raise
        except BaseException:
            os.close(self._file)
            raise

    def _remembered(self) -> list[bool]:
        """Which segments are there; none, where the map is another file's or no map."""
        count = segments(self.size)
        found = os.pread(self._map, len(self._head) + count + 1, 0)
        there = os.fstat(self._file).st_size
        if found[: len(self._head)] == self._head and len(found) == len(self._head) + count and there == self.size:
            return [item == 1 for item in found[len(self._head) :]]
        os.ftruncate(self._map, 0)
        os.ftruncate(self._file, 0)
        os.pwrite(self._map, self._head + bytes(count), 0)
        return [False] * count

    def _make_room(self, reserve: int) -> None:
        """Take the room on the disk before the first byte comes. Raises Refused `disk_full`, and leaves nothing behind."""
        held = os.fstat(self._file).st_blocks * 512
        free = os.statvfs(self.part.parent)
        left = free.f_bavail * free.f_frsize
        need = max(0, self.size - held)
        try:
            if need > max(0, left - reserve):
                raise OSError(errno.ENOSPC, "")
            if self.size:
                os.posix_fallocate(self._file, 0, self.size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if not any(self.done):
                self._unlink()
            text = (
                f"{self.target.name} needs {format_bytes(need)} more on the disk of {self.target.parent}, which has "
                f"{format_bytes(left)} free and keeps {format_bytes(reserve)}: make room, or choose a smaller file"
            )
            raise Refused(Kind.CONFLICT, "disk_full", text) from None

    @property
    def fetched(self) -> int:
        """Bytes of whole segments."""
        return sum(min(SEGMENT, self.size - at * SEGMENT) for at, done in enumerate(self.done) if done)

    def write(self, data: bytes | memoryview, at: int) -> None:
        view = memoryview(data)
        while view:
            count = os.pwrite(self._file, view, at)
            view, at = view[count:], at + count

    def read(self, at: int, count: int) -> bytes:
        return os.pread(self._file, count, at)

    def finish(self, number: int) -> None:
        """Remember a segment whose bytes were written."""
        os.pwrite(self._map, b"\1", len(self._head) + number)
        with self.changed:
            self.done[number] = True
            self.changed.notify_all()

    def forget(self) -> None:
        """Begin again."""
        os.pwrite(self._map, bytes(len(self.done)), len(self._head))
        with self.changed:
            self.done[:] = [False] * len(self.done)

    def keep(self) -> None:
        """The file is whole and checked: give it its name."""
        os.fsync(self._file)
        self.part.replace(self.target)
        sync_folder(self.target.parent)
        self.map.unlink(missing_ok=True)

    def discard(self) -> None:
        """The bytes were not the file's: nothing of them stays."""
        self._unlink()

    def _unlink(self) -> None:
        for path in (self.map, self.part):
            with suppress(OSError):
                path.unlink()

    def close(self) -> None:
        os.close(self._file)
        os.close(self._map)

    def __enter__(self) -> Part:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def fetched(target: Path, size: int) -> int:
    """Bytes of the segments that are there of a file on its way; 0 where nothing was begun."""
    try:
        marks = target.with_name(target.name + ".map").read_bytes().partition(b"\n")[2]
    except OSError:
        return 0
    count = segments(size)
    short = count * SEGMENT - size if marks[count - 1 : count] == b"\1" else 0  # the last one
    return max(0, marks.count(1) * SEGMENT - short)


def forget(target: Path) -> None:
    """Remove what was begun of a file that is not needed any more."""
    for ending in (".map", ".part"):
        target.with_name(target.name + ending).unlink(missing_ok=True)


def to_come(target: Path, size: int) -> int:
    """Bytes of a file that the disk still has to give; a file on its way has taken all of its room at once."""
    try:
        held = target.with_name(target.name + ".part").stat().st_blocks * 512
    except OSError:
        return size
    return max(0, size - held)
