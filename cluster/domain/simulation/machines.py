"""What nodes make of their replicas between two looks: fetch, load, serve, drain, fail; and what happens to nodes and cards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from cluster.domain import health
from cluster.domain.maintenance import Maintenance
from cluster.domain.parts import TRIED_ALONE
from cluster.domain.simulation.case import Habits, Happening
from cluster.domain.simulation.dice import Dice
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import ModelView, NodeView, ReplicaView

SYSTEM = 0.03
"""Share of a node's memory that its operating system uses."""
GRACE, PREEMPTED_GRACE = 300.0, 30.0
"""Seconds that a replica may finish its requests, and one whose room another gets."""
LONGEST_PAUSE = 60.0
_STARTING, _READY, _BACKOFF = ReplicaState.STARTING, ReplicaState.READY, ReplicaState.BACKOFF
_DRAINING, _STOPPED = ReplicaState.DRAINING, ReplicaState.STOPPED
_HOLDING = frozenset({_READY, _DRAINING})


@dataclass
class Engine:
    """What the node knows of a replica. `due`: when what it does now is over; `doomed`: this start will fail."""

    generation: int
    due: float
    doomed: bool = False
    failures: int = 0


@dataclass
class Machines:
    """All nodes and what runs on them. `off_since`: by node id, when it fell silent."""

    nodes: dict[str, NodeView]
    habits: Callable[[str], Habits]  # by id of the model
    dice: Dice
    off_since: dict[str, float] = field(default_factory=dict)
    engines: dict[str, Engine] = field(default_factory=dict)  # by id of the replica
    preempted: set[str] = field(default_factory=set)
    turned: list[str] = field(default_factory=list)  # ids of nodes whose silence has changed what they count as
    _ids: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ids = {node.name: key for key, node in self.nodes.items()}

    # --- from outside

    def happen(self, what: Happening, now: float) -> str:
        """Something happens to a node; its id."""
        key = self._ids[what.subject]
        node = self.nodes[key]
        if what.kind == "node_off":
            self.off_since.setdefault(key, now)
        elif what.kind == "node_on":
            self.off_since.pop(key, None)
            self.nodes[key] = replace(node, state=NodeState.ONLINE)
        elif what.kind in ("node_cordon", "node_drain", "node_free"):
            state = {"node_cordon": Maintenance.CORDONED, "node_drain": Maintenance.DRAINED}.get(what.kind, "")
            self.nodes[key] = replace(node, maintenance=str(state))
        else:
            self._card(what, key, node)
        return key

    def _card(self, what: Happening, key: str, node: NodeView) -> None:
        cards = list(node.cards)
        card = cards[what.card]
        if what.kind == "foreign":
            cards[what.card] = replace(card, foreign=int(what.values["bytes"]))
        else:
            cards[what.card] = replace(card, problem="XID 79: fallen off the bus" if what.kind == "card_bad" else "")
        self.nodes[key] = replace(node, cards=tuple(cards))

    # --- by themselves

    def work(self, replicas: Iterable[ReplicaView], models: dict[str, ModelView], now: float) -> list[ReplicaView]:
        """The replicas as their nodes report them now, and the nodes brought up to now."""
        self._silence(now)
        found = []
        for replica in replicas:
            on = replica.node_id in self.nodes and not any(share.node_id in self.off_since for share in replica.shares)
            found.append(self._next(replica, models.get(replica.model_id), now) if on else self._dead(replica))
        self._memory(found)
        return found

    def _silence(self, now: float) -> None:
        self.turned = []
        for key, since in self.off_since.items():
            silent = now - since
            state = NodeState.ONLINE if silent < health.STALE_AFTER else NodeState.STALE
            state = NodeState.OFFLINE if silent >= health.OFFLINE_AFTER else state
            if self.nodes[key].state is not state:
                self.nodes[key] = replace(self.nodes[key], state=state)
                self.turned.append(key)

    def _dead(self, replica: ReplicaView) -> ReplicaView:
        """Its node says nothing, so the row stays; the engine is gone. Of one over several nodes that is to stop, what the
        others held is free."""
        self.engines.pop(replica.id, None)
        if replica.run or len(replica.shares) < 2:
            return replica
        left = tuple(
            share for share in replica.shares if share.node_id in self.off_since
        )  # its other parts have stopped
        return replace(replica, shares=left or replica.shares)

    def _next(self, replica: ReplicaView, model: ModelView | None, now: float) -> ReplicaView:
        engine = self.engines.get(replica.id)
        if not replica.run:
            return self._ending(replica, engine, now)
        if engine is not None and engine.generation != replica.generation:
            if replica.state is _STARTING:  # all its parts once more
                replica = replace(replica, attempt=replica.attempt - 1)
                return self._begin(replica, model, now, failures=engine.failures)
            return self._begin(replace(replica, attempt=0, proven=0), model, now, failures=0)
        if engine is None:  # new, or its node was off
            return self._begin(replica, model, now, failures=0)
        if now < engine.due:
            return replica
        if replica.state is _STARTING and engine.doomed:
            engine.failures += 1
            engine.due = now + (0.0 if engine.failures == 1 else min(LONGEST_PAUSE, 2.0 ** (engine.failures - 2)))
            text = "the engine ended with status 1 before it could answer"
            return _changed(replica, _BACKOFF, now, code="engine_failed", message=text)
        if replica.state is _STARTING:
            engine.failures = 0
            return _changed(replace(replica, proven=replica.attempt), _READY, now, code="", message="")
        if replica.state is _BACKOFF and (len(replica.shares) < 2 or replica.code in TRIED_ALONE):
            return self._begin(replica, model, now, failures=engine.failures)
        return replica

    def _begin(self, replica: ReplicaView, model: ModelView | None, now: float, *, failures: int) -> ReplicaView:
        habits = self.habits(replica.model_id)
        if self._taken(replica):
            due = now + min(LONGEST_PAUSE, 2.0 ** (failures + 1))
            self.engines[replica.id] = Engine(replica.generation, due, failures=failures + 1)
            text = "other programs hold what it may take of a card"
            tried = replace(replica, attempt=replica.attempt + 1)
            return _changed(tried, _BACKOFF, now, code="card_memory_taken", message=text)
        wait = habits.start
        for share in replica.shares:
            node = self.nodes[share.node_id]
            if model is not None and model.weights and model.weights not in node.weights:
                wait = habits.start + habits.fetch
                left = node.disk_free if node.disk_free is None else max(0, node.disk_free - model.weights_size)
                self.nodes[node.id] = replace(node, weights=node.weights | {model.weights}, disk_free=left)
        self.engines[replica.id] = Engine(
            replica.generation, now + wait, doomed=self.dice.chance(habits.breaks), failures=failures
        )
        return _changed(replace(replica, attempt=replica.attempt + 1, slots=habits.slots), _STARTING, now)

    def _taken(self, replica: ReplicaView) -> bool:
        """Whether other programs leave a card of it less than it may take."""
        cards = {card.uuid: card for share in replica.shares for card in self.nodes[share.node_id].cards}
        sizes = [(cards[uuid], size) for share in replica.shares for uuid, size in share.cards]
        return any(card.memory_total - card.foreign < size for card, size in sizes)

    def _ending(self, replica: ReplicaView, engine: Engine | None, now: float) -> ReplicaView:
        if replica.state is _STOPPED:
            return replica
        if replica.state is _READY and engine is not None:
            work = self.habits(replica.model_id).work if replica.in_flight else 0.0
            engine.due = now + min(work, PREEMPTED_GRACE if replica.id in self.preempted else GRACE)
            return _changed(replica, _DRAINING, now)
        if replica.state is _DRAINING and engine is not None and now < engine.due:
            return replica
        self.engines.pop(replica.id, None)
        self.preempted.discard(replica.id)
        return _changed(replace(replica, in_flight=0), _STOPPED, now)

    def _memory(self, replicas: list[ReplicaView]) -> None:
        """What each machine has free, by what its engines hold."""
        used: dict[str, int] = {}
        for replica in replicas:
            if replica.state in _HOLDING:
                for share in replica.shares:
                    used[share.node_id] = used.get(share.node_id, 0) + share.memory
        for key, node in self.nodes.items():
            free = max(0, int(node.memory_total * (1 - SYSTEM)) - used.get(key, 0))
            if node.memory_available != free and key not in self.off_since:
                self.nodes[key] = replace(node, memory_available=free)


def _changed(
    replica: ReplicaView, state: ReplicaState, now: float, *, code: str | None = None, message: str | None = None
) -> ReplicaView:
    return replace(
        replica,
        state=state,
        state_since=now,
        code=replica.code if code is None else code,
        message=replica.message if message is None else message,
    )
