"""The module map as this node holds it, in memory and in `<data>/cluster/module-map.json`, which the gateway watches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from cluster.domain.modules import MapFile, Module, ModuleMap
from cluster.domain.states import NodeState
from cluster.wire import WireError, from_dict, to_dict
from llmgw_site.lib import files
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)
DRIFT = 0.5
"""Seconds by which the offset in the file may be wrong before it is written anew."""


class NodeMap:
    """Known from the start, if the file is there. `clock`: Unix time of this machine. A full disk costs the file only."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._file: MapFile | None = None
        self._mark: object = None
        self._stale = self._unkept = False
        self._gone: set[str] = set()  # told by a nudge; an id is never given again, so no map may bring them back
        try:
            data = files.read_json(path)
            self._file = None if data is None else from_dict(MapFile, data)
            self._mark = files.mark(path)
        except (WireError, OSError) as error:
            event(log, "map_unreadable", level=logging.ERROR, path=str(path), reason=str(error))

    @property
    def map(self) -> ModuleMap | None:
        return self._file.map if self._file else None

    @property
    def version(self) -> str:
        return self._file.map.version if self._file else ""

    @property
    def offset(self) -> float:
        """Cluster time less this machine's, as it was last known."""
        return self._file.offset if self._file else 0.0

    def controllers(self) -> list[tuple[str, str]]:
        """(base URL, node id) of the nodes that run a controller, those that were online first."""
        nodes = self.map.running(Module.CONTROLLER) if self.map else ()
        ordered = sorted(nodes, key=lambda node: node.state != NodeState.ONLINE)
        return [(node.address, node.node_id) for node in ordered]

    def take(self, found: ModuleMap | None, offset: float) -> bool:
        """A controller's answer: its map, where it has another one, and the offset. Whether the map is new.

        1. an older one of the same epoch (a controller that lags behind): ours stays
        2. else it is taken
        """
        new = found is not None and _follows(found.version, self.version)
        if new and found is not None:
            left = tuple(node for node in found.nodes if node.node_id not in self._gone)
            self._file = MapFile(map=replace(found, nodes=left), offset=offset, received_at=self._clock())
            self._stale = True
        self.keep(offset)
        return new

    def drop(self, removed: Collection[str], offset: float) -> bool:
        """Nodes that are out of the cluster from this moment; whether any was in the map."""
        known = self._file
        self._gone |= set(removed)
        if known is None:
            return False
        gone = {node.node_id for node in known.map.nodes} & set(removed)
        if not gone:
            return False
        left = tuple(node for node in known.map.nodes if node.node_id not in gone)
        out = tuple(dict.fromkeys([*known.map.removed, *sorted(gone)]))
        self._file = replace(known, map=replace(known.map, nodes=left, removed=out))
        self._stale = True
        self.keep(offset)
        return True

    def keep(self, offset: float) -> None:
        """Bring the file up to date: the map is new, our clock moved, or the file was damaged or deleted."""
        if self._file is None:
            return
        moved = abs(offset - self._file.offset) > DRIFT
        if not (self._stale or moved or files.mark(self._path) != self._mark):
            return
        self._file = replace(self._file, offset=offset)
        try:
            self._mark = files.write_json(self._path, to_dict(self._file))
        except OSError as error:
            if not self._unkept:
                event(log, "map_not_kept", level=logging.ERROR, reason=str(error))
            self._stale = self._unkept = True
            return
        self._stale = self._unkept = False


def _follows(version: str, held: str) -> bool:
    """Whether this version may replace the one at hand: another epoch's always, else only one that counts higher."""
    epoch, _, count = version.rpartition(":")
    held_epoch, _, held_count = held.rpartition(":")
    if epoch == held_epoch and count.isdecimal() and held_count.isdecimal():
        return int(count) > int(held_count)
    return version != held
