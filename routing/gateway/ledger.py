"""The usage spool: an open line before a request is forwarded, a close line after it, appended with one write each.

Files `<data>/usage/spool-<start in ms, 20 digits>-<boot id>.jsonl`; lines as in routing/domain/records.py. A new file
for each start and at SEGMENT bytes. What a gateway left open when it died, the next one closes as failed. A disk that
refuses a write costs no chat: lines wait in memory, up to BACKLOG of them, and are counted where even that overflows.
One gateway has a folder at a time (a lock on it says so): a second one would close what the first has under way.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from llmgw_site.lib.errors import HTTP_STATUS, Kind
from llmgw_site.lib.files import private_folder
from llmgw_site.lib.logs import event
from routing.domain.records import Outcome, UsageRecord

log = logging.getLogger(__name__)

SEGMENT = 8 << 20
BACKLOG = 20_000
RESTARTED = "gateway_restarted"


class SpoolHeldError(Exception):
    """Another gateway writes the spool of this data folder."""


@dataclass
class Recovered:
    """What `Ledger.recover` found."""

    segments: int = 0
    closed: int = 0
    torn: int = 0


class Ledger:
    """The one writer of the spool; not thread-safe, it belongs to the event loop."""

    def __init__(self, folder: Path, *, boot_id: str, on_failure: Callable[[], None]) -> None:
        self._folder = folder
        self._boot_id = boot_id
        self._on_failure = on_failure
        self._file = self._lock = -1
        self._size = 0
        self._last_ms = 0
        self._torn = False
        self._failing = ""  # why the disk takes no lines
        self._waiting: deque[bytes] = deque()

    def start(self) -> Recovered:
        """Begin a segment and close in it what earlier gateways left open. Raises SpoolHeldError."""
        earlier: list[Path] = []
        try:
            private_folder(self._folder)
            self._take_lock()
            earlier = sorted(self._folder.glob("spool-*.jsonl"))
            # Newest by its name, whatever the clock says: the agent deletes every finished segment but the newest.
            self._last_ms = max((_start_ms(path) for path in earlier), default=0)
        except OSError as error:
            self._failed(error)
        found = self._recover(earlier)  # before there is a newer segment: until then the agent deletes none of these
        if self._file < 0:
            self._begin_segment()
        return found

    def stop(self) -> None:
        """Write what waits, and make it survive a power cut."""
        self.flush()
        if self._file >= 0:
            try:
                os.fsync(self._file)
            except OSError as error:
                self._failed(error)
            os.close(self._file)
            self._file = -1
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def open(self, record: dict[str, Any]) -> None:
        """Say that a request is about to be forwarded; `record` has the fields of UsageRecord known so far."""
        self._append(b'{"op":"open","record":' + _encoded(record) + b"}\n")

    def close(self, record: UsageRecord) -> None:
        """Say how a request ended."""
        self._append(b'{"op":"close","record":' + _encoded(record) + b"}\n")

    def flush(self) -> None:
        """Try again what could not be written; called now and then."""
        while self._waiting:
            if not self._write(self._waiting[0]):
                return
            self._waiting.popleft()
        if self._failing:
            self._failing = ""
            event(log, "usage_spool_writable_again")

    @property
    def waiting(self) -> int:
        """Lines that could not be written yet."""
        return len(self._waiting)

    @property
    def problems(self) -> tuple[str, ...]:
        """For people."""
        if not self._failing:
            return ()
        text = f"usage records cannot be written to {self._folder} ({self._failing}): make room, or mend the folder"
        return (f"{text}; until then they wait in the gateway's memory, {BACKLOG} lines at most",)

    def _append(self, line: bytes) -> None:
        if not self._waiting and self._write(line):
            return
        if len(self._waiting) >= BACKLOG:
            self._waiting.popleft()
            self._on_failure()
        self._waiting.append(line)

    def _write(self, line: bytes) -> bool:
        if self._file < 0 or self._size >= SEGMENT:
            self._begin_segment()
        if self._file < 0:
            return False
        if self._torn:  # a disk that filled up within a line: the readers skip that one
            line = b"\n" + line
        try:
            written = os.write(self._file, line)
        except OSError as error:
            self._failed(error)
            return False
        self._size += written
        self._torn = written < len(line)
        if self._torn:
            self._failed(OSError("the disk took a part of a line only"))
        return not self._torn

    def _take_lock(self) -> None:
        """Hold the folder until `stop`, or until the process ends in whatever way."""
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise SpoolHeldError(
                f"another gateway writes {self._folder}: stop it first, or set LLMGW_DATA to another folder"
            ) from None
        self._lock = handle

    def _begin_segment(self) -> None:
        now_ms = max(time.time_ns() // 1_000_000, self._last_ms + 1)
        path = self._folder / f"spool-{now_ms:020d}-{self._boot_id}.jsonl"
        try:
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._failed(error)
            return
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size, self._last_ms, self._torn = file, 0, now_ms, False

    def _failed(self, error: OSError) -> None:
        self._on_failure()
        first, self._failing = not self._failing, error.strerror or str(error)
        if first:  # not for each request
            event(log, "usage_write_failed", level=logging.ERROR, error=self._failing)

    def _recover(self, segments: list[Path]) -> Recovered:
        found = Recovered(segments=len(segments))
        left: dict[str, dict[str, Any]] = {}
        for path in segments:
            for line, whole in _lines(path):
                record = line.get("record") if isinstance(line, dict) else None
                record_id = record.get("record_id") if isinstance(record, dict) else None
                if not isinstance(record, dict) or not isinstance(record_id, str):
                    found.torn += 1
                elif line["op"] == "open":
                    left[record_id] = record
                else:
                    left.pop(record_id, None)
                    if not whole:  # only its newline is missing, without which nobody ships it
                        self._append(b'{"op":"close","record":' + orjson.dumps(record) + b"}\n")
        for record in left.values():
            ended = {**record, "outcome": Outcome.FAILED, "status": HTTP_STATUS[Kind.INTERNAL], "code": RESTARTED}
            self._append(b'{"op":"close","record":' + orjson.dumps({**_EMPTY, **ended}) + b"}\n")
        found.closed = len(left)
        if found.closed or found.torn:
            event(log, "usage_spool_recovered", segments=found.segments, closed=found.closed, torn=found.torn)
        return found


_EMPTY = asdict(UsageRecord(record_id="", request_id="", started_at=0.0, endpoint=""))


def _encoded(record: UsageRecord | dict[str, Any]) -> bytes:
    """As JSON. A field that JSON cannot hold is left out: the rest of the record is worth more than nothing."""
    try:
        return orjson.dumps(record)
    except TypeError as error:
        fields = record if isinstance(record, dict) else asdict(record)
        kept = {name: value for name, value in fields.items() if _encodes(value)}
        gone = sorted(fields.keys() - kept.keys())
        event(log, "usage_fields_left_out", level=logging.ERROR, fields=gone, error=str(error))
        return orjson.dumps(kept)


def _encodes(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def _start_ms(path: Path) -> int:
    """The start in a segment's name; 0 where it has none."""
    text = path.name.split("-")[1]
    return int(text) if text.isdecimal() else 0


def _lines(path: Path) -> Iterator[tuple[Any, bool]]:
    """The lines of a segment, parsed, and whether they have their newline; None for one that was cut off."""
    try:
        with path.open("rb") as file:
            for line in file:
                if line.strip():
                    try:
                        value = orjson.loads(line)
                    except orjson.JSONDecodeError:
                        value = None
                    ours = isinstance(value, dict) and value.get("op") in ("open", "close")
                    yield value if ours else None, line.endswith(b"\n")
    except OSError as error:
        event(log, "usage_segment_unreadable", level=logging.ERROR, file=path.name, error=error.strerror)
