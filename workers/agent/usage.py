"""Ships closed usage records from the gateway's spool to the controllers, in order, each at least once.

`<data>/usage/spool-<start ms>-<boot id>.jsonl` are the gateway's segments (routing/domain/records.py); lines that have
no newline yet, or are torn, are skipped. How far each is committed stands in `shipped.json`; losing that file costs a
second shipping, nothing else, since a record is stored once by its id. A segment is deleted when it is not the newest,
all its closed records are committed, every record opened in it was closed somewhere, and no older one is left.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from llmgw_site.lib import files
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)
BATCH_RECORDS, BATCH_BYTES, BLOCK = 500, 1 << 20, 1 << 18
LONGEST_RECORD = 64 << 10
"""Bytes of a line that is shipped: a record has some hundreds, and one call has to hold a batch of them."""
REFUSALS_TO_GIVE_UP = 5


@dataclass(frozen=True, kw_only=True)
class Closed:
    """A close line: the record, where its line ends, and whether that is longer than controllers take."""

    record_id: str
    record: dict[str, Any]
    end: int
    too_long: bool = False


@dataclass(frozen=True, kw_only=True)
class Lines:
    """What a piece of a segment says. `end`: after its last whole line."""

    opened: tuple[str, ...]
    closed: tuple[Closed, ...]
    end: int


def read_lines(data: bytes, start: int, *, most: int = BATCH_RECORDS, most_bytes: int = BATCH_BYTES) -> Lines:
    """Read the whole lines of `data`, which begins at `start` of its segment. Pure.

    Stops after `most` close lines or `most_bytes`; a line that is no record of ours is skipped.
    """
    opened: list[str] = []
    closed: list[Closed] = []
    at = 0
    while len(closed) < most and at < most_bytes:
        newline = data.find(b"\n", at)
        if newline < 0:
            break
        line, at = data[at:newline], newline + 1
        try:
            item = orjson.loads(line)
            operation, record = item["op"], item["record"]
            record_id = record["record_id"]
        except (orjson.JSONDecodeError, LookupError, TypeError):
            continue
        if not isinstance(record_id, str):
            continue
        if operation == "open":
            opened.append(record_id)
        elif operation == "close":
            too_long = len(line) > LONGEST_RECORD
            closed.append(Closed(record_id=record_id, record=record, end=start + at, too_long=too_long))
    return Lines(opened=tuple(opened), closed=tuple(closed), end=start + at)


@dataclass(kw_only=True)
class _Segment:
    path: Path
    read: int = 0  # everything before it is committed, or needs no shipping
    open: set[str] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Closed records to ship, and how far their segment is done when all are committed."""

    segment: str
    closed: tuple[Closed, ...]
    opened: tuple[str, ...]
    end: int

    @property
    def records(self) -> tuple[dict[str, Any], ...]:
        """Those that controllers take."""
        return tuple(item.record for item in self.closed if not item.too_long)


class Spool:
    """The folder of segments as the agent sees it. One owner; every call is short."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segments: dict[str, _Segment] = {}
        self._refused = 0
        places = files.read_json(folder / "shipped.json")
        self._places: dict[str, int] = places if isinstance(places, dict) else {}

    def _look(self) -> list[_Segment]:
        """The segments, oldest first; new ones are taken in."""
        paths = sorted(self._folder.glob("spool-*.jsonl"))
        names = {path.name for path in paths}
        for name in [name for name in self._segments if name not in names]:
            del self._segments[name]
        for path in paths:
            if path.name not in self._segments:
                segment = self._segments[path.name] = _Segment(path=path)
                self._catch_up(segment, self._places.get(path.name, 0))
        return [self._segments[path.name] for path in paths]

    def _catch_up(self, segment: _Segment, place: object) -> None:
        """Read again what an earlier agent shipped, for the records that were opened there."""
        if not isinstance(place, int) or not 0 < place <= segment.path.stat().st_size:
            return
        while segment.read < place:
            lines = read_lines(self._piece(segment), segment.read)
            done = [item for item in lines.closed if item.end <= place]
            if lines.end == segment.read:
                break
            self._account(segment, lines.opened, done)
            segment.read = min(lines.end, place)

    def _piece(self, segment: _Segment) -> bytes:
        try:
            with segment.path.open("rb") as file:
                file.seek(segment.read)
                data = file.read(BLOCK)
                while b"\n" not in data and len(data) < BATCH_BYTES * 16 and (more := file.read(BLOCK)):
                    data += more
                return data
        except FileNotFoundError:
            return b""

    def _account(self, segment: _Segment, opened: tuple[str, ...], closed: list[Closed]) -> None:
        segment.open.update(opened)
        for item in closed:
            for other in self._segments.values():
                other.open.discard(item.record_id)

    def next_batch(self) -> Batch | None:
        """The oldest closed records that are not committed; None: all are. Finished segments go on the way."""
        segments = self._look()
        for segment in segments:
            while True:
                lines = read_lines(self._piece(segment), segment.read)
                if lines.closed:
                    return Batch(segment=segment.path.name, closed=lines.closed, opened=lines.opened, end=lines.end)
                if lines.end == segment.read:
                    break
                self._account(segment, lines.opened, [])
                # kept with the next commit, too: else the next agent reads them after their closes in a later segment
                segment.read = self._places[segment.path.name] = lines.end
        self._delete_finished(segments)
        return None

    def _delete_finished(self, segments: list[_Segment]) -> None:
        gone = False
        for segment in segments[:-1]:
            if segment.open:
                break  # and all behind it, where its closes may stand: a gateway that starts looks for them
            segment.path.unlink(missing_ok=True)
            self._segments.pop(segment.path.name, None)
            self._places.pop(segment.path.name, None)
            gone = True
        if gone:
            self._save()

    def committed(self, batch: Batch, stored: Collection[str], refused: Collection[str] = ()) -> bool:
        """Move on behind what is stored or refused now; whether that is all of the batch.

        A record that is too long for them, that the controllers refuse, or answer without storing five times in a row, is
        put aside in `refused.jsonl` (nothing measured is lost) so that those behind it get through.
        """
        segment = self._segments.get(batch.segment)
        if segment is None:
            return True
        missing = [item for item in batch.closed if item.record_id not in stored]
        if missing:
            if any(item.record_id not in refused and not item.too_long for item in missing):
                self._refused += 1
                if self._refused < REFUSALS_TO_GIVE_UP:
                    return False
            self._put_aside(missing)
        self._refused = 0
        self._account(segment, batch.opened, list(batch.closed))
        segment.read = batch.end
        self._places[batch.segment] = batch.end
        self._save()
        return True

    def _put_aside(self, closed: list[Closed]) -> None:
        event(log, "usage_refused", level=logging.ERROR, records=len(closed), first=closed[0].record_id)
        handle = os.open(self._folder / "refused.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "ab") as file:
            file.writelines(orjson.dumps(item.record) + b"\n" for item in closed)

    def _save(self) -> None:
        files.write_json(self._folder / "shipped.json", self._places)

    def waiting(self, *, most: int = 8 << 20) -> int | None:
        """Closed records that are not committed yet; None: too many bytes to count now."""
        left = [(s.path, s.read, s.path.stat().st_size) for s in self._look() if s.path.exists()]
        if sum(size - read for _, read, size in left) > most:
            return None
        count = 0
        for path, read, _ in left:
            with path.open("rb") as file:
                file.seek(read)
                count += sum(1 for line in file if line.startswith(b'{"op":"close"') and line.endswith(b"\n"))
        return count
