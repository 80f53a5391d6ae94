"""The agent's decisions: what was adopted, and whether what is ready still works."""

from __future__ import annotations

import pytest

from cluster.wire import ReplicaLoad
from tests.workers.agent.bench import SERVE, Bench, R
from workers.agent.events import (
    Adopted,
    Forget,
    GatewayGone,
    LoadReported,
    Probe,
    Signal,
    Spawn,
    Verdict,
    WantedArrived,
)


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


def load(
    bench: Bench, still_for: float | None, *, in_flight: int = 0, patience: float = 300.0, after: float = 1.0
) -> bool:
    """A second later, with the engine's own figures; whether a token is asked for. Shallow looks are answered well."""
    told = ReplicaLoad(in_flight=in_flight, still_for=still_for, patience=patience)
    bench.say(LoadReported(replicas={R: told}), after=after)
    found = deep_asked(bench)
    assert not any(isinstance(item, Signal) for item in bench.out)
    if any(isinstance(item, Probe) and not item.deep for item in bench.out):
        bench.probed(bench.machine.replicas[R].process.launch, Verdict.READY)  # type: ignore[union-attr]
    return found or deep_asked(bench)


def test_f60_an_engine_that_computes_by_itself_is_never_asked(bench: Bench) -> None:
    bench.ready()
    assert not any(load(bench, 5.0, in_flight=1) for _ in range(1000))


def test_f60_one_that_fell_silent_is_asked_once_it_was_for_its_time(bench: Bench) -> None:
    launch = bench.ready()
    for _ in range(200):
        assert not load(bench, 0.0)
    asked = [still for still in range(1, 200) if load(bench, float(still))]
    assert asked[0] == bench.machine.rules.deep_every
    bench.probed(launch, Verdict.READY, deep=True)
    bench.none(Signal)


def test_f60_nobody_is_asked_where_it_is_switched_off() -> None:
    bench = Bench(deep_every=0.0)
    bench.ready()
    assert not any(load(bench, float(still)) for still in range(1000))
    bench.say(LoadReported(replicas={R: ReplicaLoad()}, suspects=(R,)), after=1)
    assert not deep_asked(bench)


def test_f60_a_prefill_that_takes_as_long_as_it_may_is_no_hang(bench: Bench) -> None:
    """All slots taken, nothing computed that its counts show, until the first byte's time is nearly over; then it moves."""
    bench.ready()
    load(bench, 0.0, in_flight=2)
    for _ in range(3):
        for still in range(1, 300):
            load(bench, float(still), in_flight=2)
            assert not bench.machine.engines()[0].leaving
        load(bench, 0.0, in_flight=2)
    assert bench.state == "ready"


def test_f60_an_engine_that_computes_nothing_with_all_slots_taken_is_replaced_after_the_first_bytes_time(
    bench: Bench,
) -> None:
    launch = bench.ready()
    load(bench, 0.0, in_flight=2)
    still = 0
    while not any(isinstance(item, Signal) for item in bench.out):
        still += 1
        told = ReplicaLoad(in_flight=2, still_for=float(still), patience=300.0)
        bench.say(LoadReported(replicas={R: told}), after=1)
        if any(isinstance(item, Probe) and not item.deep for item in bench.out):
            bench.probed(launch, Verdict.READY)
        if any(isinstance(item, Probe) and item.deep for item in bench.out):
            assert still >= bench.machine.rules.deep_patience
    assert 300 <= still <= 300 + bench.machine.rules.deep_every + 2  # from when it was asked for a token
    assert bench.machine.engines() == ()  # out of routing
    bench.exited(launch)
    assert bench.report.code == "engine_wedged"
    bench.only(Spawn)


def test_f60_one_that_owes_a_token_is_left_to_those_who_have_nobody_else_and_comes_back_when_it_computes(
    bench: Bench,
) -> None:
    launch = bench.ready()
    for still in range(1, 121):
        load(bench, float(still))
    for still in range(121, 182):
        load(bench, float(still))
    assert bench.machine.engines()[0].leaving
    load(bench, 0.0)
    assert not bench.machine.engines()[0].leaving
    bench.probed(launch, Verdict.READY, deep=True)
    assert not any(load(bench, float(still)) for still in range(1, 100))


def test_f60_a_failed_request_asks_no_engine_that_computes_for_others(bench: Bench) -> None:
    bench.ready()
    for _ in range(30):
        told = ReplicaLoad(in_flight=1, still_for=0.0)
        bench.say(LoadReported(replicas={R: told}, suspects=(R,)), after=1)
        assert not deep_asked(bench)


def test_f60_figures_of_a_gateway_that_went_count_no_longer(bench: Bench) -> None:
    bench.ready()
    for _ in range(100):
        load(bench, 0.0)
    bench.say(GatewayGone())
    assert bench.machine.replicas[R].process.moved_at is None  # type: ignore[union-attr]


def test_f60_engines_that_wedge_in_a_row_are_counted_and_pauses_grow_until_one_gives_a_token(bench: Bench) -> None:
    launch = bench.ready()
    for count in range(1, 5):
        while not any(isinstance(item, Signal) for item in bench.out):
            bench.tick(1)
            if any(isinstance(item, Probe) and not item.deep for item in bench.out):
                bench.probed(launch, Verdict.READY)
        bench.exited(launch)
        assert (bench.report.code, bench.report.wedged) == ("engine_wedged", count)
        assert bench.state == ("backoff" if count >= 3 else "starting")
        while not any(isinstance(item, Spawn) for item in bench.out):
            bench.tick(1)
        launch = bench.spawned()
        bench.tick(0.2)
        bench.probed(launch, Verdict.READY)
        bench.probed(launch, Verdict.READY, deep=True, context=512, slots=2)
        assert (bench.state, bench.report.wedged) == (
            "ready",
            count,
        )  # the token that makes it ready proves nothing more
    wait_for_a_deep_look(bench, launch)
    bench.probed(launch, Verdict.READY, deep=True)
    assert bench.report.wedged == 0
