"""What survives a restart of the agent: intents of running engines, and the last wanted state.

<data>/node/engines-intent.json   written before each spawn, so that no engine is ever started unknown
<data>/cluster/wanted.json        so that a node serves again before any controller answers
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

from cluster.wire import Serve, Wanted, WireError, from_dict, to_dict
from llmgw_site.lib import files
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Intent:
    """An engine that was to be started; `pid` and `start_time` once it was."""

    replica_id: str
    generation: int
    serve: Serve
    port: int
    key: str = field(repr=False)
    started_at: float
    pid: int | None = None
    start_time: int | None = None
    ready_at: float | None = None
    context: int | None = None
    slots: int | None = None
    loras: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _IntentFile:
    intents: tuple[Intent, ...] = ()


class IntentStore:
    """The intents, in memory and on disk; each change is on disk before the call returns. Threads may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._intents: dict[str, Intent] = {}
        try:
            data = files.read_json(path)
            if data is not None:
                self._intents = {intent.replica_id: intent for intent in from_dict(_IntentFile, data).intents}
        except WireError as error:  # of another version: the engines are found by their environment and ended
            event(log, "intents_unreadable", level=logging.ERROR, path=str(path), reason=str(error))

    def get(self, replica_id: str) -> Intent | None:
        return self._intents.get(replica_id)

    @property
    def ports(self) -> set[int]:
        with self._lock:
            return {intent.port for intent in self._intents.values()}

    def put(self, intent: Intent) -> None:
        with self._lock:
            self._intents[intent.replica_id] = intent
            self._write()

    def change(self, replica_id: str, **changes: int | float | tuple[int, ...] | None) -> None:
        with self._lock:
            if replica_id in self._intents:
                self._intents[replica_id] = replace(self._intents[replica_id], **changes)  # type: ignore[arg-type]
                self._write()

    def drop(self, replica_id: str) -> None:
        with self._lock:
            if self._intents.pop(replica_id, None) is not None:
                self._write()

    def keep_only(self, replica_ids: set[str]) -> None:
        with self._lock:
            if not set(self._intents) <= replica_ids:
                self._intents = {key: value for key, value in self._intents.items() if key in replica_ids}
                self._write()

    def _write(self) -> None:
        files.write_json(self._path, to_dict(_IntentFile(intents=tuple(self._intents.values()))))


class WantedStore:
    """The last answer of a controller. Written when the wanted replicas, the node's roles or its orders to fetch are new; the
    map has its own file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: object = None

    def read(self) -> Wanted | None:
        try:
            data = files.read_json(self._path)
            return None if data is None else from_dict(Wanted, data)
        except (WireError, OSError) as error:
            event(log, "wanted_unreadable", level=logging.ERROR, path=str(self._path), reason=str(error))
            return None

    def write(self, wanted: Wanted) -> None:
        told = wanted.replicas, wanted.roles, wanted.fetches
        if told != self._written:
            files.write_json(self._path, to_dict(replace(wanted, map=None)))
            self._written = told
