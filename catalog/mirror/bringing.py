"""Brings what a version lacks, file by file: from other versions here, else from an origin. A file gets its name when it was compared."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event

from catalog.domain.manifests import Manifest, ManifestFile
from catalog.mirror.fetch import Origin, Tell, Wanted, fetch
from catalog.mirror.links import CannotLink, FromFile, link
from llmgw_site.lib.errors import Refused

Content = tuple[str, int]
"""SHA-256 and bytes of a file."""


class Bringing:
    """One try, for as long as the version is locked. `folder`: where its files lie; `others`: where other versions have such. `tell` gets the bytes of the version that are there,
    `here` those of them that other versions gave."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        others: Mapping[Content, Sequence[Path]],
        *,
        stop: Event | None,
        tell: Tell,
        here: Tell,
    ) -> None:
        self._folder, self._manifest, self._others = folder, manifest, others
        self._stop, self._tell, self._here = stop, tell, here
        self._there = self._shared = 0

    def link(self) -> None:
        """Give a second name to the files that other versions have. It takes no room on the disk. Raises Refused `fetch_stopped`."""
        for file in self._manifest.files:
            if is_there(self._target(file), file.size):
                self._there += file.size
                self._shared += file.size if self._target(file).lstat().st_nlink > 1 else 0  # before a kill
        self._say()
        for file in self._lacking():
            if any(self._linked(path, file) for path in self._alike(file)):
                self._there, self._shared = self._there + file.size, self._shared + file.size
            self._say()

    def fetch(self, origin: Origin, *, connections: int, reserve: int) -> None:
        """The rest: copied where a second name was refused, else from the origin. Raises Refused as `fetch` does."""
        for file in self._lacking():
            target = self._target(file)
            target.unlink(missing_ok=True)  # what somebody cut short, or a link
            bring = partial(
                fetch, _wanted(file), target, connections=connections, stop=self._stop, reserve=reserve
            )  # fmt: skip
            copy = partial(bring, tell=self._more(True))
            if any(_copied(path, copy) for path in self._alike(file)):
                self._shared += file.size
            else:
                bring(origin, tell=self._more(False))
            self._there += file.size
            self._say()

    def _linked(self, source: Path, file: ManifestFile) -> bool:
        try:
            return link(source, self._target(file), _wanted(file), stop=self._stop, tell=self._more(True))
        except CannotLink:
            return False

    def _alike(self, file: ManifestFile) -> Iterator[Path]:
        return (path for path in self._others.get((file.sha256, file.size), ()) if is_there(path, file.size))

    def _lacking(self) -> list[ManifestFile]:
        return [file for file in self._manifest.files if not is_there(self._target(file), file.size)]

    def _target(self, file: ManifestFile) -> Path:
        return self._folder / file.path

    def _more(self, shared: bool) -> Tell:
        """Tells how far one more file is, of another version or of the origin."""
        there, before = self._there, self._shared

        def tell(done: int) -> None:
            if shared:
                self._here(before + done)
            self._tell(there + done)

        return tell

    def _say(self) -> None:
        self._here(self._shared)
        self._tell(self._there)


def _copied(source: Path, bring: Callable[[Origin], None]) -> bool:
    """Whether a file of this disk had the bytes; what of it is good stays for the next way."""
    try:
        bring(FromFile(source))
    except Refused as refused:
        if refused.code in ("fetch_stopped", "disk_full"):
            raise
        return False
    except OSError:  # that file cannot be read; where this disk fails, the next way says so
        return False
    return True


def is_there(target: Path, size: int) -> bool:
    """Whether a file has its name and its size. Its bytes were compared when it got the name."""
    try:
        found = target.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size


def _wanted(file: ManifestFile) -> Wanted:
    return Wanted(path=file.path, size=file.size, sha256=file.sha256, blob=file.blob)
