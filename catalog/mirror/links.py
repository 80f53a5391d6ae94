"""Files that another version here has already: they get a second name, or are copied where the disk gives none.

What is taken was compared when it came, and is compared once more: a file that was damaged since spoils no other version. A file
is never written to once it has its name, so two versions can share it, and either may go.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import httpx

from catalog.mirror.fetch import HASH_PIECE, Tell, Wanted
from catalog.mirror.parts import forget
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.files import sync_folder

NO_LINKS = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
)


class CannotLink(Exception):
    """The file system gives this file no second name."""


def link(source: Path, target: Path, wanted: Wanted, *, stop: Event | None, tell: Tell) -> bool:
    """Have the file at `source` also at `target`, where its bytes are those that are wanted. `tell` gets how many were compared.

    1. it is gone, cannot be read, or has other bytes: False, and nothing is left behind
    2. CannotLink
    3. Refused `fetch_stopped`
    A process that is killed here leaves a name that the next try removes.
    """
    own = target.with_name(target.name + ".link")
    target.parent.mkdir(parents=True, exist_ok=True)
    own.unlink(missing_ok=True)
    try:
        os.link(source, own, follow_symlinks=False)
    except FileNotFoundError:  # 1
        return False
    except OSError as error:
        if error.errno in NO_LINKS:  # 2
            raise CannotLink from None
        raise
    try:
        if not _same(own, wanted, stop, tell):  # 1
            return False
        forget(target)
        own.replace(target)
        sync_folder(target.parent)
        return True
    finally:
        own.unlink(missing_ok=True)


def _same(path: Path, wanted: Wanted, stop: Event | None, tell: Tell) -> bool:
    digest, done = hashlib.sha256(), 0
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb", buffering=0) as file:
            while piece := file.read(HASH_PIECE):
                if stop is not None and stop.is_set():  # 3
                    raise Refused(Kind.CONFLICT, "fetch_stopped", f"the fetch of {wanted.path} was stopped")
                digest.update(piece)
                done += len(piece)
                tell(min(done, wanted.size))
    except OSError:
        return False
    return done == wanted.size and digest.hexdigest() == wanted.sha256


class FromFile:
    """A file of this machine as an origin: what is copied is compared, and goes on after a kill, as what is fetched."""

    def __init__(self, source: Path) -> None:
        self._source = source

    @contextmanager
    def opened(self, path: str, *, start: int, end: int | None) -> Iterator[httpx.Response]:
        """Raises Refused `weights_not_here`."""
        try:
            handle = os.open(self._source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            text = f"{path} is not in the other version any more"
            raise Refused(Kind.NOT_FOUND, "weights_not_here", text) from None
        try:
            size = os.fstat(handle).st_size
            until = size if end is None else min(end, size)
            told = {"content-length": str(until - start)}
            if start or end is not None:
                told["content-range"] = f"bytes {start}-{until - 1}/{size}"
            yield httpx.Response(206 if len(told) > 1 else 200, headers=told, stream=_Pieces(handle, start, until))
        finally:
            os.close(handle)


class _Pieces(httpx.SyncByteStream):
    def __init__(self, handle: int, start: int, end: int) -> None:
        self._handle, self._at, self._end = handle, start, end

    def __iter__(self) -> Iterator[bytes]:
        while self._at < self._end and (
            piece := os.pread(self._handle, min(HASH_PIECE, self._end - self._at), self._at)
        ):
            self._at += len(piece)
            yield piece
