"""The agent's decisions: what runs and is not wanted any more, or as another generation, ends."""

from __future__ import annotations

import pytest

from cluster.wire import ReplicaLoad
from tests.workers.agent.bench import Bench, R
from workers.agent.events import (
    Forget,
    GatewayGone,
    LoadReported,
    Probe,
    Signal,
    Spawn,
    Spawned,
    Verdict,
    WantedArrived,
)


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
