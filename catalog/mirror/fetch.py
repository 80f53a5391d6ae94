"""Brings one file, whole and checked, over several connections at once.

A connection that breaks is made anew at the byte where it broke; a process that was killed goes on with the segments that
are missing (`parts`). What arrives is hashed as it comes, in the file's order, and compared with what the registry
published: a file whose bytes are others is discarded and named.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Protocol

import httpx

from catalog.domain.spans import SEGMENT, Span, missing
from catalog.mirror.parts import Part
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import KIB, MIB

CONNECTIONS = 4
RETRIES = 6
"""Tries in a row that bring no byte, for one span, until the fetch gives up for now; what was fetched stays."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
LOOK = 0.2
"""Seconds after which a waiting connection sees that another has failed."""
TRICKLE, LEAST = 60.0, 64 * KIB
"""Seconds in which an answer has to bring so many bytes: else it would be awaited for days, and another place not tried."""
HASH_PIECE = 1 * MIB
RANGE = re.compile(r"bytes (?P<start>[0-9]{1,20})-(?P<end>[0-9]{1,20})/(?P<total>[0-9]{1,20})")
Tell = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A file as it must be. `sha256`, or `blob` (git's SHA-1 over its length and bytes) where no SHA-256 is published."""

    path: str
    size: int
    sha256: str = ""
    blob: str = ""

    @property
    def mark(self) -> str:
        return f"{self.size} {self.sha256 or self.blob or '-'}"


class Origin(Protocol):
    """Where a file comes from. `opened` gives the answer to a request for bytes from `start` to before `end` (None: for the
    whole file, no range asked). It raises Refused; one with `retry_after` may be tried again."""

    def opened(self, path: str, *, start: int, end: int | None) -> AbstractContextManager[httpx.Response]: ...


class RangesIgnored(Exception):
    """The server sends the whole file whatever is asked for."""


def fetch(
    wanted: Wanted, target: Path, origin: Origin, *, connections: int = CONNECTIONS, stop: Event | None = None,
    tell: Tell = lambda done: None, **room: int,
) -> None:  # fmt: skip
    """Have the file at `target`, nothing else at the end than that or what the next try goes on with.

    `tell` gets the bytes that are there, now and then, from several threads. Raises Refused:
    1. `fetch_stopped`   `stop` was set
    2. `disk_full`
    3. `file_wrong`      the bytes are not those that were published: discarded
    4. what the origin refuses with, after RETRIES tries that brought nothing
    """
    with Part(target, size=wanted.size, mark=wanted.mark, **room) as part:
        stop = stop or Event()
        try:
            with _Digest(part, wanted) as digest:
                spans = missing(part.done, wanted.size, connections)
                _Work(wanted, part, origin, stop, tell).spans(spans, connections)
                found = digest.result()
        except RangesIgnored:
            _Work(wanted, part, origin, stop, tell).whole()
            with _Digest(part, wanted) as digest:
                found = digest.result()
        if found != (wanted.sha256 or wanted.blob or found):
            part.discard()
            text = f"{wanted.path} was fetched whole and has the checksum {found}, not {wanted.sha256 or wanted.blob} as published"
            raise Refused(Kind.UPSTREAM, "file_wrong", f"{text}: it was discarded; fetch it again, or from elsewhere")
        part.keep()


class _Work:
    """The connections of one fetch. The first failure ends all of them."""

    def __init__(self, wanted: Wanted, part: Part, origin: Origin, stop: Event, tell: Tell) -> None:
        self._wanted, self._part, self._origin, self._tell = wanted, part, origin, tell
        self._stop = stop
        self._failed = Event()
        self._fetched = part.fetched
        self._lock = Lock()

    def spans(self, spans: list[Span], connections: int) -> None:
        """Raises the first failure once all have ended. No end of the process waits for the threads: a connection may hang."""
        left, errors = deque(spans), deque[BaseException]()
        threads = [
            Thread(target=self._several, args=(left, errors), name="fetch", daemon=True)
            for _ in range(min(max(1, connections), len(spans)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        self._check()

    def _several(self, left: deque[Span], errors: deque[BaseException]) -> None:
        """One connection's work: span after span, as long as there are some."""
        try:
            while (span := _next(left)) is not None:
                self._span(span)
        except _Ended:
            return
        except BaseException as error:
            errors.append(error)
            self._failed.set()

    def _span(self, span: Span) -> None:
        at, tries, pause = span.start, 0, FIRST_PAUSE
        while at < span.end:
            self._check()
            before = at
            try:
                for piece in self._pieces(at, span.end):
                    at = self._take(piece, at, span.end)
                return
            except httpx.HTTPError as error:
                problem = _broken(self._wanted.path, error)
            except Refused as refused:
                if refused.retry_after is None:
                    raise
                problem = refused
            tries, pause = (0, FIRST_PAUSE) if at > before else (tries + 1, min(pause * 2, LONGEST_PAUSE))
            if tries >= RETRIES:
                raise problem
            self._wait(max(pause, problem.retry_after or 0.0) if tries else FIRST_PAUSE)

    def whole(self) -> None:
        """The file from its first byte to its last in one answer; one that breaks off begins again."""
        pause = FIRST_PAUSE
        for _ in range(RETRIES):
            self._part.forget()
            self._fetched = at = 0
            try:
                with self._origin.opened(self._wanted.path, start=0, end=None) as response:
                    for piece in _checked(response, self._wanted, None):
                        at = self._take(piece, at, self._wanted.size)
                return
            except httpx.HTTPError as error:
                problem = _broken(self._wanted.path, error)
            self._wait(pause := min(pause * 2, LONGEST_PAUSE))
        raise problem

    def _pieces(self, at: int, end: int) -> Iterator[bytes]:
        """What the origin sends of these bytes; the whole file is asked for without a range."""
        alone = at == 0 and end == self._wanted.size
        with self._origin.opened(self._wanted.path, start=at, end=None if alone else end) as response:
            yield from _checked(response, self._wanted, None if alone else Span(at, end))

    def _take(self, piece: bytes, at: int, end: int) -> int:
        """Write what came, mark the segments that are whole by it. Gives the next offset."""
        self._check()
        view = memoryview(piece)[: end - at]
        self._part.write(view, at)
        first, after = at // SEGMENT, at + len(view)
        for number in range(first, -(-after // SEGMENT)):
            if after >= min((number + 1) * SEGMENT, self._wanted.size):
                self._part.finish(number)
        with self._lock:
            self._fetched += len(view)
            fetched = self._fetched
        self._tell(fetched)
        return after

    def _check(self) -> None:
        if self._stop.is_set():
            raise Refused(Kind.CONFLICT, "fetch_stopped", f"the fetch of {self._wanted.path} was stopped")
        if self._failed.is_set():
            raise _Ended

    def _wait(self, seconds: float) -> None:
        """Until it is time for another try, or no try is wanted any more."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._check()
            self._stop.wait(min(left, LOOK))


def _next(left: deque[Span]) -> Span | None:
    try:
        return left.popleft()
    except IndexError:
        return None


class _Ended(Exception):
    """Another connection of the same fetch has failed."""


def _checked(response: httpx.Response, wanted: Wanted, span: Span | None) -> Iterator[bytes]:
    """The body of an answer that is what was asked for, and nothing beyond it.

    1. 200 to a range: the server ignores ranges
    2. 206 with exactly the bytes that were asked for, of a file of that length
    3. anything else is another file, or none
    4. an end before all of them came: httpx.RemoteProtocolError, also where the answer itself counts as whole
    5. hardly anything for a long while: httpx.ReadTimeout
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise _changed(wanted, "compressed bytes came")
    if span is not None and response.status_code == 200:  # 1
        raise RangesIgnored
    if span is not None:
        found = RANGE.fullmatch(response.headers.get("content-range", ""))
        got = found and (int(found["start"]), int(found["end"]) + 1, int(found["total"]))
        if response.status_code != 206 or got != (span.start, span.end, wanted.size):  # 3
            told = response.headers.get("content-range", "no range")[:100]
            raise _changed(wanted, f"HTTP {response.status_code} with {told!r}")
    else:
        length = response.headers.get("content-length", f"{wanted.size}")[:30]
        if response.status_code != 200 or length != f"{wanted.size}":  # 3
            raise _changed(wanted, f"HTTP {response.status_code} with {length} bytes")
    left = before = wanted.size if span is None else span.end - span.start
    since = time.monotonic()
    for piece in response.iter_raw():
        yield piece
        left -= len(piece)
        if left <= 0:
            return
        if (now := time.monotonic()) - since >= TRICKLE:
            if before - left < LEAST:  # 5
                raise httpx.ReadTimeout(f"{before - left} bytes in {now - since:.0f} s")
            before, since = left, now
    raise httpx.RemoteProtocolError(f"it ended {left} bytes too early")  # 4


class _Digest:
    """The checksum of a part, taken as far as its segments are there, in order, beside the connections."""

    def __init__(self, part: Part, wanted: Wanted) -> None:
        self._part = part
        self._ended = False
        self._made: str | None = None
        self._blob = not wanted.sha256 and bool(wanted.blob)
        self._thread = Thread(target=self._run, name="fetch-digest", daemon=True)
        self._thread.start()

    def _new(self) -> Any:
        return hashlib.sha1(b"blob %d\0" % self._part.size, usedforsecurity=False) if self._blob else hashlib.sha256()

    def _run(self) -> None:
        digest = self._new()
        for number in range(len(self._part.done)):
            with self._part.changed:
                while not self._part.done[number] and not self._ended:
                    self._part.changed.wait()
                if self._ended:
                    return
            start = number * SEGMENT
            for at in range(start, min(start + SEGMENT, self._part.size), HASH_PIECE):
                digest.update(self._part.read(at, min(HASH_PIECE, start + SEGMENT - at)))
        self._made = digest.hexdigest()

    def result(self) -> str:
        """The checksum of all segments. To be asked for when all are there."""
        self._thread.join()
        if self._made is None:
            raise RuntimeError("the digest was ended before it was made")
        return self._made

    def __enter__(self) -> _Digest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._part.changed:
            self._ended = True
            self._part.changed.notify_all()
        self._thread.join()


def _broken(path: str, error: httpx.HTTPError) -> Refused:
    text = f"the connection for {path} broke ({type(error).__name__}: {str(error)[:200]})"
    return Refused(Kind.UPSTREAM, "fetch_broken", text, retry_after=FIRST_PAUSE)


def _changed(wanted: Wanted, what: str) -> Refused:
    text = f"{wanted.path} was to have {wanted.size} bytes, and {what}: it is another file, or no file"
    return Refused(Kind.UPSTREAM, "file_changed", text)
