"""A cluster in memory: a module map that tests write, and a clock that they turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cluster.domain.modules import MapNode, ModuleMap, ModuleReport, ModulesFile
from routing.domain.snapshot import ModelEntry, Snapshot
from routing.gateway.table import View, compile_view

SELF = "node_self"


class FakeClock:
    """Unix time and monotonic time are the same here."""

    def __init__(self, at: float = 1000.0) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def map_node(name: str, *modules: str, **other: Any) -> MapNode:
    reports = tuple(ModuleReport(name=item) for item in modules or ("inference",))
    address = f"http://{name}.invalid:8880"
    fields = {"node_id": f"node_{name}", "name": name, "address": address, "public_key": "00", "modules": reports}
    return MapNode(**{**fields, **other})


class FakeCluster:
    """What peers and node endpoints need of Members."""

    def __init__(self, clock: FakeClock, *nodes: MapNode, runs: tuple[str, ...] = ("router",)) -> None:
        self.node_id = SELF
        self.map: ModuleMap | None = None
        self.modules = ModulesFile(modules=tuple(ModuleReport(name=name) for name in runs), roles=runs)
        self._clock = clock
        self.set(*nodes)

    def set(self, *nodes: MapNode, **other: Any) -> None:
        version = f"v{int(self.map.version[1:]) + 1}" if self.map is not None else "v1"
        self.map = ModuleMap(version=version, made_at=self._clock.now(), nodes=nodes, **other)

    def runs(self, module: str) -> bool:
        return any(item.name == module and item.state == "running" for item in self.modules.modules)

    def now(self) -> float:
        return self._clock.now()

    def manage(self) -> None:
        self.modules = replace(self.modules, managed=True)


def view_of(*models: ModelEntry, **other: Any) -> View:
    return compile_view(Snapshot(version="e:1", made_at=0.0, models=models, **other), None)
