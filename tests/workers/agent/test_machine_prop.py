"""Whatever happens in whatever order: one process a replica, none unknown, none that nobody wants for ever."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cluster.domain.states import REPLICA_STEPS, ReplicaState
from cluster.wire import ReplicaLoad, Serve, WantedReplica, Weights
from workers.agent.events import (
    Adopted,
    Event,
    Exited,
    Forget,
    GatewayGone,
    InferenceSwitched,
    LoadReported,
    Probe,
    Probed,
    Signal,
    Spawn,
    Spawned,
    SpawnFailed,
    Tick,
    Verdict,
    WantedArrived,
    WeightsSeen,
)
from workers.agent.machine import Machine
from workers.agent.state import Phase, Rules

REPLICAS = ("rep_a", "rep_b")
SERVE = Serve(engine="llama.cpp", model="m", weights=Weights(path="/w"), start_timeout=100, drain_timeout=20)
FETCHED = replace(SERVE, weights=Weights(path="m.gguf", version="ver_0000000001"))


class World(RuleBasedStateMachine):
    """The machine with a simulated node: processes that start, load, answer, ignore signals and die."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine(Rules())
        self.now = 1000.0
        self.ordered: dict[tuple[str, int], Spawn] = {}  # spawns without an outcome
        self.alive: dict[tuple[str, int], int] = {}  # launches that run, with their generation
        self.deaf: set[tuple[str, int]] = set()  # those that ignore SIGTERM
        self.asked: list[Probe] = []
        self.signals: list[Signal] = []
        self.wanted: dict[str, WantedReplica] = {}
        self.whole = False  # the weights of rep_b
        self.told: dict[tuple[str, int], str] = {}  # state by replica and generation, as reported last

    def say(self, event: Event) -> None:
        self.act(event)
        told = {(item.replica_id, item.generation): item.state for item in self.machine.reports()}
        for key, state in told.items():
            before = self.told.get(key, state if isinstance(event, Adopted) else ReplicaState.PENDING)
            assert state == before or (before, state) in REPLICA_STEPS, f"{before} -> {state} on {event}"
        self.told = told

    def act(self, event: Event) -> None:
        for item in self.machine.handle(event, self.now):
            assert getattr(item, "cause", ""), item
            match item:
                case Spawn():
                    assert not any(r == item.replica_id for r, _ in (*self.alive, *self.ordered)), "a second process"
                    assert self.whole or item.serve is SERVE, "without its weights"
                    self.ordered[item.replica_id, item.launch] = item
                case Signal():
                    self.signals.append(item)
                case Probe():
                    assert (item.replica_id, item.launch) in self.alive
                    self.asked.append(item)
                case Forget():
                    assert not any(r == item.replica_id for r, _ in (*self.alive, *self.ordered)), "forgotten alive"

    @initialize(adopt=st.booleans(), ready=st.booleans())
    def begin(self, adopt: bool, ready: bool) -> None:
        if adopt:
            self.alive["rep_a", 1] = 1
            self.say(
                Adopted(
                    replica_id="rep_a", generation=1, serve=SERVE, pid=1, port=1, key="k", started_at=self.now,
                    ready_at=self.now if ready else None,
                )
            )  # fmt: skip

    @rule(ids=st.sets(st.sampled_from(REPLICAS)), generation=st.integers(1, 3), run=st.booleans())
    def want(self, ids: set[str], generation: int, run: bool) -> None:
        self.wanted = {
            i: WantedReplica(replica_id=i, generation=generation, run=run, serve=FETCHED if i == "rep_b" else SERVE)
            for i in sorted(ids)
        }
        self.say(WantedArrived(replicas=tuple(self.wanted.values())))

    @rule(whole=st.booleans())
    def weights(self, whole: bool) -> None:
        self.whole = whole
        self.say(WeightsSeen(whole=frozenset({"ver_0000000001"} if whole else ())))

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 30.0, 120.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.say(Tick())

    @precondition(lambda self: self.ordered)
    @rule(data=st.data(), fails=st.booleans(), final=st.booleans(), deaf=st.booleans())
    def spawn(self, data: st.DataObject, fails: bool, final: bool, deaf: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.ordered)))
        order = self.ordered.pop(key)
        if fails:
            self.say(SpawnFailed(replica_id=key[0], launch=key[1], code="weights_missing", message="x", final=final))
            return
        self.alive[key] = order.generation
        if deaf:
            self.deaf.add(key)
        self.say(Spawned(replica_id=key[0], launch=key[1], pid=key[1], port=1, key="k"))

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), verdict=st.sampled_from(list(Verdict)), in_flight=st.sampled_from([None, 0, 1]))
    def answer(self, data: st.DataObject, verdict: Verdict, in_flight: int | None) -> None:
        ask = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        self.say(
            Probed(
                replica_id=ask.replica_id, launch=ask.launch, deep=ask.deep, verdict=verdict, in_flight=in_flight
            )
        )  # fmt: skip

    @precondition(lambda self: self.signals)
    @rule()
    def obey(self) -> None:
        signal = self.signals.pop(0)
        key = (signal.replica_id, signal.launch)
        if key in self.alive and (signal.kill or key not in self.deaf):
            self.die(key, -9 if signal.kill else 0)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.die(data.draw(st.sampled_from(sorted(self.alive))), -11)

    def die(self, key: tuple[str, int], status: int) -> None:
        del self.alive[key]
        self.say(Exited(replica_id=key[0], launch=key[1], status=status))

    @rule(on=st.booleans())
    def switch(self, on: bool) -> None:
        """The inference module of the node."""
        self.say(InferenceSwitched(on=on))

    @rule(count=st.integers(0, 2), suspect=st.booleans())
    def load(self, count: int, suspect: bool) -> None:
        loads = {replica: ReplicaLoad(in_flight=count) for replica in REPLICAS}
        self.say(LoadReported(replicas=loads, suspects=REPLICAS if suspect else ()))

    @rule()
    def gateway_goes(self) -> None:
        self.say(GatewayGone())

    @invariant()
    def every_process_is_known(self) -> None:
        known = {(r.replica_id, r.process.launch) for r in self.machine.replicas.values() if r.process}
        assert set(self.alive) | set(self.ordered) == known

    @invariant()
    def the_gateway_is_offered_only_live_engines_of_the_wanted_generation(self) -> None:
        for engine in self.machine.engines():
            assert any(replica == engine.replica_id for replica, _ in self.alive)
            wanted = self.wanted.get(engine.replica_id)
            if engine.state == "ready" and self.machine.wanted_known:
                process = self.machine.replicas[engine.replica_id].process
                assert wanted
                assert wanted.run
                assert process
                waits = engine.replica_id == "rep_b" and not self.whole  # until then the old one serves on
                assert process.generation == wanted.generation or waits

    def teardown(self) -> None:
        """Left alone with obedient processes, the node comes to what is wanted: nothing else runs, all that should does."""
        self.say(InferenceSwitched(on=True))
        self.weights(True)
        if not self.machine.wanted_known:
            return
        for _ in range(200):
            self.now += 5
            self.say(Tick())
            for key, order in list(self.ordered.items()):
                del self.ordered[key]
                self.alive[key] = order.generation
                self.say(Spawned(replica_id=key[0], launch=key[1], pid=1, port=1, key="k"))
            while self.asked:
                ask = self.asked.pop()
                self.say(
                    Probed(
                        replica_id=ask.replica_id, launch=ask.launch, deep=ask.deep, verdict=Verdict.READY, in_flight=0
                    )
                )  # fmt: skip
            while self.signals:
                self.obey()
        should = {i for i, w in self.wanted.items() if w.run and not self.machine.replicas[i].final}
        assert {replica for replica, _ in self.alive} == should
        for replica in should:
            process = self.machine.replicas[replica].process
            assert process
            assert process.phase is Phase.READY
            assert process.generation == self.wanted[replica].generation


World.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestMachine = World.TestCase
