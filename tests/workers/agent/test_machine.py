"""The agent's decisions, one behaviour a test: what is wanted starts, what fails is tried again."""

from __future__ import annotations

import pytest

from cluster.wire import ReplicaLoad, Serve, Weights
from llmgw_site.lib.units import GIB
from tests.workers.agent.bench import Bench, R
from workers.agent.events import (
    LoadReported,
    Probe,
    Remember,
    ReportNow,
    Signal,
    Spawn,
    SpawnFailed,
    Verdict,
    WriteEngines,
)
from workers.agent.state import Rules


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
