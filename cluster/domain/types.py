"""The picture that decisions are made from: frozen views of the catalogue and of the cluster.

`cluster.selectors.world()` makes it from rows. Memory is bytes, times are Unix seconds of the database's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from cluster.domain.maintenance import Maintenance, words
from cluster.domain.modules import LEGACY_MODULES, Module
from cluster.domain.states import NodeState, ReplicaState


class Klass(IntEnum):
    """How much a model matters: room of a lower class may be taken for a higher one."""

    OPPORTUNISTIC = 0
    STANDARD = 1
    CRITICAL = 2


class Pieces(NamedTuple):
    """What llama.cpp divides over cards: so many pieces of so many bytes, and `extra` bytes with the last of them."""

    number: int
    size: int
    extra: int


@dataclass(frozen=True, kw_only=True)
class ProfileView:
    """One way to run a model, resolved: `digest` names all that an engine is started with; the rest is what it needs.

    Without cards it is a CPU way. With `cards`, that many of one node are used: the memory of all of them together is
    `card_memory`, divided evenly (`even`, as tensor parallelism does) or by whole layers of `layer` bytes, each card
    holding what its own free memory allows beside `card_base`, which every one of them needs. `span` such nodes of one fabric make one replica.
    """

    id: str
    name: str
    engine: str
    digest: str
    memory: int  # bytes of each node's own memory
    threads: int = 0  # cores reserved on each node; 0: the node's default, and none is reserved
    priority: int = 0
    nodes: tuple[str, ...] = ()  # names of the only nodes it may run on; none: any
    labels: tuple[tuple[str, str], ...] = ()  # that a node must have
    cards: int = 0  # of each node
    card_classes: tuple[str, ...] = ()  # the only ones; none: any
    card_memory: int = 0  # bytes on the cards of each node together
    layer: int = 0  # bytes of the largest piece that cannot be divided
    layers: int = 0  # repeating layers; 0: not known
    tail: int = 0  # bytes of the output layer, which comes after them
    card_base: int = 0  # bytes of `card_memory` that each card holds beside its layers
    even: bool = False
    span: int = 1  # nodes
    rate: float = 0.0  # measured tokens/s per card, or per core of a CPU way; 0: not measured
    concurrency: float = 0.0  # measured: requests at once that one replica serves well; 0: not measured

    @cached_property
    def pieces(self) -> Pieces:
        """What is divided over cards by layers; at least a piece for each.

        1. its layers are known: these and the output layer, which lies on the last card and may be larger than they are.
           What was declared or measured for the whole is all theirs
        2. they are not: as many of the largest piece as make up the whole
        """
        body = max(0, self.card_memory - self.card_base * self.cards)
        if self.layers:  # 1
            tail = min(self.tail, body)
            size = max(1, -(-(body - tail) // self.layers))
            return Pieces(max(self.layers + 1, self.cards), size, max(0, tail - size))
        size = max(self.layer, 1)  # 2
        return Pieces(max(-(-body // size), self.cards), size, 0)

    def may_run_on(self, node: NodeView) -> bool:
        return not self.nodes or node.name in self.nodes


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What controllers remember of a model from one look to the next; a row, changed by `Remember` alone.

    Times are Unix seconds; None: that is not so now, or never was.
    """

    grown: int = 0  # replicas beyond the base, because of load
    broke_off_at: float = 0.0  # when what follows last broke off
    pressed_since: float | None = None  # since when too many requests wait
    quiet_since: float | None = None  # since when nothing waits
    asked_at: float | None = None  # last request for it that found it at rest
    used_at: float | None = None  # last request for it
    gave_up: bool = False  # a load of it was given up for another model, and none has become ready since
    failures: int = 0  # starts in a row that failed
    parked_at: float | None = None
    parked_digest: str = ""  # of what was parked: another definition is tried again
    parked_code: str = ""
    parked_message: str = ""
    restarting: tuple[str, ...] = ()  # replicas that are to be replaced by new ones: `ReplicaView.name_now` of each
    in_place: bool = False  # they stop first
    vetted: tuple[str, ...] | None = None  # `name_now` of those that have answered in an update; None: none goes on


@dataclass(frozen=True, kw_only=True)
class ModelView:
    """A model of the catalogue, with its enabled profiles, the one to try first in front.

    `base`: replicas that it has whatever the load; 0: it runs on demand. `most`: never more than these. Beyond the base,
    `standing` says how many it should have now. `rest_after`: seconds without a request until one on demand stops.
    """

    id: str
    name: str
    enabled: bool = True
    base: int = 1
    most: int | None = None  # None: the base
    klass: Klass = Klass.STANDARD
    rest_after: float = 900.0
    standing: Standing = Standing()
    owner: str = ""  # id of a scope of the tenancy tree; empty: nobody's
    profiles: tuple[ProfileView, ...] = ()
    external: bool = False  # a provider answers for it: nothing is placed
    provider_enabled: bool = True
    weights: str = ""  # name of its weights, as nodes report those they have
    weights_size: int = 0
    asking: bool = False  # nodes are being asked whether they have them, some have not said yet, and it waits for them
    unsaid: bool = False  # some have not said yet, whether it waits for them or not

    @property
    def limit(self) -> int:
        """Replicas that it may have at most."""
        return self.base if self.most is None else self.most

    @property
    def on_demand(self) -> bool:
        """Whether it is at rest until somebody asks for it."""
        return self.base == 0 and self.limit > 0

    @property
    def least(self) -> int:
        """Replicas it should have now whatever the load: its base, or one while it is awake on demand."""
        if not self.enabled or self.external:
            return 0
        return max(self.base, int(self.on_demand and self.standing.asked_at is not None))

    @property
    def target(self) -> int:
        """Replicas it should have now."""
        if not self.enabled or self.external:
            return 0
        return min(self.least + self.standing.grown, self.limit)

    def restarts(self, replica: ReplicaView) -> bool:
        """Whether this replica is to be replaced by a new one, as somebody asked."""
        return bool(self.standing.restarting) and replica.name_now in self.standing.restarting

    def trusts(self, replica: ReplicaView) -> bool:
        """Whether others may give way to this replica: while an update is under way it must have answered first."""
        return self.standing.vetted is None or replica.name_now in self.standing.vetted

    @cached_property
    def pinned(self) -> bool:
        """Whether a profile of it may run on some nodes only."""
        return any(item.nodes for item in self.profiles)

    def profile(self, profile_id: str | None) -> ProfileView | None:
        return next((item for item in self.profiles if item.id == profile_id), None)


@dataclass(frozen=True, kw_only=True)
class CardView:
    """An accelerator. `foreign`: bytes held by processes that are not our engines. `problem`: empty if it is healthy."""

    uuid: str
    klass: str = ""
    memory_total: int = 0
    foreign: int = 0
    problem: str = ""
    maintenance: str = ""

    @property
    def usable(self) -> bool:
        return not self.problem and not self.maintenance


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """A node that was not removed. `engines`: kind of engine -> why it cannot run, empty if it can.

    `modules`: those that run there. `maintenance`: empty, cordoned or drained. `fabric`: name of the fast network over
    which it can share a replica with other nodes; `unreachable`: why they cannot reach it there, empty if they can. `fetching`: bytes that are still to come of weights that it is fetching, by
    their names; `no_room`: why it has no room for some, as it says itself. `weights`: names of those that lie on its disk; `lacks`: of those
    that do not, and that it cannot get. What stands in neither is not known.
    """

    id: str
    name: str
    state: NodeState = NodeState.ONLINE
    engines: Mapping[str, str] = field(default_factory=dict)
    cores: int = 0
    memory_total: int = 0
    memory_available: int = 0
    disk_free: int | None = None  # None: not known, and not checked
    modules: frozenset[str] = frozenset(LEGACY_MODULES)
    maintenance: str = ""
    maintenance_why: str = ""
    cards: tuple[CardView, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    fabric: str = ""
    unreachable: str = ""
    weights: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    fetching: Mapping[str, int] = field(default_factory=dict)
    no_room: Mapping[str, str] = field(default_factory=dict)

    def runs(self, module: Module) -> bool:
        return module in self.modules  # text itself, and a read of its value costs

    @property
    def drained(self) -> bool:
        return self.maintenance == Maintenance.DRAINED

    @property
    def maintenance_words(self) -> str:
        return words(self.maintenance, self.maintenance_why) if self.maintenance else ""


_TRYING = frozenset({ReplicaState.STARTING, ReplicaState.BACKOFF, ReplicaState.FAILED})
NOTHING_STARTED = frozenset(
    {"weights_missing", "weights_changed", "engine_missing", "card_missing", "card_memory_taken"}
)
"""Codes of a node that could not even begin, and looks again by itself."""
SPAWN_TRIES = 2
"""Starts in a row that the system of a node refused, after which the model is tried elsewhere: one may be a moment's lack."""
HAD_STARTED = frozenset({"engine_died", "engine_unresponsive", "engine_wedged"})
"""Codes of an engine that was ready before it failed, whether or not a report said so in between."""
SETTLED = 5
"""Starts in a row that found a card's memory taken, after which it is not that of an engine that has just ended: with the
pauses of its node that is half a minute."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a replica has of one node. `cards`: bytes of each of the cards it uses, by UUID."""

    node_id: str
    memory: int = 0
    cores: int = 0
    cards: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReplicaView:
    """A replica as its row has it. Whether it counts as lost depends on its nodes: see `state_of`.

    `shares`: what it holds, of its own node first; more than one where it spans nodes.
    """

    id: str
    model_id: str
    profile_id: str | None
    node_id: str
    slot: int
    generation: int = 1
    run: bool = True
    digest: str = ""
    shares: tuple[Share, ...] = ()
    state: ReplicaState = ReplicaState.PENDING
    state_since: float = 0.0
    code: str = ""
    message: str = ""
    attempt: int = 0  # starts of this generation so far
    in_flight: int = 0  # requests that it works at or that wait in its engine
    waiting: int = 0  # of these in its engine's own queue, as far as it says
    wedged: int = 0  # times in a row that its engine was ready and then gave no token
    slots: int = 1  # requests that it works at at once
    grown: bool = False  # added under load, beyond the model's base
    proven: int = 0  # the attempt that became ready last; 0: none has
    used_at: float | None = None  # last request that it worked at

    @property
    def name_now(self) -> str:
        """Names the replica in its present generation: when it has started anew, it has another."""
        return f"{self.id}:{self.generation}"

    @property
    def failures(self) -> int:
        """Its starts in a row that failed. Those where nothing could be started (its file is not there yet) do not count,
        and one that ended when it was ready had started; but one that gave no token then, again and again, is no use."""
        if self.state not in _TRYING or self.code in NOTHING_STARTED:
            return 0
        if self.code in HAD_STARTED:
            return self.wedged
        begun = self.attempt - 1 if self.state is ReplicaState.STARTING else self.attempt
        return max(0, begun - self.proven)

    @property
    def refused_by_system(self) -> bool:
        """Whether its node's system does not let its process come to be (no memory, too many processes), again and again."""
        return self.code == "spawn_failed" and self.failures >= SPAWN_TRIES

    @property
    def held_up(self) -> bool:
        """Whether it could not even begin, and its node waits before it looks again."""
        return self.state in (ReplicaState.BACKOFF, ReplicaState.FAILED) and self.code in NOTHING_STARTED

    @property
    def settles(self) -> bool:
        """Whether memory of its cards may still be coming back from an engine that has ended: its node looks again soon."""
        taken = self.state is ReplicaState.BACKOFF and self.code == "card_memory_taken"
        return taken and self.attempt - self.proven < SETTLED

    @property
    def reserved(self) -> int:
        """Bytes of memory that it holds on its nodes."""
        return sum(item.memory for item in self.shares)

    @property
    def node_ids(self) -> Iterable[str]:
        """The nodes that it is on, its own first."""
        return dict.fromkeys((self.node_id, *(share.node_id for share in self.shares)))

    @property
    def cards(self) -> tuple[str, ...]:
        return tuple(uuid for share in self.shares for uuid, _ in share.cards)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Room that is kept for a model while others make it free. It ends when the model has used it, or at `until`."""

    model_id: str
    shares: tuple[Share, ...]
    until: float


@dataclass(frozen=True, kw_only=True)
class Amount:
    """So much of a fleet. None and a class that is not named: nothing is said of it."""

    cards: tuple[tuple[str, int], ...] = ()  # by class
    cores: int | None = None
    memory: int | None = None  # bytes


@dataclass(frozen=True, kw_only=True)
class ScopeView:
    """A part of the tenancy tree: an organisation, a team or a project. `guarantee`: what its models get in any case;
    `limit`: what they may have at most."""

    id: str
    kind: str
    name: str
    parent: str = ""  # id; empty: an organisation
    guarantee: Amount = Amount()
    limit: Amount = Amount()


@dataclass(frozen=True, kw_only=True)
class World:
    models: tuple[ModelView, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    replicas: tuple[ReplicaView, ...] = ()
    scopes: tuple[ScopeView, ...] = ()
    claims: tuple[Claim, ...] = ()
    pack: bool = False  # fill nodes one after the other, instead of spreading over all
    heard_every: float = 0.0  # seconds between two reports of a node
    scale_up_after: float = 60.0  # seconds that requests wait until a model grows
    scale_down_after: float = 600.0  # seconds that nothing waits until it shrinks again

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
        return state_of(replica, (self.node(node_id) for node_id in replica.node_ids))


def state_of(replica: ReplicaView, nodes: Iterable[NodeView | None]) -> ReplicaState:
    """The replica's state, or LOST while a node of it is offline, runs no inference module, or was removed.

    One that was told to stop and has stopped is just that: nothing of it is left, wherever it was.
    """
    if not replica.run and replica.state is ReplicaState.STOPPED:
        return replica.state
    lost = any(node is None or node.state is NodeState.OFFLINE or not node.runs(Module.INFERENCE) for node in nodes)
    return ReplicaState.LOST if lost else replica.state


def _grouped(replicas: Iterable[ReplicaView], key: Callable[[ReplicaView], str]) -> dict[str, list[ReplicaView]]:
    groups: dict[str, list[ReplicaView]] = {}
    for item in replicas:
        groups.setdefault(key(item), []).append(item)
    return groups
