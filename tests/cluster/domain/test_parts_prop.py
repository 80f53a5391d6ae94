"""Two real agents' decisions and the controllers' rules for parts, in any order of news and deaths: they always come to rest as one
engine over both nodes, or as none."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.parts import PartView, Said, heard, order, stand
from cluster.domain.states import ReplicaState
from cluster.wire import Serve, WantedReplica, Weights
from tests.examples import few
from workers.agent.events import Event, Exited, Probe, Probed, Signal, Spawn, Spawned, Tick, Verdict, WantedArrived
from workers.agent.machine import Machine
from workers.agent.state import Rules

R = "rep_1"
_pids = count(100)


@dataclass
class Node:
    """An agent and the engine that it has. An engine answers when those of both nodes are of one generation."""

    rank: int
    machine: Machine = field(default_factory=lambda: Machine(Rules(handover=0.0)))
    engine: tuple[int, int] | None = None  # launch, generation
    probes: list[Probe] = field(default_factory=list)

    def say(self, event: Event, now: float) -> None:
        for item in self.machine.handle(event, now):
            if isinstance(item, Spawn):
                self.engine = (item.launch, item.generation)
                self.say(Spawned(replica_id=R, launch=item.launch, pid=next(_pids), port=1, key="k"), now)
            elif isinstance(item, Signal):
                self.end(now, -15)
            elif isinstance(item, Probe):
                self.probes.append(item)

    def end(self, now: float, status: int) -> None:
        if self.engine is not None:
            launch, self.engine = self.engine[0], None
            self.say(Exited(replica_id=R, launch=launch, status=status), now)

    def looks(self, whole: bool, now: float) -> None:
        found, self.probes = self.probes, []
        for item in found:
            verdict = Verdict.READY if whole or self.rank else Verdict.LOADING
            self.say(Probed(replica_id=R, launch=item.launch, deep=item.deep, verdict=verdict), now)

    def reboot(self) -> None:
        self.machine, self.engine, self.probes = Machine(Rules(handover=0.0)), None, []


class Pair:
    def __init__(self) -> None:
        self.nodes = [Node(0), Node(1)]
        self.parts = [PartView(rank=rank, node="ab"[rank]) for rank in range(2)]
        self.generation, self.run, self.now, self.starts = 1, True, 1000.0, 0
        self.grace: float | None = None

    @property
    def whole(self) -> bool:
        first, second = (node.engine for node in self.nodes)
        return first is not None and second is not None and first[1] == second[1]

    @property
    def state(self) -> ReplicaState:
        return stand(self.parts, run=self.run, generation=self.generation, begun=self.starts > 0).state

    def heartbeat(self, rank: int) -> None:
        node, before = self.nodes[rank], self.parts[rank]
        now = {"run": self.run, "generation": self.generation}
        told = order(before, self.parts, grace=self.grace, **now)  # type: ignore[arg-type]
        report = next(iter(node.machine.reports()), None)
        said = None
        if report is not None:
            state = ReplicaState(report.state)
            said = Said(generation=report.generation, state=state, code=report.code, pid=report.pid)
        self.parts[rank] = heard(before, said, told=told.run, now=self.now, **now)  # type: ignore[arg-type]
        if self.state is ReplicaState.BACKOFF:  # what regroup does
            self.generation, self.starts, self.grace = self.generation + 1, self.starts + 1, 0.0
        found = order(self.parts[rank], self.parts, run=self.run, generation=self.generation, grace=self.grace)
        serve = Serve(engine="vllm", model="m", weights=Weights(path="/w"), nodes=2, rank=rank)
        wanted = WantedReplica(
            replica_id=R, generation=found.generation, run=found.run, serve=serve, grace=found.grace, hold=found.hold
        )
        node.say(WantedArrived(replicas=(wanted,)), self.now)

    def act(self, what: str, rank: int) -> None:
        self.now += 1.0
        if what == "heartbeat":
            self.heartbeat(rank)
        elif what == "kill":
            self.nodes[rank].end(self.now, -9)
        elif what == "reboot":
            self.nodes[rank].reboot()
        elif what == "restart":
            self.generation, self.grace = self.generation + 1, None
        else:
            self.nodes[rank].say(Tick(), self.now)
            self.nodes[rank].looks(self.whole, self.now)

    def rest(self) -> None:
        for _ in range(30):
            for what in ("heartbeat", "look"):
                for rank in range(2):
                    self.act(what, rank)

    def come_to_rest(self) -> None:
        """No gateway says what is in flight: a leader that is to end finishes requests for as long as its patience lasts."""
        for _ in range(3):
            self.rest()
            self.now += 1000.0
        self.rest()


ACTS = st.lists(
    st.tuples(st.sampled_from(["heartbeat", "heartbeat", "look", "look", "kill", "reboot", "restart"]), st.integers(0, 1)),
    max_size=60,
)  # fmt: skip


@few()
@given(ACTS)
def test_whatever_dies_and_whoever_is_heard_first_both_parts_come_to_serve_as_one(acts: list[tuple[str, int]]) -> None:
    pair = Pair()
    for what, rank in acts:
        pair.act(what, rank)
    pair.come_to_rest()
    assert pair.state is ReplicaState.READY
    assert pair.whole
    assert {node.engine[1] for node in pair.nodes if node.engine} == {pair.generation}


@few()
@given(ACTS)
def test_one_that_is_to_stop_leaves_nothing_behind(acts: list[tuple[str, int]]) -> None:
    pair = Pair()
    for what, rank in acts:
        pair.act(what, rank)
    pair.run, pair.grace = False, None
    pair.come_to_rest()
    assert pair.state is ReplicaState.STOPPED
    assert [node.engine for node in pair.nodes] == [None, None]


def test_one_that_is_restarted_while_it_is_ready_comes_back_when_its_leader_has_finished() -> None:
    pair = Pair()
    pair.rest()
    pair.act("restart", 0)
    pair.rest()
    assert pair.state is not ReplicaState.READY
    pair.come_to_rest()
    assert (pair.state, pair.generation) == (ReplicaState.READY, 2)


@given(st.integers(0, 1))
def test_a_killed_part_costs_one_generation(rank: int) -> None:
    pair = Pair()
    pair.rest()
    assert (pair.state, pair.generation) == (ReplicaState.READY, 1)
    pair.act("kill", rank)
    pair.rest()
    assert (pair.state, pair.generation) == (ReplicaState.READY, 2)
