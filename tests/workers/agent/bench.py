"""The agent's machine with its time by hand: events in, instructions out."""

from __future__ import annotations

from typing import Any, TypeVar

from cluster.wire import Serve, WantedReplica, Weights
from workers.agent.events import (
    Event,
    Exited,
    Instruction,
    Probe,
    Probed,
    Spawn,
    Spawned,
    Tick,
    Verdict,
    WantedArrived,
)
from workers.agent.machine import Machine
from workers.agent.state import Rules

T = TypeVar("T", bound=Instruction)
R = "rep_1"
SERVE = Serve(engine="llama.cpp", model="m", weights=Weights(path="/w.gguf"), context=512, slots=2)


class Bench:
    """A machine with a clock and the last instructions."""

    def __init__(self, **rules: Any) -> None:
        self.machine = Machine(Rules(**rules))
        self.now = 1000.0
        self.out: tuple[Instruction, ...] = ()

    def say(self, event: Event, *, after: float = 0.0) -> tuple[Instruction, ...]:
        self.now += after
        self.out = self.machine.handle(event, self.now)
        return self.out

    def tick(self, after: float) -> tuple[Instruction, ...]:
        return self.say(Tick(), after=after)

    def want(
        self,
        *,
        generation: int = 1,
        run: bool = True,
        after: float = 0.0,
        grace: float | None = None,
        hold: bool = False,
        **serve: Any,
    ) -> tuple[Instruction, ...]:
        told = Serve(**{**vars(SERVE), **serve})
        item = WantedReplica(replica_id=R, generation=generation, run=run, serve=told, grace=grace, hold=hold)
        return self.say(WantedArrived(replicas=(item,)), after=after)

    def only(self, kind: type[T]) -> T:
        found = [item for item in self.out if isinstance(item, kind)]
        assert len(found) == 1, self.out
        return found[0]

    def none(self, *kinds: type[Any]) -> None:
        assert not [item for item in self.out if isinstance(item, kinds)], self.out

    def spawned(self, *, pid: int = 10) -> int:
        launch = self.only(Spawn).launch
        self.say(Spawned(replica_id=R, launch=launch, pid=pid, port=4000, key="k"))
        return launch

    def probed(self, launch: int, verdict: Verdict, *, deep: bool = False, after: float = 0.0, **more: Any) -> None:
        self.say(Probed(replica_id=R, launch=launch, deep=deep, verdict=verdict, **more), after=after)

    def ready(self, **want: Any) -> int:
        self.want(**want)
        launch = self.spawned()
        self.tick(0.2)
        self.probed(launch, Verdict.READY)
        assert self.only(Probe).deep
        self.probed(launch, Verdict.READY, deep=True, context=512, slots=2)
        assert self.state == "ready"
        return launch

    def exited(self, launch: int, status: int | None = -9, after: float = 0.0) -> None:
        self.say(Exited(replica_id=R, launch=launch, status=status, log_tail="last words"), after=after)

    @property
    def report(self) -> Any:
        return next(report for report in self.machine.reports() if report.replica_id == R)

    @property
    def state(self) -> str:
        return str(self.report.state)
