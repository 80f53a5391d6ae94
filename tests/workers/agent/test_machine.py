"""The agent's decisions, one behaviour a test: events in, instructions out, time by hand."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from cluster.wire import AdapterFile, ReplicaLoad, Serve, WantedReplica, Weights
from llmgw_site.lib.units import GIB
from workers.agent.events import (
    Adopted,
    Event,
    Exited,
    Forget,
    GatewayGone,
    Instruction,
    LoadReported,
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
    WeightsSeen,
    WriteEngines,
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


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_wanted_replica_is_spawned_and_is_ready_only_after_a_real_token(bench: Bench) -> None:
    bench.want()
    spawn = bench.only(Spawn)
    assert (spawn.generation, spawn.serve.model) == (1, "m")
    assert "generation 1" in spawn.cause
    bench.only(WriteEngines)
    bench.only(ReportNow)
    bench.spawned()
    assert bench.state == "starting"
    bench.tick(0.2)
    assert not bench.only(Probe).deep
    bench.probed(1, Verdict.READY)
    assert bench.only(Probe).deep
    assert bench.machine.engines() == ()
    bench.probed(1, Verdict.READY, deep=True, context=512, slots=2)
    assert bench.only(Remember).context == 512
    bench.only(WriteEngines)
    engine = bench.machine.engines()[0]
    assert (engine.state, engine.port, engine.key, engine.slots, engine.context) == ("ready", 4000, "k", 2, 512)
    assert bench.machine.starting() == ()


def test_the_same_wish_again_changes_nothing(bench: Bench) -> None:
    bench.ready()
    assert bench.want() == ()


def test_f46_health_that_says_loading_for_minutes_is_normal(bench: Bench) -> None:
    bench.want()
    launch = bench.spawned()
    for _ in range(600):
        bench.tick(1.0)
        bench.none(Signal)
        bench.probed(launch, Verdict.LOADING)
    bench.tick(1.0)
    bench.probed(launch, Verdict.READY)
    bench.probed(launch, Verdict.READY, deep=True)
    assert bench.state == "ready"


def test_f42_a_slow_start_fails_at_its_deadline_and_not_before(bench: Bench) -> None:
    bench.want(start_timeout=300.0)
    launch = bench.spawned()
    bench.tick(299.9)
    bench.none(Signal)
    bench.tick(0.1)
    assert not bench.only(Signal).kill
    bench.exited(launch, 0, after=0.5)
    assert bench.report.code == "start_timeout"
    assert "300 s" in bench.report.message
    assert bench.only(Spawn).launch != launch  # and it is tried again


@pytest.mark.parametrize(
    ("size", "own", "most", "deadline"),
    [
        (GIB // 2, 0.0, 7200.0, 310.0),
        (0, 0.0, 7200.0, 1200.0),  # nobody knows how large it is
        (GIB, 0.0, 7200.0, 320.0),
        (40 * GIB, 0.0, 7200.0, 1100.0),
        (800 * GIB, 0.0, 7200.0, 7200.0),  # never more than the node's setting
        (0, 0.0, 60.0, 60.0),
        (40 * GIB, 30.0, 7200.0, 30.0),  # the profile's own stands
        (0, 9000.0, 7200.0, 9000.0),
    ],
)
def test_a_start_has_five_minutes_and_twenty_seconds_for_each_gib(
    size: int, own: float, most: float, deadline: float
) -> None:
    serve = Serve(engine="llama.cpp", model="m", weights=Weights(path="/w", size=size), start_timeout=own)
    assert Rules(start_timeout=most).start_deadline(serve) == deadline


def test_a_ready_engine_that_dies_is_started_again_at_once(bench: Bench) -> None:
    launch = bench.ready()
    bench.exited(launch, after=5)
    assert bench.only(Spawn).launch == launch + 1
    assert (bench.report.code, bench.report.attempt, bench.report.log_tail) == ("engine_died", 2, "last words")
    assert bench.machine.engines() == ()
    assert "signal 9" in bench.machine.starting()[0].message


def test_one_that_keeps_dying_gets_growing_pauses_up_to_a_minute_and_backoff(bench: Bench) -> None:
    bench.want()
    pauses, states = [], []
    for _ in range(10):
        launch = bench.spawned()
        bench.exited(launch, 1)
        start = bench.now
        states.append(bench.state)
        while not any(isinstance(item, Spawn) for item in bench.out):
            bench.tick(0.25)
        pauses.append(bench.now - start)
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert states[:3] == ["starting", "starting", "backoff"]
    assert bench.report.code == "engine_start_failed"


def test_a_minute_of_service_wipes_old_failures_out(bench: Bench) -> None:
    bench.want()
    for _ in range(4):
        bench.exited(bench.spawned(), 1)
        if not any(isinstance(item, Spawn) for item in bench.out):
            bench.tick(60)
    launch = bench.spawned()
    bench.tick(0.2)
    bench.probed(launch, Verdict.READY)
    bench.probed(launch, Verdict.READY, deep=True)
    assert bench.report.code == ""
    bench.exited(launch, after=61)
    bench.only(Spawn)


def test_what_cannot_be_spawned_shows_its_code_at_once_and_is_tried_again(bench: Bench) -> None:
    bench.want()
    launch = bench.only(Spawn).launch
    bench.say(SpawnFailed(replica_id=R, launch=launch, code="weights_missing", message="/w.gguf is not there"))
    assert (bench.state, bench.report.code) == ("backoff", "weights_missing")
    assert bench.machine.starting()[0].code == "weights_missing"
    bench.tick(2.0)
    bench.only(Spawn)


def test_refused_arguments_are_final_until_something_changes(bench: Bench) -> None:
    bench.want()
    launch = bench.only(Spawn).launch
    bench.say(SpawnFailed(replica_id=R, launch=launch, code="engine_args_refused", message="no", final=True))
    assert bench.state == "failed"
    assert bench.tick(3600) == ()
    assert bench.want() == ()
    bench.want(generation=2)
    assert bench.only(Spawn).generation == 2


def test_another_generation_drains_the_old_engine_and_then_starts_the_new_one(bench: Bench) -> None:
    launch = bench.ready()
    bench.say(LoadReported(replicas={R: ReplicaLoad(in_flight=1)}))
    bench.want(generation=2)
    bench.none(Signal, Spawn)
    assert bench.machine.engines()[0].state == "draining"
    bench.say(LoadReported(replicas={R: ReplicaLoad(in_flight=1)}), after=1)
    bench.none(Signal)
    bench.say(LoadReported(replicas={R: ReplicaLoad(in_flight=0)}), after=1)
    assert not bench.only(Signal).kill
    assert bench.machine.engines() == ()
    bench.exited(launch, 0)
    assert bench.only(Spawn).generation == 2
    assert (bench.report.generation, bench.report.code) == (2, "")


def test_one_that_shall_stop_serves_on_until_routers_know_it() -> None:
    bench = Bench(handover=3.0)
    bench.ready()
    bench.want(run=False)
    assert (bench.state, bench.machine.engines()[0].leaving) == ("ready", True)
    bench.tick(2.9)
    assert bench.state == "ready"
    bench.want(run=True)
    assert not bench.machine.engines()[0].leaving
    bench.want(run=False)
    bench.tick(2.9)
    assert bench.state == "ready"
    bench.tick(0.2)
    assert (bench.state, bench.machine.engines()[0].leaving) == ("draining", False)


def test_a_zero_from_before_the_gateway_knew_of_the_drain_does_not_count(bench: Bench) -> None:
    bench.ready()
    bench.say(LoadReported(replicas={R: ReplicaLoad()}))
    bench.want(run=False)
    bench.say(LoadReported(replicas={R: ReplicaLoad()}), after=0.1)
    bench.none(Signal)
    bench.say(LoadReported(replicas={R: ReplicaLoad()}), after=1)
    bench.only(Signal)


def test_a_drain_ends_at_its_bound_though_requests_still_run(bench: Bench) -> None:
    bench.ready(drain_timeout=30.0)
    bench.say(LoadReported(replicas={R: ReplicaLoad(in_flight=3)}))
    bench.want(run=False, drain_timeout=30.0)
    bench.say(LoadReported(replicas={R: ReplicaLoad(in_flight=3)}), after=29.9)
    bench.none(Signal)
    bench.tick(0.1)
    assert "30 s" in bench.only(Signal).cause


@pytest.mark.parametrize(("own", "grace", "bound"), [(300.0, 30.0, 30), (10.0, 30.0, 10), (300.0, None, 300)])
def test_one_whose_room_is_taken_has_its_grace_and_no_more_than_its_own_time(
    bench: Bench, own: float, grace: float | None, bound: int
) -> None:
    bench.ready(drain_timeout=own)
    bench.say(LoadReported(replicas={R: ReplicaLoad(in_flight=3)}))
    bench.want(run=False, drain_timeout=own, grace=grace)
    bench.say(LoadReported(replicas={R: ReplicaLoad(in_flight=3)}), after=bound - 0.1)
    bench.none(Signal)
    bench.tick(0.2)
    assert f"drained for {bound} s" in bench.only(Signal).cause


def test_without_a_gateway_the_engine_itself_is_asked_whether_it_is_idle(bench: Bench) -> None:
    launch = bench.ready()
    bench.say(GatewayGone())
    bench.want(run=False)
    bench.tick(2.9)
    bench.none(Signal, Probe)
    bench.tick(0.2)
    bench.only(Probe)
    bench.probed(launch, Verdict.READY, in_flight=1)
    bench.none(Signal)
    bench.tick(2)
    bench.only(Probe)
    bench.probed(launch, Verdict.READY, in_flight=0)
    bench.only(Signal)


def test_a_drain_is_called_off_when_it_is_wanted_again(bench: Bench) -> None:
    bench.ready()
    bench.want(run=False)
    assert bench.state == "draining"
    bench.want()
    assert bench.state == "ready"
    bench.none(Signal, Spawn)


def test_f40_an_engine_that_ignores_sigterm_is_killed_after_the_grace(bench: Bench) -> None:
    launch = bench.ready(drain_timeout=1.0)
    bench.want(run=False, drain_timeout=1.0)
    bench.tick(1)
    assert not bench.only(Signal).kill
    bench.tick(9.9)
    bench.none(Signal)
    bench.tick(0.1)
    assert bench.only(Signal).kill
    assert bench.state == "draining"
    bench.exited(launch)
    assert bench.state == "stopped"
    bench.none(Spawn)


def test_a_replica_that_is_not_listed_is_drained_stopped_and_forgotten(bench: Bench) -> None:
    launch = bench.ready()
    bench.say(WantedArrived(replicas=()))
    assert bench.state == "draining"
    bench.tick(299)
    bench.none(Signal)
    bench.tick(1)
    bench.only(Signal)
    bench.exited(launch, 0)
    bench.only(Forget)
    assert bench.machine.reports() == ()


def test_one_that_is_not_wanted_any_more_while_it_starts_is_ended_without_a_drain(bench: Bench) -> None:
    bench.want()
    launch = bench.only(Spawn).launch
    bench.say(WantedArrived(replicas=()))
    bench.none(Signal, Spawn)  # nothing to signal yet
    bench.say(Spawned(replica_id=R, launch=launch, pid=1, port=1, key="k"))
    bench.only(Signal)


def test_an_adopted_ready_engine_serves_while_it_is_looked_at(bench: Bench) -> None:
    bench.say(Adopted(replica_id=R, generation=1, serve=SERVE, pid=7, port=4001, key="k", started_at=900, ready_at=901))
    assert bench.machine.engines()[0].port == 4001
    assert not bench.only(Probe).deep
    bench.want()
    bench.none(Spawn, Signal)
    assert bench.report.pid == 7


def test_an_adopted_engine_is_kept_as_long_as_nobody_says_what_is_wanted(bench: Bench) -> None:
    bench.say(Adopted(replica_id=R, generation=1, serve=SERVE, pid=7, port=4001, key="k", started_at=900))
    for _ in range(100):
        bench.tick(1)
        bench.none(Signal, Forget)
    bench.say(WantedArrived(replicas=()))
    bench.only(Signal)


def test_an_adopted_engine_that_was_still_loading_keeps_its_first_deadline(bench: Bench) -> None:
    bench.say(Adopted(replica_id=R, generation=1, serve=SERVE, pid=7, port=1, key="k", started_at=bench.now - 1199))
    bench.want()
    bench.none(Signal)
    bench.tick(1)
    bench.only(Signal)


@pytest.mark.parametrize("verdict", [Verdict.SILENT, Verdict.LOADING])  # LOADING: it does not even listen
def test_a_suspect_is_looked_at_at_once_and_replaced_only_after_long_silence(bench: Bench, verdict: Verdict) -> None:
    launch = bench.ready()
    bench.say(LoadReported(replicas={}, suspects=(R,)))
    assert {item.deep for item in bench.out if isinstance(item, Probe)} == {False, True}
    bench.probed(launch, verdict)
    for _ in range(59):
        bench.tick(1)
        bench.none(Signal)
        if any(isinstance(item, Probe) for item in bench.out):
            bench.probed(launch, verdict)
    bench.tick(1)
    bench.only(Signal)
    bench.exited(launch)
    assert bench.report.code == "engine_unresponsive"
    bench.only(Spawn)


def test_f07_a_single_silent_look_heals_by_itself() -> None:
    bench = Bench(deep_every=1e9)
    launch = bench.ready()
    bench.tick(20)
    bench.probed(launch, Verdict.SILENT)
    bench.tick(1)
    bench.probed(launch, Verdict.READY)
    for _ in range(20):
        bench.tick(15)
        bench.none(Signal)
        bench.probed(launch, Verdict.READY)


def deep_asked(bench: Bench) -> bool:
    return any(isinstance(item, Probe) and item.deep for item in bench.out)


def wait_for_a_deep_look(bench: Bench, launch: int, *, seconds: int = 200) -> float:
    """Seconds until a token is asked for, while shallow looks are answered well."""
    for passed in range(seconds):
        bench.tick(1)
        if deep_asked(bench):
            return passed + 1.0
        if any(isinstance(item, Probe) for item in bench.out):
            bench.probed(launch, Verdict.READY)
            if deep_asked(bench):
                return passed + 1.0
    raise AssertionError("nobody asked for a token")


def test_f60_a_ready_engine_whose_health_is_fine_but_whose_core_is_stuck_is_replaced(bench: Bench) -> None:
    launch = bench.ready()
    assert wait_for_a_deep_look(bench, launch) == bench.machine.rules.deep_every
    began = bench.now
    while not any(isinstance(item, Signal) for item in bench.out):
        bench.tick(1)
        if any(isinstance(item, Probe) and not item.deep for item in bench.out):
            bench.probed(launch, Verdict.READY)
    assert 2 * bench.machine.rules.deep_patience <= bench.now - began <= 2 * bench.machine.rules.deep_patience + 5
    bench.exited(launch)
    assert bench.report.code == "engine_wedged"
    bench.only(Spawn)


def test_f60_one_that_answers_every_token_with_an_error_is_replaced_soon(bench: Bench) -> None:
    launch = bench.ready()
    wait_for_a_deep_look(bench, launch)
    bench.probed(launch, Verdict.BROKEN, deep=True)
    bench.none(Signal)
    wait_for_a_deep_look(bench, launch, seconds=5)
    bench.probed(launch, Verdict.BROKEN, deep=True)
    bench.only(Signal)


def test_f60_a_late_token_is_proof_enough_and_costs_one_look_in_two_minutes(bench: Bench) -> None:
    launch = bench.ready()
    for _ in range(5):
        assert wait_for_a_deep_look(bench, launch) == bench.machine.rules.deep_every
        bench.tick(59)
        bench.probed(launch, Verdict.READY, deep=True)
        bench.none(Signal)


def test_f60_an_engine_whose_slots_are_all_taken_is_never_asked_and_never_blamed(bench: Bench) -> None:
    launch = bench.ready()
    for _ in range(600):
        bench.say(LoadReported(replicas={R: ReplicaLoad(in_flight=2)}), after=1)
        assert not deep_asked(bench)
        bench.none(Signal)
        if any(isinstance(item, Probe) for item in bench.out):
            bench.probed(launch, Verdict.READY)


def test_f60_an_engine_at_work_may_take_its_time_for_the_token(bench: Bench) -> None:
    launch = bench.ready()
    bench.say(LoadReported(replicas={R: ReplicaLoad(in_flight=1)}))
    wait_for_a_deep_look(bench, launch)
    for _ in range(280):
        bench.say(LoadReported(replicas={R: ReplicaLoad(in_flight=1)}), after=1)
        bench.none(Signal)
        if any(isinstance(item, Probe) for item in bench.out):
            bench.probed(launch, Verdict.READY)


def test_f60_a_token_that_comes_while_the_engine_drains_counts_if_it_is_wanted_again(bench: Bench) -> None:
    launch = bench.ready()
    bench.say(LoadReported(replicas={R: ReplicaLoad(in_flight=1)}))
    wait_for_a_deep_look(bench, launch)
    bench.want(run=False)
    assert bench.state == "draining"
    bench.probed(launch, Verdict.READY, deep=True)
    bench.want()
    assert bench.state == "ready"
    assert wait_for_a_deep_look(bench, launch) == bench.machine.rules.deep_every


def test_f60_a_suspect_is_asked_for_a_token_at_once_but_not_for_each_connection_that_fails(bench: Bench) -> None:
    launch = bench.ready()
    asked = 0
    for _ in range(20):
        bench.say(LoadReported(replicas={R: ReplicaLoad()}, suspects=(R,)), after=0.5)
        if deep_asked(bench):
            asked += 1
            bench.probed(launch, Verdict.READY, deep=True)
    assert asked == 1


def test_an_engine_that_answers_nonsense_is_a_failed_start(bench: Bench) -> None:
    bench.want()
    launch = bench.spawned()
    bench.tick(0.2)
    bench.probed(launch, Verdict.BROKEN, message="/health answered 404")
    bench.only(Signal)
    bench.exited(launch, 0)
    assert (bench.report.code, bench.report.message) == ("engine_answers_wrong", "/health answered 404")


def test_news_of_an_earlier_process_never_touches_its_successor(bench: Bench) -> None:
    launch = bench.ready()
    bench.exited(launch)
    bench.spawned(pid=11)
    bench.exited(launch)
    bench.probed(launch, Verdict.READY, deep=True)
    assert (bench.state, bench.report.pid) == ("starting", 11)


def test_load_shows_in_the_report_and_is_no_reason_to_report_at_once(bench: Bench) -> None:
    bench.ready()
    bench.say(LoadReported(replicas={R: ReplicaLoad(in_flight=2, last_used_at=990.0)}))
    assert bench.out == ()
    assert (bench.report.in_flight, bench.report.last_used_at) == (2, 990.0)


# --- weights that are fetched first -----------------------------------------------------------------------------------

V, LORA = "ver_0000000001", "ver_0000000002"
FETCHED: dict[str, Any] = {
    "weights": Weights(path="m.gguf", version=V),
    "adapters": (AdapterFile(name="pirate", weights=Weights(path="a.gguf", version=LORA)),),
}


def test_a_replica_begins_when_its_weights_and_its_adapters_are_whole(bench: Bench) -> None:
    bench.want(**FETCHED)
    bench.none(Spawn)
    bench.only(ReportNow)
    assert (bench.state, bench.report.message, bench.report.pid) == ("fetching", "", None)
    bench.say(WeightsSeen(whole=frozenset({V}), fetches={LORA: ("registry_limited", "asked again in 20 s")}))
    bench.none(Spawn)
    bench.only(WriteEngines)
    assert (bench.state, bench.report.code, bench.report.message) == (
        "fetching",
        "registry_limited",
        "asked again in 20 s",
    )
    assert bench.machine.starting()[0].message == "asked again in 20 s"
    assert bench.machine.used() == {V, LORA}
    bench.say(WeightsSeen(whole=frozenset({V, LORA})))
    bench.only(Spawn)
    assert (bench.state, bench.report.code, bench.report.attempt) == ("starting", "", 1)


def test_waiting_for_weights_costs_no_attempt_and_no_pause(bench: Bench) -> None:
    bench.want(**FETCHED)
    for _ in range(100):
        bench.tick(100.0)
        bench.none(Spawn, Signal, Probe)
    bench.say(WeightsSeen(whole=frozenset({V, LORA})))
    assert bench.only(Spawn).cause == "generation 1 wanted, attempt 1"


def test_what_is_said_of_fetches_alone_leaves_what_is_whole_as_it_was(bench: Bench) -> None:
    bench.say(WeightsSeen(whole=frozenset({V, LORA})))
    bench.say(WeightsSeen(fetches={"ver_0000000003": ("", "half")}))
    bench.want(**FETCHED)
    bench.only(Spawn)


def test_an_adopted_engine_runs_on_whatever_the_store_says(bench: Bench) -> None:
    told = Serve(**{**vars(SERVE), **FETCHED})
    adopted = Adopted(
        replica_id=R, generation=1, serve=told, pid=5, port=1, key="k", started_at=900.0, ready_at=950.0, context=512
    )
    bench.say(adopted)
    bench.want(**FETCHED)
    bench.none(Spawn, Signal)
    assert bench.state == "ready"
    assert bench.machine.used() == {V, LORA}


def test_the_old_generation_serves_until_the_weights_of_the_new_one_are_there(bench: Bench) -> None:
    launch = bench.ready()
    bench.want(generation=2, **FETCHED)
    bench.none(Spawn, Signal)
    bench.tick(600.0)
    bench.none(Signal)
    assert (bench.state, bench.report.generation) == ("ready", 1)
    bench.say(WeightsSeen(whole=frozenset({V, LORA})))
    bench.tick(1.0)
    assert bench.state == "draining"
    bench.tick(400.0)
    bench.exited(launch, 0)
    assert bench.only(Spawn).generation == 2


def test_weights_that_go_while_nothing_runs_are_waited_for_again(bench: Bench) -> None:
    bench.say(WeightsSeen(whole=frozenset({V, LORA})))
    bench.want(**FETCHED)
    launch = bench.only(Spawn).launch
    bench.say(SpawnFailed(replica_id=R, launch=launch, code="weights_missing", message="not whole any more"))
    assert (bench.state, bench.report.code) == ("backoff", "weights_missing")
    bench.say(WeightsSeen(whole=frozenset({V})))
    assert bench.state == "fetching"
    bench.tick(1000.0)
    bench.none(Spawn)
    bench.say(WeightsSeen(whole=frozenset({V, LORA})))
    bench.only(Spawn)


def test_one_that_is_not_wanted_any_more_waits_for_no_weights(bench: Bench) -> None:
    bench.want(**FETCHED)
    bench.want(run=False, **FETCHED)
    assert (bench.state, bench.report.code, bench.report.message) == ("stopped", "", "")
    bench.say(WantedArrived(replicas=()))
    bench.only(Forget)
    assert bench.machine.used() == frozenset()
