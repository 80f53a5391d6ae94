"""Files that are whole or absent: written beside, synced, renamed. Sources: rename(2), open(2), fsync(2)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

Mark = tuple[int, int, int]
"""What changes when a file is written or replaced."""


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600) -> Mark:
    """Replace `path` by `data`: a reader sees the old content or the new, never a part; so does a crash.

    Gives the mark of what was written, whatever somebody else has put there meanwhile: a file with another is not ours.
    """
    with _beside(path, data, mode) as written:
        made = _mark(written.stat())
        written.replace(path)
    sync_folder(path.parent)
    return made


def write_once(path: Path, data: bytes, *, mode: int = 0o600) -> bytes:
    """Make `path` unless it is there, and return its content: of several that write at once all get the first one's."""
    if not path.exists():
        with _beside(path, data, mode) as written, suppress(FileExistsError):
            path.hardlink_to(written)
        sync_folder(path.parent)
    return path.read_bytes()


@contextmanager
def _beside(path: Path, data: bytes, mode: int) -> Iterator[Path]:
    """A synced file with this content in the folder of `path`; gone afterwards, unless it was renamed."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def write_json(path: Path, value: Any, *, mode: int = 0o600) -> Mark:
    """`write_atomic` of `value` as JSON."""
    return write_atomic(path, orjson.dumps(value), mode=mode)


def read_json(path: Path) -> Any | None:
    """What `write_json` wrote; None where the file is missing or is no JSON (another program's, a bad disk)."""
    try:
        return orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None


def mark(path: Path) -> Mark | None:
    """The mark of what lies there; None where there is no file. Costs one stat."""
    try:
        return _mark(path.stat())
    except OSError:
        return None


def _mark(found: os.stat_result) -> Mark:
    return found.st_mtime_ns, found.st_ino, found.st_size


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def private_folder(path: Path) -> Path:
    """Make `path` (and its parents) if need be, closed to everybody else (mode 0700)."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)
    return path
