"""The picture that decisions are made from: frozen views of the catalogue and of the cluster.

`cluster.selectors.world()` makes it from rows. Memory is bytes, times are Unix seconds of the database's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cluster.domain.states import NodeState, ReplicaState


@dataclass(frozen=True, kw_only=True)
class ProfileView:
    """One way to run a model, resolved: `digest` names all that an engine is started with, `memory` what it needs."""

    id: str
    name: str
    engine: str
    digest: str
    memory: int
    threads: int = 0  # 0: the node's default
    priority: int = 0


@dataclass(frozen=True, kw_only=True)
class ModelView:
    """A model of the catalogue, with its enabled profiles, the one to try first in front."""

    id: str
    name: str
    enabled: bool = True
    wanted: int = 1
    profiles: tuple[ProfileView, ...] = ()

    @property
    def target(self) -> int:
        """Replicas it should have now."""
        return self.wanted if self.enabled else 0


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """A node that was not removed. `engines`: kind of engine -> why it cannot run, empty if it can."""

    id: str
    name: str
    state: NodeState = NodeState.ONLINE
    engines: Mapping[str, str] = field(default_factory=dict)
    cores: int = 0
    memory_total: int = 0
    memory_available: int = 0


@dataclass(frozen=True, kw_only=True)
class ReplicaView:
    """A replica as its row has it. Whether it counts as lost depends on its node: see `World.state`."""

    id: str
    model_id: str
    profile_id: str | None
    node_id: str
    slot: int
    generation: int = 1
    run: bool = True
    digest: str = ""
    reserved: int = 0
    state: ReplicaState = ReplicaState.PENDING
    state_since: float = 0.0
    code: str = ""
    message: str = ""
    attempt: int = 0  # starts of this generation so far


@dataclass(frozen=True, kw_only=True)
class World:
    models: tuple[ModelView, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    replicas: tuple[ReplicaView, ...] = ()

    @cached_property
    def _models(self) -> dict[str, ModelView]:
        return {item.id: item for item in self.models}

    @cached_property
    def _nodes(self) -> dict[str, NodeView]:
        return {item.id: item for item in self.nodes}

    @cached_property
    def _of_model(self) -> dict[str, list[ReplicaView]]:
        return _grouped(self.replicas, lambda item: item.model_id)

    @cached_property
    def _on_node(self) -> dict[str, list[ReplicaView]]:
        return _grouped(self.replicas, lambda item: item.node_id)

    def model(self, model_id: str) -> ModelView | None:
        return self._models.get(model_id)

    def node(self, node_id: str) -> NodeView | None:
        return self._nodes.get(node_id)

    def replica(self, replica_id: str) -> ReplicaView | None:
        return next((item for item in self.replicas if item.id == replica_id), None)

    def of_model(self, model_id: str) -> Sequence[ReplicaView]:
        return self._of_model.get(model_id, ())

    def on_node(self, node_id: str) -> Sequence[ReplicaView]:
        return self._on_node.get(node_id, ())

    def state(self, replica: ReplicaView) -> ReplicaState:
        """The replica's state, or LOST while its node is offline or was removed."""
        node = self.node(replica.node_id)
        lost = node is None or node.state is NodeState.OFFLINE
        return ReplicaState.LOST if lost and replica.state is not ReplicaState.STOPPED else replica.state


def _grouped(replicas: Iterable[ReplicaView], key: Callable[[ReplicaView], str]) -> dict[str, list[ReplicaView]]:
    groups: dict[str, list[ReplicaView]] = {}
    for item in replicas:
        groups.setdefault(key(item), []).append(item)
    return groups
