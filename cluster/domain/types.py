"""The picture that decisions are made from: frozen views of the catalogue and of the cluster.

`cluster.selectors.world()` makes it from rows. Memory is bytes, times are Unix seconds of the database's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cluster.domain.maintenance import Maintenance, words
from cluster.domain.modules import LEGACY_MODULES, Module
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
    nodes: tuple[str, ...] = ()  # names of the only nodes it may run on; none: any

    def may_run_on(self, node: NodeView) -> bool:
        return not self.nodes or node.name in self.nodes


@dataclass(frozen=True, kw_only=True)
class ModelView:
    """A model of the catalogue, with its enabled profiles, the one to try first in front."""

    id: str
    name: str
    enabled: bool = True
    wanted: int = 1
    profiles: tuple[ProfileView, ...] = ()
    external: bool = False  # a provider answers for it: nothing is placed
    provider_enabled: bool = True

    @property
    def target(self) -> int:
        """Replicas it should have now."""
        return self.wanted if self.enabled and not self.external else 0

    def profile(self, profile_id: str | None) -> ProfileView | None:
        return next((item for item in self.profiles if item.id == profile_id), None)


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """A node that was not removed. `engines`: kind of engine -> why it cannot run, empty if it can.

    `modules`: those that run there. `maintenance`: empty, cordoned or drained. `cards`: UUIDs of its accelerators;
    `cards_maintenance`: the same as for the node, of single cards.
    """

    id: str
    name: str
    state: NodeState = NodeState.ONLINE
    engines: Mapping[str, str] = field(default_factory=dict)
    cores: int = 0
    memory_total: int = 0
    memory_available: int = 0
    modules: frozenset[str] = frozenset(item.value for item in LEGACY_MODULES)
    maintenance: str = ""
    maintenance_why: str = ""
    cards: tuple[str, ...] = ()
    cards_maintenance: Mapping[str, str] = field(default_factory=dict)

    def runs(self, module: Module) -> bool:
        return module.value in self.modules

    @property
    def drained(self) -> bool:
        return self.maintenance == Maintenance.DRAINED

    @property
    def maintenance_words(self) -> str:
        return words(self.maintenance, self.maintenance_why) if self.maintenance else ""

    @property
    def cards_out(self) -> tuple[str, ...]:
        """Its cards that are in maintenance."""
        return tuple(uuid for uuid in self.cards if self.cards_maintenance.get(uuid))

    @property
    def usable_cards(self) -> tuple[str, ...]:
        """The only cards that something new may use here; empty: no card is in maintenance, any may be used."""
        return tuple(uuid for uuid in self.cards if uuid not in self.cards_out) if self.cards_out else ()


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
    cards: tuple[str, ...] = ()  # the only ones that it may use; none: any of its node


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
        """The replica's state, or LOST while its node is offline, runs no inference module, or was removed.

        One that was told to stop and has stopped is just that: nothing of it is left, wherever it was.
        """
        node = self.node(replica.node_id)
        gone = not replica.run and replica.state is ReplicaState.STOPPED
        lost = node is None or node.state is NodeState.OFFLINE or not node.runs(Module.INFERENCE)
        return ReplicaState.LOST if lost and not gone else replica.state

    def to_move(self, replica: ReplicaView) -> str:
        """Why a replica shall leave the place where it is; empty if it may stay.

        1. its node is drained
        2. it may use a card that is drained
        3. its profile may no longer run on its node
        """
        node, model = self.node(replica.node_id), self.model(replica.model_id)
        if node is None:
            return ""
        if node.drained:  # 1
            return f"node {node.name} is {node.maintenance_words}"
        for uuid in replica.cards or node.cards:  # 2
            if node.cards_maintenance.get(uuid) == Maintenance.DRAINED:
                return f"card {uuid} of node {node.name} is drained"
        profile = model.profile(replica.profile_id) if model else None
        if profile is not None and not profile.may_run_on(node):  # 3
            return f"profile {profile.name} may run only on {', '.join(profile.nodes)}"
        return ""


def _grouped(replicas: Iterable[ReplicaView], key: Callable[[ReplicaView], str]) -> dict[str, list[ReplicaView]]:
    groups: dict[str, list[ReplicaView]] = {}
    for item in replicas:
        groups.setdefault(key(item), []).append(item)
    return groups
