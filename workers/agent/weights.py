"""Weights on this node's disk: whether an engine can have them, and what lies there of those that the models need.

The paths to look for come with the snapshot, so a node says of each whether it has it, and nothing of other files.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import orjson

from catalog.domain.facts import shard_names
from catalog.mirror.store import Store
from cluster.wire import Heartbeat, Serve, Wanted, Weights, WeightsReport
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import format_bytes
from workers.agent.patience import Patient

log = logging.getLogger(__name__)
EVERY, SOON = 10.0, 0.25
"""Seconds between two looks, and until the first one for paths that were not asked for before."""
MOST, LONGEST, TOGETHER = 4096, 1024, 512 * 1024
"""Paths that are looked for, characters of one, and bytes of all: what goes beyond is not told. A heartbeat that controllers
find too large would be no heartbeat."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What lies at a path. `size`: bytes of all its parts; of a folder nothing is counted. None: no weights."""

    size: int = 0
    folder: bool = False
    regular: bool = True


@dataclass(frozen=True, kw_only=True)
class Absent:
    """`path`: the part that is not there, or that cannot be read; `reason`: of the system, empty: no right to."""

    path: str
    reason: str = ""


def find(path: str) -> Found | Absent:
    """Look at a file with all its parts (`NAME-00001-of-00003.gguf` names two more), or at a folder. Opens nothing."""
    first = Path(path)
    names = shard_names(first.name)
    size = 0
    for part in (first.with_name(name) for name in names) if len(names) > 1 else (first,):
        try:
            seen = part.stat()
            if not os.access(part, os.R_OK):
                return Absent(path=str(part))
        except (OSError, ValueError) as error:
            return Absent(path=str(part), reason=getattr(error, "strerror", None) or "no path")
        if not stat.S_ISREG(seen.st_mode):
            return Found(folder=stat.S_ISDIR(seen.st_mode), regular=False)
        size += seen.st_size
    return Found(size=size)


def problem(serve: Serve) -> tuple[str, str] | None:
    """Code and message, if the weights or an adapter are not there as the controllers know them.

    1. `weights_missing`    no such file, or this user cannot read it
    2. `weights_changed`    no regular file (a folder is right for vLLM only), or of another size
    """
    wrong = _problem(serve, serve.weights, "weights", cure="change the model's path")
    for adapter in serve.adapters:
        wrong = wrong or _problem(serve, adapter.weights, f"adapter {adapter.name}", cure="remove the adapter")
    return wrong


def _problem(serve: Serve, weights: Weights, what: str, *, cure: str) -> tuple[str, str] | None:
    path, size = weights.path, weights.size
    are, have = ("are", "have") if what == "weights" else ("is", "has")
    found = find(path)
    if isinstance(found, Absent):  # 1
        if not found.reason:
            text = f"The {what} {found.path} cannot be read by the user that runs llmgw: change the mode."
        else:
            text = f"The {what} {found.path} {are} not there ({found.reason}): bring the file back, or {cure}."
        return "weights_missing", text
    if found.folder and serve.engine == "vllm":
        return None
    if not found.regular:  # 2
        return "weights_changed", f"The {what} {path} {are} no regular file: name the file itself."
    if size and found.size != size and not weights.version:  # 2; a version's files were checked when they came
        there, wanted = format_bytes(found.size), format_bytes(size)
        message = f"The {what} {path} {have} {there} ({found.size} bytes) instead of {wanted} ({size} bytes): "
        return "weights_changed", message + "bring the right file back, or add it anew."
    return None


def placed(serve: Serve, store: Store) -> Serve:
    """The same with the paths on this node of what lies in its store; notes that it is used. Raises Refused `weights_missing`."""

    def at(version: str, path: str) -> str:
        found = store.path(version, path)
        if found is None:
            text = f"The weights {version} are not whole on this node any more, or have no file {path[:200]!r}: they are fetched again."
            raise Refused(Kind.UNAVAILABLE, "weights_missing", text)
        return str(found)

    def of(item: Weights) -> Weights:
        return replace(item, path=at(item.version, item.path)) if item.version else item

    projector = serve.projector
    if projector and serve.weights.version:
        projector = at(serve.weights.version, projector)
    adapters = tuple(replace(item, weights=of(item.weights)) for item in serve.adapters)
    return replace(serve, weights=of(serve.weights), projector=projector, adapters=adapters)


class Holdings:
    """What lies here of the weights that the models need: told with a heartbeat by a mark, and whole where the controllers
    hold another one. Looked at in a thread of its own: a dead network disk hangs. `news`: what is here has changed; `seen`:
    other versions than before are whole in the `store`."""

    def __init__(
        self, news: Callable[[], None], *, store: Store | None = None, seen: Callable[[], None] = lambda: None
    ) -> None:
        self._news, self._store, self._seen = news, store, seen
        self._due = 0.0
        self._paths: tuple[str, ...] = ()
        self._patient = Patient(self._look, _NOTHING, name="weights")
        self._looked: _Looked | None = None
        self._kept: str | None = None  # mark of what the controllers hold, as they said last
        self.mark = ""
        """Names what lies here; empty: nothing was looked at yet."""

    def ask(self, paths: Iterable[str]) -> None:
        """Look for these from now on. What is no plain absolute path is left out."""
        good = {path for path in paths if path.startswith("/") and len(path) <= LONGEST and path.isprintable()}
        sizes = accumulate(len(path.encode()) for path in sorted(good))
        self._paths = tuple(path for path, size in zip(sorted(good), sizes, strict=True) if size <= TOGETHER)[:MOST]

    def hurry(self) -> None:
        """Something has changed here: look soon."""
        self._due = 0.0

    @property
    def whole(self) -> frozenset[str] | None:
        """Versions that are whole here; None: nothing was looked at yet."""
        return None if self._looked is None else frozenset(self._looked[2])

    async def run(self) -> None:
        """Look each EVERY seconds, and soon when other paths are asked for."""
        while True:
            try:
                if time.monotonic() >= self._due or self._looked is None or self._paths != self._looked[0]:
                    self._due = time.monotonic() + EVERY
                    before = self.whole
                    if await asyncio.to_thread(self.look):
                        self._news()
                    if self.whole != before:
                        self._seen()
            except Exception:
                log.exception("weights_look_failed")
            await asyncio.sleep(SOON)

    def look(self) -> bool:
        """Look; whether something is new. Blocks for some seconds at most; while a disk hangs, what was told stays told."""
        looks = bool(self._paths) or self._store is not None
        looked = self._patient.now() if looks else _NOTHING
        if looked == self._looked or (looks and self._patient.late):
            return False
        self._looked, before = looked, self.mark
        told = [(item.path, item.size, item.folder) for item in looked[1]]
        self.mark = hashlib.sha256(orjson.dumps(told)).hexdigest()[:32]
        return self.mark != before

    @property
    def to_tell(self) -> tuple[WeightsReport, ...] | None:
        """What lies here, where the controllers hold something else."""
        return self._looked[1] if self._looked is not None and self._kept not in (None, self.mark) else None

    def answered(self, wanted: Wanted, told: Heartbeat) -> None:
        """Another heartbeat follows at once where the controllers hold something else and have not just been told."""
        self._kept = wanted.weights_mark
        if self.to_tell is not None and told.weights is None:
            self._news()

    @property
    def problem(self) -> str:
        """For people; empty: none."""
        return "a disk with weights does not answer: what lies there is not known" if self._patient.late else ""

    def _look(self) -> _Looked:
        paths = self._paths
        held = [item.manifest for item in self._store.versions() if item.whole] if self._store is not None else []
        versions = tuple(WeightsReport(path=item.id, size=item.size) for item in held)
        return paths, tuple(_report(path) for path in paths) + versions, tuple(item.id for item in held)


_Looked = tuple[tuple[str, ...], tuple[WeightsReport, ...], tuple[str, ...]]
"""The paths that were looked for, what lies there and in the store, and the versions that are whole."""
_NOTHING: _Looked = ((), (), ())


def _report(path: str) -> WeightsReport:
    found = find(path)
    if isinstance(found, Absent) or not (found.regular or found.folder):
        return WeightsReport(path=path)
    return WeightsReport(path=path, size=found.size, folder=found.folder)
