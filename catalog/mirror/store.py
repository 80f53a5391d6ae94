"""The weights that a machine has: one folder for each version, with its manifest, its files, and a mark that it is whole.

    ROOT/VERSION/manifest.json    what it is to be
    ROOT/VERSION/files/...        what is there; unfinished files have .part and .map beside them. A file that several versions
                                  have is one file with several names, where the disk allows
    ROOT/VERSION/whole            every file was fetched and checked; its time of change: when it was used last. A version of which
                                  a file has gone since, or has another size, is not whole any more: that file is fetched again
    ROOT/VERSION/lock             held by whoever fetches into it; the lock goes with the process, nobody deletes it

A version is given to others, and to engines, only when it is whole.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock

from catalog.domain.manifests import VERSION, Held, Manifest, ManifestFile, manifest_from_dict, to_make_room, together
from catalog.domain.repository import Format
from catalog.domain.safetensors import MAX_INDEX, BadSafetensors, read_index
from catalog.mirror.bringing import Bringing, Content, is_there
from catalog.mirror.fetch import CONNECTIONS, Origin, Tell
from catalog.mirror.parts import RESERVE, fetched, to_come
from llmgw_site.lib import files
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import format_bytes

Kept = Callable[[], Collection[str]]
MANIFEST, FILES, WHOLE, LOCK, GONE = "manifest.json", "files", "whole", "lock", ".gone-"


@dataclass(frozen=True, kw_only=True)
class Status:
    """A version here. `there`: bytes of finished files and finished segments; `whole`: all of them, checked."""

    manifest: Manifest
    whole: bool
    there: int
    used_at: float


class Store:
    """The versions below `root`. `limit`: bytes that they may take together, None: what the disk has."""

    def __init__(self, root: Path, *, limit: int | None = None, reserve: int = RESERVE) -> None:
        self.root, self.limit, self._reserve = root, limit, reserve
        self._room = Lock()
        self._coming: set[str] = set()  # versions that are being fetched: they count as they will be

    def versions(self) -> list[Status]:
        """Everything that is here, whole or not, by name. What is no version is left alone."""
        with suppress(FileNotFoundError):
            return [status for name in self._names() if (status := self.status(name)) is not None]
        return []

    def _names(self) -> list[str]:
        """Raises FileNotFoundError: there is no store yet."""
        return sorted(item.name for item in self.root.iterdir() if VERSION.fullmatch(item.name))

    def status(self, version: str) -> Status | None:
        """One version; None: it is not here, or its manifest cannot be read."""
        manifest = self.manifest(version)
        if manifest is None:
            return None
        folder = self._folder(version)
        used_at = 0.0
        with suppress(OSError):
            used_at = (folder / WHOLE).stat().st_mtime
        whole = bool(used_at) and all(is_there(folder / FILES / file.path, file.size) for file in manifest.files)
        there = manifest.size if whole else sum(self._there(folder, file) for file in manifest.files)
        return Status(manifest=manifest, whole=whole, there=there, used_at=used_at)

    def manifest(self, version: str) -> Manifest | None:
        """What a version is to be."""
        found = files.read_json(self._folder(version) / MANIFEST) if VERSION.fullmatch(version) else None
        with suppress(Refused):
            manifest = manifest_from_dict(found)
            return manifest if manifest.id == version else None
        return None

    def path(self, version: str, path: str | None = None) -> Path | None:
        """What an engine is given of a whole version: its first file, or its folder, or the file that is named ("": its folder).
        Notes that it is used. None: it is not whole, or has no such file."""
        status = self.status(version)
        if status is None or not status.whole:
            return None
        named = status.manifest.first if path is None else path
        if named and status.manifest.file(named) is None:
            return None
        with suppress(OSError):
            os.utime(self._folder(version) / WHOLE)
        return self._folder(version) / FILES / named

    @contextmanager
    def opened(self, version: str, path: str) -> Iterator[tuple[int, ManifestFile]]:
        """A file of a whole version, for reading. Raises Refused `weights_not_here`."""
        status = self.status(version)
        file = status.manifest.file(path) if status is not None and status.whole else None
        if file is None:
            raise Refused(
                Kind.NOT_FOUND, "weights_not_here", f"this node has no whole version {version[:60]} with that file"
            )
        try:
            handle = os.open(self._folder(version) / FILES / path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            raise Refused(Kind.NOT_FOUND, "weights_not_here", f"{path} of {version} is not here any more") from None
        try:
            yield handle, file
        finally:
            os.close(handle)

    def fetch(
        self, manifest: Manifest, origin: Origin, *, kept: Kept = tuple, stop: Event | None = None,
        tell: Tell = lambda done: None, here: Tell = lambda done: None, connections: int = CONNECTIONS,
    ) -> None:  # fmt: skip
        """Have a version whole here; one that is stays as it is. `kept`: versions that must not go to make room for it, as of the
        moment when it is asked: files are compared and removed for minutes.

        A file that another version has is taken from there, before room is made. `tell` gets the bytes of the version that are
        there, `here` those of them that other versions gave. Raises Refused:
        1. `fetch_running`        another process or thread fetches it
        2. `store_full`           not even all that nobody needs would make room below the limit; `disk_full`: nor has the disk any
        3. `weights_unchecked`    no checksum is known for a file
        4. `weights_incomplete`   its index names files that are none of its own
        5. whatever `fetch` refuses with
        """
        folder = self._folder(manifest.id)
        folder.mkdir(parents=True, exist_ok=True)
        with self._locked(folder):
            status = self.status(manifest.id)
            if status is not None and status.whole and status.manifest == manifest:
                return
            unchecked = next((file.path for file in manifest.files if not file.checked), "")
            if unchecked:  # 3
                text = f"no checksum of {unchecked} is known: give its SHA-256, so that what comes can be compared"
                raise Refused(Kind.INVALID, "weights_unchecked", text)
            files.write_json(folder / MANIFEST, manifest.as_dict())
            work = Bringing(folder / FILES, manifest, self.others(manifest), stop=stop, tell=tell, here=here)
            try:
                work.link()
                with self._room:
                    self._make_room(manifest, kept)
                    self._check_disk(folder, manifest)
                    self._coming.add(manifest.id)
                work.fetch(origin, connections=connections, reserve=self._reserve)
            finally:
                self._coming.discard(manifest.id)
            self._check_index(folder, manifest)
            (folder / WHOLE).touch()
            files.sync_folder(folder)

    def others(self, manifest: Manifest) -> dict[Content, list[Path]]:
        """Where other versions have files with the bytes of those of this one, by their manifests; each was compared when it came. Every
        manifest is read once, however many files there are."""
        wanted = {(file.sha256, file.size) for file in manifest.files if file.sha256}
        found: dict[Content, list[Path]] = {}
        for version in self._names():
            other = self.manifest(version) if version != manifest.id else None
            for file in other.files if other is not None else ():
                if (file.sha256, file.size) in wanted:
                    found.setdefault((file.sha256, file.size), []).append(self._folder(version) / FILES / file.path)
        return found

    def remove(self, version: str) -> bool:
        """Forget a version, whole or not. False: it is not here. Raises Refused `fetch_running`."""
        folder = self._folder(version)
        if not VERSION.fullmatch(version) or not folder.is_dir():
            return False
        with self._locked(folder):
            gone = self.root / f"{GONE}{version}-{os.getpid()}"
            folder.replace(gone)  # nobody meets half a version
        shutil.rmtree(gone, ignore_errors=True)
        return True

    def tidy(self) -> None:
        """Finish removals that were broken off."""
        with suppress(FileNotFoundError):
            for item in self.root.iterdir():
                if item.name.startswith(GONE):
                    shutil.rmtree(item, ignore_errors=True)

    def _make_room(self, manifest: Manifest, kept: Kept) -> None:
        stay = kept()
        others = [item for item in self.versions() if item.manifest.id != manifest.id]
        held = [Held(item.manifest.id, self._files(item.manifest), item.used_at) for item in others]
        needed = self._files(manifest, coming=True)
        gone = to_make_room(held, limit=self.limit, needed=needed, kept=stay)
        if gone is None:  # 2
            stays = [item.files for item in held if item.id in stay]
            text = (
                f"{format_bytes(together([needed, *stays]) - together(stays))} more do not fit: this node may keep "
                f"{format_bytes(self.limit or 0)} of weights, and {format_bytes(together(stays))} must stay: raise LLMGW_STORE_LIMIT, "
                "stop a model here, or remove what nothing needs (`llmgw mirror list`)"
            )
            raise Refused(Kind.CONFLICT, "store_full", text)
        for version in gone:
            if version in kept():  # since the one before began to go
                self._make_room(manifest, kept)
                return
            self.remove(version)

    def _files(self, manifest: Manifest, *, coming: bool = False) -> dict[Hashable, int]:
        """Bytes of a version by what names them on the disk: its inode where a file is there, which versions may share. One that is
        being fetched counts with all that it will have."""
        found: dict[Hashable, int] = {}
        coming = coming or manifest.id in self._coming
        for file in manifest.files:
            target = self._folder(manifest.id) / FILES / file.path
            if is_there(target, file.size):
                with suppress(OSError):
                    found[target.lstat().st_ino] = file.size
            else:
                found[manifest.id, file.path] = file.size if coming else fetched(target, file.size)
        return found

    def _check_disk(self, folder: Path, manifest: Manifest) -> None:
        """That all of it will find room, before the first byte is fetched."""
        targets = [(folder / FILES / file.path, file.size) for file in manifest.files]
        needed = sum(to_come(target, size) for target, size in targets if not is_there(target, size))
        found = os.statvfs(folder)
        left = found.f_bavail * found.f_frsize
        if needed > max(0, left - self._reserve):
            text = (
                f"it needs {format_bytes(needed)} more on the disk of {self.root}, which has {format_bytes(left)} free and "
                f"keeps {format_bytes(self._reserve)}: make room, or choose smaller weights"
            )
            raise Refused(Kind.CONFLICT, "disk_full", text)

    @staticmethod
    def _check_index(folder: Path, manifest: Manifest) -> None:
        """That every file which an index names is among those that were fetched."""
        if manifest.format is not Format.SAFETENSORS:
            return
        own = {file.path for file in manifest.files}
        for path in own:
            if not path.endswith(".safetensors.index.json"):
                continue
            try:
                with (folder / FILES / path).open("rb") as file:
                    named = read_index(file.read(MAX_INDEX + 1)).files
            except BadSafetensors as error:
                raise Refused(Kind.INVALID, error.code, f"{path} was refused. {error.message}") from None
            missing = sorted(set(named) - own)
            if missing:  # 4
                text = f"{path} names {', '.join(missing[:5])}, which the repository does not have: its owner has to mend it"
                raise Refused(Kind.INVALID, "weights_incomplete", text)

    @staticmethod
    def _there(folder: Path, file: ManifestFile) -> int:
        target = folder / FILES / file.path
        return file.size if is_there(target, file.size) else fetched(target, file.size)

    def _folder(self, version: str) -> Path:
        return self.root / version

    @contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = f"{folder.name} is being fetched already: wait for it, or cancel that first"
                raise Refused(Kind.CONFLICT, "fetch_running", text, retry_after=1.0) from None
            yield
        finally:
            os.close(handle)
