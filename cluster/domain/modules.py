"""Roles, modules, and the module map: which node runs what, and how it stands.

A role asks for a module of the same name; a module is the part that runs. Each node keeps the latest map in
`<data>/cluster/module-map.json`. The map is versioned over address, modules and state: `last_seen_at` alone makes no
new version, so ages are computed when the map is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from cluster.domain.states import NodeState


class Module(StrEnum):
    CONTROLLER = "controller"
    EDGE = "edge"
    ROUTER = "router"
    INFERENCE = "inference"
    CLOUD = "cloud"
    DATA = "data"


DEFAULT_ROLES = (Module.CONTROLLER, Module.INFERENCE, Module.ROUTER, Module.EDGE, Module.DATA)
"""What a node runs that no roles were given to."""
LEGACY_MODULES = (Module.INFERENCE, Module.ROUTER, Module.EDGE)
"""What a node runs that reports neither modules nor roles: it is of a version that knew none."""


class ModuleState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"  # it ran here and was switched off; listed until the node restarts
    UNAVAILABLE = "unavailable"  # asked for, and cannot run: `code` and `message` say why


@dataclass(frozen=True, kw_only=True)
class ModuleReport:
    """A module of one node."""

    name: str
    state: str = ModuleState.RUNNING.value
    code: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class MapNode:
    """A node as the others need to know it."""

    node_id: str
    name: str
    address: str  # base URL of its node listener
    public_key: str  # X25519, hex
    state: str = NodeState.ONLINE.value
    last_seen_at: float | None = None  # Unix time of the database, when this map was made
    modules: tuple[ModuleReport, ...] = ()
    maintenance: str = ""  # "", `cordoned` or `drained`
    maintenance_why: str = ""

    def runs(self, module: str) -> bool:
        return any(item.name == module and item.state == ModuleState.RUNNING for item in self.modules)


@dataclass(frozen=True, kw_only=True)
class ModuleMap:
    """Every node of the cluster. `revoked`: serials (hex) of certificates that are worth nothing any more; `removed`: ids
    of nodes that were taken out, so that their calls are refused by name wherever they come."""

    version: str
    made_at: float
    nodes: tuple[MapNode, ...] = ()
    revoked: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def node(self, node_id: str) -> MapNode | None:
        return next((item for item in self.nodes if item.node_id == node_id), None)

    def running(self, module: str) -> tuple[MapNode, ...]:
        """Nodes that run this module, whatever their state."""
        return tuple(item for item in self.nodes if item.runs(module))


@dataclass(frozen=True, kw_only=True)
class MapFile:
    """`<data>/cluster/module-map.json`: written by the agent at each change, watched by the gateway."""

    map: ModuleMap
    offset: float = 0.0  # seconds: cluster time less this machine's
    received_at: float = 0.0  # Unix time of this machine


@dataclass(frozen=True, kw_only=True)
class ModulesFile:
    """`<data>/cluster/modules.json`: this node's modules. The agent decides and writes; gateway and supervisor follow."""

    modules: tuple[ModuleReport, ...] = ()
    managed: bool = False  # the cluster setup names this node: no other way of switching is allowed
    roles: tuple[str, ...] = ()  # that the modules follow from


@dataclass(frozen=True, kw_only=True)
class SwitchesFile:
    """`<data>/node/switches.json`: modules switched on this node itself; written by the gateway's node endpoint."""

    modules: dict[str, bool] = field(default_factory=dict)
