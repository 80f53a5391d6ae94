"""SHA-256 of large files beside the tasks: begun once, looked at often, so that no task lasts as long as a file does."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

CHUNK = 4 << 20
KEEP = 32
"""Finished digests that are remembered."""

_pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sha256")
_running: dict[tuple[str, int, int], Hashing] = {}
_lock = Lock()


@dataclass
class Hashing:
    """A file that is being hashed, or was: `done` bytes of `size`."""

    path: Path
    size: int
    done: int = 0
    result: Future[str] = field(default_factory=Future)

    def run(self) -> None:
        digest = hashlib.sha256()
        try:
            with self.path.open("rb") as file:
                while chunk := file.read(CHUNK):
                    digest.update(chunk)
                    self.done += len(chunk)
        except OSError as error:
            self.result.set_exception(error)
        else:
            self.result.set_result(digest.hexdigest())

    @property
    def progress(self) -> float:
        return self.done / self.size if self.size else 1.0


def look(path: Path) -> Hashing:
    """The hashing of this file as it is now, begun if need be. Raises OSError where there is none.

    Known by path, size and time of change: a file that was replaced is hashed anew.
    """
    facts = path.stat()
    key = (str(path), facts.st_size, facts.st_mtime_ns)
    with _lock:
        found = _running.get(key)
        if found is None or (found.result.done() and found.result.exception() is not None):
            for old in [item for item, job in _running.items() if job.result.done()][:-KEEP]:
                del _running[old]
            found = _running[key] = Hashing(path, facts.st_size)
            _pool.submit(found.run)
    return found
