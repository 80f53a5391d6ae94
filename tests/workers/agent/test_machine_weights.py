"""The agent's decisions: weights that are fetched first."""

from __future__ import annotations

from typing import Any

from cluster.wire import AdapterFile, Serve, Weights
from tests.workers.agent.bench import SERVE, Bench, R
from workers.agent.events import (
    Adopted,
    Forget,
    Probe,
    ReportNow,
    Signal,
    Spawn,
    SpawnFailed,
    WantedArrived,
    WeightsSeen,
    WriteEngines,
)

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
