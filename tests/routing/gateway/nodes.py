"""Nodes as their files: identities, one module map, modules. What the agents would write."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster.domain import signing
from cluster.domain.modules import MapFile, MapNode, ModuleMap, ModuleReport, ModulesFile
from cluster.wire import to_dict
from llmgw_site.lib.config import Config
from llmgw_site.lib.files import private_folder, write_json
from tests.routing.gateway.listening import configured

CONTROLLER_KEY = "c0" * 32
CONTROLLER_PUBLIC = signing.public_hex(CONTROLLER_KEY)


@dataclass
class Node:
    """One node: its settings and what the map says of it."""

    name: str
    config: Config
    modules: tuple[str, ...]
    address: str = ""
    state: str = "online"
    private_key: str = ""
    stopped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.private_key = self.private_key or signing.body_digest(self.name.encode())

    @property
    def node_id(self) -> str:
        return f"node_{self.name}"

    @property
    def reports(self) -> tuple[ModuleReport, ...]:
        running = tuple(ModuleReport(name=name) for name in self.modules)
        return running + tuple(ModuleReport(name=name, state="stopped") for name in self.stopped)

    @property
    def row(self) -> MapNode:
        return MapNode(
            node_id=self.node_id, name=self.name, address=self.address, modules=self.reports, state=self.state,
            public_key=signing.public_hex(self.private_key),
        )  # fmt: skip


@dataclass
class Cluster:
    """All nodes; `publish` writes what each one's agent would."""

    folder: Path
    nodes: dict[str, Node] = field(default_factory=dict)
    version: int = 0
    revoked: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def add(self, name: str, *modules: str, address: str = "", **settings: Any) -> Node:
        config = replace(configured(self.folder / name), **settings)
        for folder in (config.node_file.parent, config.map_file.parent, config.run):
            private_folder(folder)
        self.nodes[name] = node = Node(name=name, config=config, modules=modules, address=address)
        return node

    def map(self) -> ModuleMap:
        rows = tuple(node.row for node in self.nodes.values())
        return ModuleMap(
            version=f"m:{self.version}", made_at=0.0, nodes=rows, revoked=self.revoked, removed=self.removed
        )

    def publish(self, *, offsets: dict[str, float] | None = None) -> None:
        self.version += 1
        for node in self.nodes.values():
            config = node.config
            identity = {
                "node_id": node.node_id, "private_key": node.private_key,
                "controller_public_key": CONTROLLER_PUBLIC, "address": node.address,
            }  # fmt: skip
            write_json(config.node_file, identity)
            offset = (offsets or {}).get(node.name, 0.0)
            write_json(config.map_file, to_dict(MapFile(map=self.map(), offset=offset)))
            write_json(config.modules_file, to_dict(ModulesFile(modules=node.reports, roles=node.modules)))
