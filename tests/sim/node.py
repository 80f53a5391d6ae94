"""A node: the real agent machine, with simulated engines, disk, clock and wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from cluster.wire import ReplicaReport, Serve, WantedReplica
from tests.sim.clock import Clock
from workers.agent.events import (
    Adopted,
    Event,
    Exited,
    Forget,
    InferenceSwitched,
    Instruction,
    Probe,
    Probed,
    Remember,
    ReportNow,
    Signal,
    Spawn,
    Spawned,
    SpawnFailed,
    Tick,
    Verdict,
    WantedArrived,
)
from workers.agent.machine import Machine
from workers.agent.state import Phase, Rules

HEARTBEAT, CALL_TIMEOUT = 10.0, 10.0
RULES = Rules(start_timeout=120.0, drain_timeout=20.0, handover=3.0)


@dataclass(frozen=True, kw_only=True)
class Message:
    """A heartbeat on its way. `boot` and `counter` as its signature has them; `time`: cluster time when it was made."""

    node_id: str
    boot: int
    counter: int
    time: float
    reports: tuple[ReplicaReport, ...]
    inference: bool
    memory_available: int


@dataclass(frozen=True, kw_only=True)
class Answer:
    server_time: float
    replicas: tuple[WantedReplica, ...]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A signed no: `node_removed`, `clock_skew` (it tells the cluster's time), `call_repeated`."""

    code: str
    server_time: float


class Controllers(Protocol):
    """The wire as a node sees it: `call` comes back by `answered` or `failed`, or never."""

    names: tuple[str, ...]

    def call(
        self, node: Node, controller: str, message: Message, answered: Callable[[Answer | Refusal], None]
    ) -> None: ...


@dataclass(kw_only=True)
class Engine:
    """A process. `deaf`: ignores SIGTERM. `hung`: is there and never answers."""

    replica_id: str
    launch: int
    generation: int
    serve: Serve
    pid: int
    loaded_at: float
    deaf: bool = False
    hung: bool = False


@dataclass(kw_only=True)
class Intent:
    generation: int
    serve: Serve
    pid: int
    started_at: float
    ready_at: float | None = None


@dataclass(kw_only=True)
class Disk:
    """What outlives the agent."""

    intents: dict[str, Intent] = field(default_factory=dict)
    wanted: tuple[WantedReplica, ...] | None = None


class Node:
    """`refuses`: names of models whose engines do not start here, for good or not. `truth` checks run at each spawn."""

    def __init__(self, clock: Clock, controllers: Controllers, node_id: str, *, memory: int) -> None:
        self.clock, self.dice, self.controllers = clock, clock.dice, controllers
        self.id, self.name, self.memory = node_id, node_id, memory
        self.engines: dict[int, Engine] = {}
        self.disk = Disk()
        self.machine: Machine | None = None
        self.boot = self.counter = 0
        self.wall_off = 0.0  # this machine's clock less the true time
        self.inference = True
        self.removed = False
        self.powered = True
        self.refuses: dict[str, bool] = {}
        self.slow_load = 1.0
        self._pids = 0
        self._order = list(controllers.names)
        self._call = 0  # number of the call whose answer is waited for
        self._beat_due = 0  # only the newest of the timers counts
        self._news = False

    # --- power and agent ------------------------------------------------------------------------------------------

    def start_agent(self) -> None:
        """A new agent: it adopts what runs and what an intent explains, and wants again what was wanted last."""
        if self.machine is not None or not self.powered:
            return
        self.boot += 1
        self._epoch = self.clock.now + self.wall_off  # wall time at the start, then an even clock
        self._started = self.clock.now
        self._offset = 0.0
        self.machine = Machine(RULES)
        for engine in list(self.engines.values()):
            intent = self.disk.intents.get(engine.replica_id)
            if intent is None or intent.pid != engine.pid:
                del self.engines[engine.pid]  # a stray: ended at once
                continue
            self.handle(
                Adopted(
                    replica_id=engine.replica_id, generation=intent.generation, serve=intent.serve, pid=engine.pid,
                    port=1, key="k", started_at=intent.started_at, ready_at=intent.ready_at,
                )
            )  # fmt: skip
            process = self.machine.replicas[engine.replica_id].process
            assert process is not None
            engine.launch = process.launch
        alive = {engine.replica_id for engine in self.engines.values()}
        self.disk.intents = {key: intent for key, intent in self.disk.intents.items() if key in alive}
        self.handle(InferenceSwitched(on=self.inference))
        if self.disk.wanted is not None:
            self.handle(WantedArrived(replicas=self.disk.wanted))
        boot = self.boot
        self.clock.after(0.1, lambda: self._tick(boot))
        self._beat_in(0.1)

    def kill_agent(self) -> None:
        """kill -9: engines live on."""
        self.machine = None
        self._call = 0

    def power_off(self) -> None:
        self.kill_agent()
        self.engines.clear()
        self.powered = False

    def power_on(self) -> None:
        self.powered = True
        self.start_agent()

    def switch_inference(self, on: bool) -> None:
        self.inference = on
        if self.machine is not None:
            self.handle(InferenceSwitched(on=on))
            self.news()

    # --- the machine ----------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        assert self.machine is not None
        for instruction in self.machine.handle(event, self._epoch + self.clock.now - self._started):
            self._perform(instruction)

    def later(self, seconds: float, event: Event) -> None:
        """An event for this agent, if it is still alive then."""
        boot = self.boot

        def tell() -> None:
            if self.machine is not None and self.boot == boot:
                self.handle(event)

        self.clock.after(seconds, tell)

    def _tick(self, boot: int) -> None:
        if self.machine is None or self.boot != boot:
            return
        self.handle(Tick())
        phases = [r.process.phase if r.process else None for r in self.machine.replicas.values()]
        busy = any(phase is not Phase.READY for phase in phases)
        self.clock.after(1.0 if busy else 7.5, lambda: self._tick(boot))

    def _perform(self, order: Instruction) -> None:
        match order:
            case Spawn():
                self._spawn(order)
            case Signal():
                self.clock.after(self.dice.uniform(0.0, 0.5), lambda: self._signal(order))
            case Probe():
                self.later(self.dice.uniform(0.02, 0.3), self._look(order))
            case Remember():
                if order.replica_id in self.disk.intents:
                    self.disk.intents[order.replica_id].ready_at = order.ready_at
            case Forget():
                self.disk.intents.pop(order.replica_id, None)
            case ReportNow():
                self.news()
            case _:
                pass

    def _spawn(self, order: Spawn) -> None:
        same = [engine for engine in self.engines.values() if engine.replica_id == order.replica_id]
        assert not same, f"{self.id}: a second engine for {order.replica_id}"
        if order.serve.model in self.refuses:
            failed = SpawnFailed(
                replica_id=order.replica_id, launch=order.launch, code="weights_missing", message="no file",
                final=self.refuses[order.serve.model],
            )  # fmt: skip
            self.later(0.05, failed)
            return
        self._pids += 1
        load = self.dice.uniform(0.5, 8.0) * self.slow_load
        engine = Engine(
            replica_id=order.replica_id, launch=order.launch, generation=order.generation, serve=order.serve,
            pid=self._pids, loaded_at=self.clock.now + load,
        )  # fmt: skip
        self.engines[engine.pid] = engine
        self.disk.intents[order.replica_id] = Intent(
            generation=order.generation, serve=order.serve, pid=engine.pid, started_at=self.clock.now
        )
        told = Spawned(replica_id=order.replica_id, launch=order.launch, pid=engine.pid, port=1, key="k")
        self.later(self.dice.uniform(0.05, 0.4), told)

    def _signal(self, order: Signal) -> None:
        for engine in list(self.engines.values()):
            if (engine.replica_id, engine.launch) == (order.replica_id, order.launch) and (
                order.kill or not engine.deaf
            ):
                self.crash(engine, status=-9 if order.kill else 0)

    def crash(self, engine: Engine, status: int = -11) -> None:
        """The process ends."""
        if self.engines.pop(engine.pid, None) is None or self.machine is None:
            return
        intent = self.disk.intents.get(engine.replica_id)
        if intent is not None and intent.pid == engine.pid:
            del self.disk.intents[engine.replica_id]
        self.handle(Exited(replica_id=engine.replica_id, launch=engine.launch, status=status))

    def _look(self, order: Probe) -> Probed:
        engine = next((e for e in self.engines.values() if e.replica_id == order.replica_id), None)
        verdict = Verdict.READY
        if engine is None or engine.hung:
            verdict = Verdict.SILENT
        elif self.clock.now < engine.loaded_at:
            verdict = Verdict.LOADING
        in_flight = self.dice.choice((0, 0, 0, 1))
        return Probed(
            replica_id=order.replica_id, launch=order.launch, deep=order.deep, verdict=verdict, in_flight=in_flight
        )

    # --- the wire -------------------------------------------------------------------------------------------------

    def news(self) -> None:
        """Report at once; while a call is under way, right after it."""
        self._news = True
        if not self._call:
            self._beat_in(0.05)

    def nudged(self) -> None:
        if self.machine is not None:
            self.news()

    def _beat_in(self, seconds: float) -> None:
        self._beat_due += 1
        due, boot = self._beat_due, self.boot

        def beat() -> None:
            if self.machine is not None and (self._beat_due, self.boot) == (due, boot) and not self._call:
                self._beat()

        self.clock.after(seconds, beat)

    def _beat(self) -> None:
        assert self.machine is not None
        self.counter += 1
        self._news = False
        used = sum(engine.serve.memory for engine in self.engines.values())
        message = Message(
            node_id=self.id, boot=self.boot, counter=self.counter, time=self._even() + self._offset,
            reports=self.machine.reports(), inference=self.inference, memory_available=self.memory - used,
        )  # fmt: skip
        call = self._call = self.counter
        boot = self.boot

        def waits() -> bool:
            return self.machine is not None and self.boot == boot and self._call == call

        def answered(answer: Answer | Refusal) -> None:
            if waits():
                self._call = 0
                self._take(answer)

        def timed_out() -> None:
            if waits():
                self._call = 0
                self._order.append(self._order.pop(0))  # the next one that is known
                self._beat_in(self.dice.uniform(0.5, 5.0))

        self.clock.after(CALL_TIMEOUT, timed_out)
        self.controllers.call(self, self._order[0], message, answered)

    def _even(self) -> float:
        return self._epoch + self.clock.now - self._started

    def _take(self, answer: Answer | Refusal) -> None:
        if isinstance(answer, Refusal) and answer.code == "node_removed":
            self.removed = True
            self.handle(WantedArrived(replicas=()))
            return
        self._offset = answer.server_time - self._even()
        if isinstance(answer, Refusal):
            self._beat_in(self.dice.uniform(0.5, 1.0))
            return
        self.disk.wanted = answer.replicas
        self.handle(WantedArrived(replicas=answer.replicas))
        self._beat_in(0.05 if self._news else HEARTBEAT)

    def running(self) -> set[tuple[str, int]]:
        """What has a process, as (replica, generation)."""
        return {(engine.replica_id, engine.generation) for engine in self.engines.values()}

    def hang(self, engine: Engine) -> None:
        self.engines[engine.pid] = replace(engine, hung=True)
