"""The data path's memory: snapshot and engines, compiled to dicts, swapped whole when a file changes.

The agent writes both files atomically; see watched.py for how they are followed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cluster.domain.types import Klass
from cluster.wire import EnginesFile, LocalEngine
from llmgw_site.lib.config import Config
from llmgw_site.lib.logs import event
from routing.domain.adapters import adapter_seat, base_seat, entry_of, lacking
from routing.domain.choose import Route, Seat, Waiting
from routing.domain.queueing import room_of
from routing.domain.revoked import RevokedFile
from routing.domain.snapshot import AdapterEntry, AdminEntry, AliasEntry, ModelEntry, ProviderEntry, Snapshot
from routing.domain.tenancy import Holder, classes, holders
from routing.domain.waking import wakes
from routing.gateway.watched import LOOK, WatchedFile

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class View:
    """Everything a request looks up. Never changed; a new one takes its place."""

    version: str = ""
    keys: dict[str, Holder] = field(default_factory=dict)  # by the SHA-256 of the key
    routes: dict[str, Route] = field(default_factory=dict)  # by the name of a model or an adapter
    replicas: dict[str, str] = field(default_factory=dict)  # of this node, by id: `ready` or `draining`
    engines: tuple[LocalEngine, ...] = ()  # theirs
    admins: dict[str, AdminEntry] = field(default_factory=dict)  # by the SHA-256 of the token
    providers: dict[str, ProviderEntry] = field(default_factory=dict)  # by id; only where the cloud module runs
    made_at: float = 0.0  # cluster time of the snapshot
    priorities: dict[str, int] = field(default_factory=dict)  # of keys that have one, by id
    classes: dict[str, Klass] = field(default_factory=dict)  # of projects whose class is said, by id
    aliases: dict[str, AliasEntry] = field(default_factory=dict)  # by name


def compile_view(snapshot: Snapshot | None, engines: EnginesFile | None) -> View:
    """Snapshot and engines as one view. An engine serves a model that lists its replica, or that has its name."""
    if snapshot is None:
        return View()
    engines = engines or EnginesFile(written_at=0.0)
    routes = {adapter.name: _route(model, engines, adapter) for model in snapshot.models for adapter in model.adapters}
    routes |= {model.name: _route(model, engines) for model in snapshot.models}
    return View(
        version=snapshot.version,
        keys=holders(snapshot.keys, snapshot.scopes, snapshot.aliases),
        routes=routes,
        replicas={engine.replica_id: engine.state for engine in engines.engines},
        engines=engines.engines,
        admins={admin.sha256: admin for admin in snapshot.admins},
        providers={provider.provider_id: provider for provider in snapshot.providers},
        made_at=snapshot.made_at,
        priorities={key.key_id: key.priority for key in snapshot.keys if key.priority},
        classes=classes(snapshot.scopes),
        aliases={alias.name: alias for alias in snapshot.aliases},
    )


def without(view: View, revoked: RevokedFile | None) -> View:
    """The view without keys and admin tokens that were revoked since the snapshot was made."""
    if revoked is None or not (
        gone := {item.sha256 for item in revoked.revoked} & (view.keys.keys() | view.admins.keys())
    ):
        return view
    keys = {sha256: key for sha256, key in view.keys.items() if sha256 not in gone}
    admins = {sha256: admin for sha256, admin in view.admins.items() if sha256 not in gone}
    return replace(view, keys=keys, admins=admins)


def _route(model: ModelEntry, engines: EnginesFile, adapter: AdapterEntry | None = None) -> Route:
    """Of the model, or of an adapter of it: that has the seats whose engines hold it."""
    ours = [e for e in engines.engines if e.replica_id in model.replicas or e.model == model.name]
    ready = [engine for engine in ours if engine.state == "ready"]
    usable = [engine for engine in ready if not engine.leaving] or ready
    found: list[tuple[LocalEngine, Seat]] = []
    for engine in usable:
        seat = _seat(engine)
        chosen = base_seat(seat, engine) if adapter is None else adapter_seat(seat, engine, adapter)
        if chosen is not None:
            found.append((engine, chosen))
    waiting = tuple(
        Waiting(state=item.state, code=item.code, message=item.message)
        for item in engines.starting
        if item.replica_id in model.replicas or item.model == model.name
    ) + tuple(Waiting(state=engine.state) for engine in ours if engine.state != "ready")
    entry = model
    if adapter is not None:
        entry, waiting = entry_of(model, adapter), waiting + lacking(usable, adapter)
    leaving = any(engine.leaving for engine, _ in found)
    measured = {item.replica_id: item.concurrency for item in model.placed}
    return Route(
        model=entry,
        seats=tuple(seat for _, seat in found),
        waiting=waiting,
        leaving=leaving,
        wakes=wakes(model),
        room=sum(room_of(engine.slots, measured.get(engine.replica_id, 0.0)) for engine in usable),
    )


def _seat(engine: LocalEngine) -> Seat:
    return Seat(
        replica_id=engine.replica_id,
        host=engine.host,
        port=engine.port,
        key=engine.key,
        slots=engine.slots,
        served_name=engine.served_name,
        context=engine.context,
        engine=engine.engine,
    )


class Table:
    """Holds the present `view`; calls `on_change` with each new one."""

    def __init__(self, config: Config, *, on_change: Callable[[View], None]) -> None:
        self.view = View()
        self._snapshot = WatchedFile(config.snapshot_file, Snapshot)
        self._engines = WatchedFile(config.engines_file, EnginesFile)
        self._revoked = WatchedFile(config.revoked_file, RevokedFile)
        self._files = (self._snapshot, self._engines, self._revoked)
        self._on_change = on_change

    def look(self) -> bool:
        """Read what has changed, here and now; whether there is a new view."""
        view = self._read([file for file in self._files if file.changed()])
        if view is not None:
            self._swap(view)
        return view is not None

    async def watch(self) -> None:
        """Look for ever. Reading happens in a thread: a snapshot with many keys takes longer than a chunk may wait."""
        while True:
            await asyncio.sleep(LOOK)
            changed = [file for file in self._files if file.changed()]
            if changed and (view := await asyncio.to_thread(self._read, changed)) is not None:
                self._swap(view)

    def _read(self, changed: list[WatchedFile]) -> View | None:
        good = sum(file.read() for file in changed)  # each is read, also after a good one
        if not good:
            return None
        if changed == [self._revoked]:  # what the view has is compiled already, and this is urgent
            return without(self.view, self._revoked.value)
        return without(compile_view(self._snapshot.value, self._engines.value), self._revoked.value)

    def _swap(self, view: View) -> None:
        before, self.view = self.view, view
        if before.version != view.version:
            event(log, "snapshot_taken", version=view.version, keys=len(view.keys), models=len(view.routes))
        if before.replicas != view.replicas:
            event(log, "engines_taken", replicas=dict(view.replicas))
        self._on_change(view)
