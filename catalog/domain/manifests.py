"""What a version of weights consists of: its files as they must be, and where they came from. Pure.

A manifest is written once, by the controllers, and never changed: other files are another version. It travels to nodes and
between them, so what is read is vetted as data from strangers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from catalog.domain.cards import COMMIT, MAX_PATH, PATH, SHA256
from catalog.domain.foreign import plain
from catalog.domain.repository import Format
from llmgw_site.lib.errors import Kind, Refused

VERSION = re.compile(r"[a-z]{2,8}_[0-9A-Za-z]{8,40}")
MAX_FILES = 2000
MAX_SIZE = 1 << 60
MAX_NAME = 250
"""Bytes of a file's or folder's name: file systems take 255, and what is on its way has an ending more."""
BESIDE = (".part", ".map", ".link")
"""These endings: what lies beside a file while it is on its way (catalog/mirror/parts.py, links.py)."""


@dataclass(frozen=True, kw_only=True)
class ManifestFile:
    """One file. `sha256`, or `blob` (git's SHA-1) where no SHA-256 is published. `url`: where it lies, of plain addresses."""

    path: str
    size: int
    sha256: str = ""
    blob: str = ""
    url: str = ""

    @property
    def checked(self) -> bool:
        return bool(self.sha256 or self.blob)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """`first`: the file that an engine is given, "" for a folder. `registry` "": plain addresses."""

    id: str
    format: Format
    files: tuple[ManifestFile, ...]
    first: str = ""
    registry: str = ""
    repository: str = ""
    commit: str = ""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def file(self, path: str) -> ManifestFile | None:
        return next((file for file in self.files if file.path == path), None)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def manifest_from_dict(data: Any) -> Manifest:
    """What `as_dict` made, vetted. Raises Refused `manifest_bad`: which part, and why."""
    if not isinstance(data, Mapping) or not isinstance(data.get("files"), (list, tuple)):
        raise _bad("it is no manifest")
    text = {name: _text(data, name) for name in ("id", "format", "first", "registry", "repository", "commit")}
    if not VERSION.fullmatch(text["id"]):
        raise _bad(f"{text['id'][:60]!r} names no version")
    if text["format"] not in set(Format):
        raise _bad(f"{text['format'][:40]!r} is no format of weights")
    if text["commit"] and not COMMIT.fullmatch(text["commit"]):
        raise _bad("its commit is none")
    if not 0 < len(data["files"]) <= MAX_FILES:
        raise _bad(f"it has {len(data['files'])} files, and 1 to {MAX_FILES} are allowed")
    files = tuple(_file(item) for item in data["files"])
    paths = {file.path for file in files}
    if len(paths) != len(files) or any(folder in paths for path in paths for folder in _folders(path)):
        raise _bad("two of its files have one name")
    beside = {path + ending for path in paths for ending in BESIDE}
    if wrong := next((place for path in paths for place in (path, *_folders(path)) if place in beside), ""):
        raise _bad(f"{wrong[:80]} would lie where a file of it is kept while that is on its way")
    if text["first"] and text["first"] not in paths:
        raise _bad(f"its first file {text['first'][:80]} is none of its files")
    return Manifest(**{**text, "format": Format(text["format"]), "files": files})  # type: ignore[arg-type]


def _folders(path: str) -> Iterator[str]:
    """On the way to this file."""
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))


def _file(data: Any) -> ManifestFile:
    if not isinstance(data, Mapping):
        raise _bad("one of its files is none")
    path, size = _text(data, "path"), data.get("size")
    if len(path) > MAX_PATH or not PATH.fullmatch(path) or any(part.startswith(".") for part in path.split("/")):
        raise _bad(f"{path[:80]!r} is no path of a file")
    if not path.isprintable() or any(len(part.encode()) > MAX_NAME for part in path.split("/")):
        raise _bad(f"no disk or engine here takes {path[:80]!r}: names are printable and have {MAX_NAME} bytes at most")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_SIZE:
        raise _bad(f"{path[:80]} has no size")
    sha256, blob = _text(data, "sha256"), _text(data, "blob")
    if (sha256 and not SHA256.fullmatch(sha256)) or (blob and not COMMIT.fullmatch(blob)):
        raise _bad(f"the checksum of {path[:80]} is none")
    return ManifestFile(path=path, size=size, sha256=sha256, blob=blob, url=_text(data, "url")[:2000])


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name, "")
    if not isinstance(value, str):
        raise _bad(f"its {name} is no text")
    return value


def _bad(why: str) -> Refused:
    return Refused(Kind.INVALID, "manifest_bad", plain(f"a list of weights was refused: {why}", 1000))


class Held(NamedTuple):
    """A version on a disk. `used_at`: seconds, Unix time; `files`: bytes by what names them there, so that what two versions
    share has one name."""

    id: str
    files: Mapping[Hashable, int]
    used_at: float


def together(versions: Iterable[Mapping[Hashable, int]]) -> int:
    """Bytes that versions take on a disk: what several share counts once."""
    every: dict[Hashable, int] = {}
    for files in versions:
        every.update(files)
    return sum(every.values())


def to_make_room(
    held: Sequence[Held], *, limit: int | None, needed: Mapping[Hashable, int], kept: Collection[str]
) -> tuple[str, ...] | None:
    """Which versions go so that the files that are `needed` and all others keep to `limit` bytes; () is: none has to. None: not
    even all would do.

    1. no limit: none
    2. of those that nobody needs (`kept` names the others) the least recently used first, and no more than it takes. What another
       version shares is free only when that goes, too
    3. one that frees nothing after all stays
    """
    if limit is None:  # 1
        return ()
    users = Counter(name for files in (needed, *(item.files for item in held)) for name in files)
    over = together([needed, *(item.files for item in held)]) - limit
    gone: list[Held] = []
    for item in sorted((item for item in held if item.id not in kept), key=lambda item: (item.used_at, item.id)):  # 2
        if over <= 0:
            break
        gone.append(item)
        users.subtract(item.files.keys())
        over -= sum(size for name, size in item.files.items() if not users[name])
    if over > 0:
        return None
    for item in reversed(gone):  # 3
        if not sum(size for name, size in item.files.items() if not users[name]):
            gone.remove(item)
            users.update(item.files.keys())
    return tuple(item.id for item in gone)
