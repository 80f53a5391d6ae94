"""The controllers: rows in memory, heartbeats in, ticks on several workers; decisions by the product's own functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cluster.domain import health, invariants
from cluster.domain.board import Board
from cluster.domain.health import Listening
from cluster.domain.modules import Module
from cluster.domain.plan import Keep, Op, Plan, Release, Remember, Remove, Renew, Start, Stop, do, recheck, running
from cluster.domain.reconcile import reconcile
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import CardView, Claim, ModelView, NodeView, ReplicaView, World
from cluster.wire import ReplicaReport, Serve, WantedReplica, Weights
from llmgw_site.lib.units import GIB
from tests.sim.clock import Clock
from tests.sim.node import Answer, Message, Node, Refusal

STALE_AFTER, OFFLINE_AFTER = 30.0, 60.0
"""Seconds; a third of them between heartbeats, as in the product."""
TICK, MARK_EVERY, SKEW = 4.0, 2.0, 120.0
READY = ReplicaState.READY
EVERYTHING = frozenset({Module.INFERENCE.value, Module.ROUTER.value})


@dataclass
class Row:
    """A node's row, and what truly happened, which only the checks may read."""

    view: NodeView
    last_seen: float | None = None  # database time
    boot: int = 0
    counter: int = 0
    heard_at: float | None = None  # true time


@dataclass
class Link:
    """Between a node and a controller. `lossy`: share of messages that get lost, each way."""

    cut: bool = False
    lossy: float = 0.0
    slow: float = 0.0  # seconds that a message may take at most


@dataclass
class Cluster:
    """All of it. `log`: what was decided, newest last; a failing schedule shows its end."""

    clock: Clock
    names: tuple[str, ...] = ("c1", "c2")
    models: dict[str, ModelView] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    replicas: dict[str, ReplicaView] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    nodes: dict[str, Node] = field(default_factory=dict)
    links: dict[tuple[str, str], Link] = field(default_factory=dict)
    stalled_until: dict[str, float] = field(default_factory=dict)
    listening: Listening = field(default_factory=Listening)
    database_off: float = 0.0
    log: list[str] = field(default_factory=list)
    deaf: list[tuple[float, float]] = field(default_factory=list)  # true times in which nobody could hear a node
    _deaf_since: float | None = None
    _made: int = 0

    def __post_init__(self) -> None:
        for number, name in enumerate(self.names):
            self.clock.after(0.5 + number, lambda name=name: self._tick(name))  # type: ignore[misc]

    @property
    def now(self) -> float:
        """By the database's clock."""
        return self.clock.now + self.database_off

    def say(self, text: str) -> None:
        self.log.append(f"{self.clock.now - 1_000_000:8.2f} {text}")

    # --- who is there ---------------------------------------------------------------------------------------------

    def add_node(self, name: str, *, memory: int = 8 * GIB, cards: tuple[str, ...] = ()) -> Node:
        view = NodeView(
            id=name, name=name, engines={"llama.cpp": ""}, cores=4, memory_total=memory, memory_available=memory,
            modules=EVERYTHING, cards=tuple(CardView(uuid=uuid, klass="L4", memory_total=24 * GIB) for uuid in cards),
        )  # fmt: skip
        self.rows[name] = Row(view)
        node = self.nodes[name] = Node(self.clock, self, name, memory=memory)
        for controller in self.names:
            self.links[name, controller] = Link(slow=0.05)
        node.start_agent()
        return node

    def change_node(self, name: str, **fields: object) -> None:
        self.rows[name].view = replace(self.rows[name].view, **fields)  # type: ignore[arg-type]

    def change_card(self, name: str, uuid: str, **fields: object) -> None:
        """A card of a node; uuids are the node's own here."""
        cards = self.rows[name].view.cards
        self.change_node(name, cards=tuple(replace(c, **fields) if c.uuid == uuid else c for c in cards))  # type: ignore[arg-type]

    def world(self) -> World:
        """The picture for decisions, and the check that no late reader takes a node for dead."""
        views = []
        for row in self.rows.values():
            state = health.node_state(
                row.last_seen, self.listening, self.now, stale_after=STALE_AFTER, offline_after=OFFLINE_AFTER
            )
            if state is NodeState.OFFLINE and row.last_seen is not None:
                heard = row.heard_at or 0.0
                assert self.clock.now - heard >= OFFLINE_AFTER - 0.01, f"{row.view.name} was heard of and is offline"
                listened = self._listened(heard)
                assert listened >= OFFLINE_AFTER - health.GAP - TICK, f"{row.view.name}: a late reader says offline"
            views.append(replace(row.view, state=state))
        return World(
            models=tuple(self.models.values()), nodes=tuple(views), replicas=tuple(self.replicas.values()),
            claims=self.claims,
        )  # fmt: skip

    # --- work of a controller -------------------------------------------------------------------------------------

    def stall(self, controller: str, seconds: float) -> None:
        """It stands still: nothing is answered, nothing decided; what came meanwhile is answered late."""
        self.stalled_until[controller] = max(self.clock.now + seconds, self.stalled_until.get(controller, 0.0))
        self.clock.after(0.0, self._note_deafness)
        self.clock.after(seconds + 0.001, self._note_deafness)

    def working(self, controller: str) -> bool:
        return self.clock.now >= self.stalled_until.get(controller, 0.0)

    def _note_deafness(self) -> None:
        if any(self.working(name) for name in self.names):
            if self._deaf_since is not None and self.clock.now - self._deaf_since > health.GAP + TICK:
                self.deaf.append((self._deaf_since, self.clock.now))
            self._deaf_since = None
        elif self._deaf_since is None:
            self._deaf_since = self.clock.now

    def _listened(self, since: float) -> float:
        """Seconds of the longest span from then to now in which some controller worked all the time."""
        longest, begin = 0.0, since
        for start, end in [*((s, e) for s, e in self.deaf if e >= since), (self.clock.now, self.clock.now)]:
            longest, begin = max(longest, start - begin), max(begin, end)
        return longest

    def set_database_clock(self, step: float) -> None:
        """What was heard before cannot be dated any more."""
        self.database_off += step
        self.deaf.append((self.clock.now, self.clock.now))

    def _mark(self) -> None:
        if self.listening.at is None or not 0 <= self.now - self.listening.at < MARK_EVERY:
            if health.set_back(self.listening, self.now):
                for row in self.rows.values():
                    row.last_seen = min(row.last_seen, self.now) if row.last_seen is not None else None
            self.listening = health.mark(self.listening, self.now)

    def _tick(self, controller: str) -> None:
        pause = TICK * self.clock.dice.uniform(0.8, 1.2)
        if not self.working(controller):
            pause = self.stalled_until[controller] - self.clock.now + 0.1
        else:
            self._mark()
            plan = reconcile(self.world(), self.now)
            if plan.ops:  # what is written down may be old by then
                self.clock.after(self.clock.dice.choice((0.0, 0.0, 0.2, 3.0)), lambda: self.commit(plan, controller))
        self.clock.after(pause, lambda: self._tick(controller))

    def commit(self, plan: Plan, controller: str) -> None:
        """As `services/apply.py` does it: each operation checked again on what is there now, the truths before it ends."""
        if not self.working(controller):
            self.clock.after(
                self.stalled_until[controller] - self.clock.now + 0.1, lambda: self.commit(plan, controller)
            )
            return
        world = self.world()
        before = set(invariants.check(world))
        board = Board(world)
        told: set[str] = set()
        for op in plan.ops:
            op = self._named(op)
            if why := recheck(op, board):
                self.say(f"{controller} refused {type(op).__name__} {op.subject}: {why}")
                continue
            self.say(f"{controller} {type(op).__name__} {op.subject}: {op.reason}")
            do(op, board)
            there, world = world, board.as_world()
            if isinstance(op, (Keep, Release, Remember)):
                continue
            self._check(op, there, world)
            replica = world.replica(op.replica_id) or there.replica(op.replica_id)
            told |= {replica.node_id} if replica else set()
        broken = set(invariants.check(world)) - before
        assert not broken, broken
        self.replicas = {item.id: item for item in world.replicas}
        self.models = {item.id: item for item in world.models}
        self.claims = world.claims
        for name in sorted(told):
            self._nudge(name, controller)

    def _named(self, op: Op) -> Op:
        if not isinstance(op, Start):
            return op
        self._made += 1
        return replace(op, replica_id=f"rep_{self._made:05d}")

    def _check(self, op: Start | Renew | Stop | Remove, before: World, world: World) -> None:
        """No operation but a restart in place, or for another model, costs a model one of the ready replicas that it
        needs, and none is started in place of one whose node is only late."""
        if isinstance(op, Start):
            self._check_start(op, before)
            return
        replica = before.replica(op.replica_id)
        model = before.model(replica.model_id) if replica else None
        if model is None or isinstance(op, Renew) or (isinstance(op, Stop) and op.for_model):
            return
        then, now = (sum(r.state is READY for r in running(Board(w), model.id)) for w in (before, world))
        if model.profiles:
            assert now >= min(then, model.target), f"{op} leaves {now} of {model.target} ready"
        active = running(Board(before), model.id)
        node = before.node(replica.node_id) if replica else None
        if isinstance(op, Stop) and replica in active and node is not None and node.state is NodeState.STALE:
            enough = len(active) > model.target or not model.profiles
            assert enough, f"{op}: only because its node is stale"

    def _check_start(self, op: Start, before: World) -> None:
        model, there = before.model(op.model_id), before.of_model(op.model_id)
        assert model is not None
        able = [r for r in there if r.run and r.state is not ReplicaState.FAILED and _can_serve(before.node(r.node_id))]
        current = {profile.digest for profile in model.profiles}
        board = Board(before)
        moving = any(board.to_move(r) or r.digest not in current for r in able)
        assert len(able) < model.target + moving, f"{op}: {len(able)} of {model.target} are there"

    def _nudge(self, name: str, controller: str) -> None:
        node, link = self.nodes[name], self.links[name, controller]
        if not link.cut and node.machine is not None and self.clock.dice.random() >= link.lossy:
            self.clock.after(self.clock.dice.uniform(0.01, 0.1), node.nudged)

    # --- heartbeats -----------------------------------------------------------------------------------------------

    def call(self, node: Node, controller: str, message: Message, answered: Callable[[Answer | Refusal], None]) -> None:
        link, dice = self.links[node.id, controller], self.clock.dice

        def arrive() -> None:
            if link.cut:
                return
            if not self.working(controller):  # it is read when the controller goes on, maybe much too late
                self.clock.after(self.stalled_until[controller] - self.clock.now + dice.uniform(0.0, 0.5), arrive)
                return
            answer = self._heartbeat(message)
            if dice.random() >= link.lossy:
                self.clock.after(dice.uniform(0.0, link.slow), lambda: None if link.cut else answered(answer))

        if dice.random() >= link.lossy:
            self.clock.after(dice.uniform(0.001, link.slow), arrive)

    def _heartbeat(self, message: Message) -> Answer | Refusal:
        """As `services/nodes.py` does it."""
        row = self.rows.get(message.node_id)
        if row is None:
            return Refusal(code="node_removed", server_time=self.now)
        if abs(message.time - self.now) > SKEW:
            return Refusal(code="clock_skew", server_time=self.now)
        newer = message.counter > row.counter if message.boot == row.boot else (
            row.last_seen is None or row.last_seen < message.time or row.last_seen > self.now
        )  # fmt: skip
        if not newer:
            return Refusal(code="call_repeated", server_time=self.now)
        row.boot, row.counter, row.last_seen, row.heard_at = message.boot, message.counter, self.now, self.clock.now
        modules = EVERYTHING if message.inference else EVERYTHING - {Module.INFERENCE.value}
        row.view = replace(row.view, modules=modules, memory_available=message.memory_available)
        self._mark()
        reports = {report.replica_id: report for report in message.reports}
        mine = [item for item in self.replicas.values() if item.node_id == message.node_id]
        for replica in mine:
            self.replicas[replica.id] = _observed(replica, reports.get(replica.id), self.now)
        return Answer(server_time=self.now, replicas=tuple(self._wanted(item) for item in mine if _told(item)))

    def _wanted(self, replica: ReplicaView) -> WantedReplica:
        serve = Serve(
            engine="llama.cpp", model=replica.model_id, weights=Weights(path="/w"), memory=replica.reserved,
            cards=replica.cards,
        )  # fmt: skip
        return WantedReplica(replica_id=replica.id, generation=replica.generation, run=replica.run, serve=serve)

    def remove_node(self, name: str) -> None:
        del self.rows[name]
        self.say(f"{name} removed")
        for controller in self.names:
            self._nudge(name, controller)


def _can_serve(node: NodeView | None) -> bool:
    return node is not None and node.state is not NodeState.OFFLINE and node.runs(Module.INFERENCE)


def _told(replica: ReplicaView) -> bool:
    return replica.run or replica.state is not ReplicaState.STOPPED


def _observed(replica: ReplicaView, report: ReplicaReport | None, now: float) -> ReplicaView:
    if report is not None and report.generation != replica.generation:
        return replica
    if report is None:
        new = replace(replica, state=ReplicaState.PENDING if replica.run else ReplicaState.STOPPED, code="", message="")
    else:
        new = replace(
            replica, state=ReplicaState(report.state), code=report.code, message=report.message, attempt=report.attempt
        )  # fmt: skip
    return replace(new, state_since=now) if new.state is not replica.state else new
