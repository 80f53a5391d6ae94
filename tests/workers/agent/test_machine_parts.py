"""Parts of a replica over several nodes, as the agent of one of them sees its own."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.wire import Weights
from tests.workers.agent.bench import Bench, R
from workers.agent.events import Adopted, Forget, Probe, Signal, Spawn, SpawnFailed, Verdict, WantedArrived, WeightsSeen

LEADER: dict[str, Any] = {"engine": "vllm", "nodes": 2, "rank": 0, "master": "10.0.0.1", "master_port": 23001}
OTHER = {**LEADER, "rank": 1}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_part_that_has_all_that_it_takes_waits_for_the_others_and_then_starts(bench: Bench) -> None:
    bench.want(hold=True, **OTHER)
    bench.none(Spawn)
    assert (bench.state, bench.report.code) == ("starting", "waiting_for_parts")
    bench.tick(after=100)
    bench.none(Spawn)
    bench.want(**OTHER)
    assert bench.only(Spawn).serve.rank == 1
    assert bench.report.code == ""


def test_a_part_that_is_held_has_its_weights_fetched(bench: Bench) -> None:
    bench.want(hold=True, **OTHER, weights=Weights(path="", version="v1"))
    assert bench.state == "fetching"
    bench.say(WeightsSeen(whole=frozenset({"v1"})))
    assert (bench.state, bench.report.code) == ("starting", "waiting_for_parts")


def test_a_part_that_runs_is_not_held_any_more(bench: Bench) -> None:
    bench.ready(**OTHER)
    bench.want(hold=True, **OTHER)
    bench.none(Signal)
    assert bench.state == "ready"


@pytest.mark.parametrize(("serve", "seen"), [(LEADER, 1), (OTHER, 0)])
def test_only_the_leader_is_an_engine_of_the_gateway(bench: Bench, serve: dict[str, Any], seen: int) -> None:
    bench.want(**serve)
    assert len(bench.machine.starting()) == seen
    bench.want(run=False, **serve)
    bench = Bench()
    bench.ready(**serve)
    assert len(bench.machine.engines()) == seen


@pytest.mark.parametrize("serve", [LEADER, OTHER])
@pytest.mark.parametrize("was_ready", [True, False])
def test_a_part_that_ends_stays_down_until_all_begin_anew(bench: Bench, serve: dict[str, Any], was_ready: bool) -> None:
    if was_ready:
        launch = bench.ready(**serve)
    else:
        bench.want(**serve)
        launch = bench.spawned()
    bench.exited(launch)
    bench.tick(after=1000)
    bench.none(Spawn)
    assert bench.state == "backoff"
    assert bench.report.code == ("engine_died" if was_ready else "engine_start_failed")
    bench.want(run=False, grace=0.0, **serve)  # the others are ended
    assert bench.state == "stopped"
    bench.want(generation=2, **serve)
    assert bench.only(Spawn).generation == 2


def test_parts_that_wedge_in_a_row_are_counted_over_their_generations_and_anew_where_they_are_defined_anew(
    bench: Bench,
) -> None:
    serve: dict[str, Any] = dict(LEADER)
    launch = bench.ready(**serve)
    for generation in (1, 2, 3):
        while not any(isinstance(item, Signal) for item in bench.out):
            bench.tick(1)
            if any(isinstance(item, Probe) and not item.deep for item in bench.out):
                bench.probed(launch, Verdict.READY)
        bench.exited(launch)
        assert (bench.report.code, bench.report.wedged) == ("engine_wedged", generation)
        bench.want(generation=generation, run=False, grace=0.0, **serve)  # the other parts are ended
        assert bench.report.wedged == generation
        serve |= {"master_port": 23001 + generation, **({"args": ("--other",)} if generation == 3 else {})}
        bench.want(generation=generation + 1, **serve)
        launch = bench.spawned()
        bench.tick(0.2)
        bench.probed(launch, Verdict.READY)
        bench.probed(launch, Verdict.READY, deep=True, context=512, slots=2)
    assert bench.report.wedged == 0


def test_a_part_that_could_not_even_begin_is_tried_again_by_itself(bench: Bench) -> None:
    bench.want(**OTHER)
    failed = SpawnFailed(replica_id=R, launch=bench.only(Spawn).launch, code="card_memory_taken", message="in use")
    bench.say(failed)
    assert bench.state == "backoff"
    bench.tick(after=61)
    bench.only(Spawn)


def test_a_part_that_leads_no_other_ends_at_once_and_the_leader_drains(bench: Bench) -> None:
    bench.ready(**OTHER)
    bench.want(run=False, **OTHER)
    assert not bench.only(Signal).kill
    leader = Bench(handover=3.0)
    leader.ready(**LEADER)
    leader.want(run=False, **LEADER)
    leader.none(Signal)


def test_a_leader_whose_parts_have_ended_waits_for_no_request(bench: Bench) -> None:
    leader = Bench(handover=3.0)
    launch = leader.ready(**LEADER)
    leader.want(run=False, grace=0.0, **LEADER)
    leader.only(Signal)
    leader.exited(launch, status=0)
    assert leader.state == "stopped"


def test_a_part_of_an_earlier_agent_is_adopted_or_ended_as_any_engine(bench: Bench) -> None:
    bench.want(**OTHER)
    serve = bench.only(Spawn).serve
    adopting = Bench()
    adopting.say(
        Adopted(replica_id=R, generation=1, serve=serve, pid=7, port=4000, key="k", started_at=900.0, ready_at=950.0)
    )
    adopting.want(**OTHER)
    adopting.none(Signal, Spawn)
    assert (adopting.state, adopting.report.pid) == ("ready", 7)
    adopting.say(WantedArrived(replicas=()))
    adopting.only(Signal)
    adopting.none(Forget)


def test_a_part_is_ready_when_its_process_lives(bench: Bench) -> None:
    bench.want(**OTHER)
    launch = bench.spawned()
    bench.tick(after=0.2)
    bench.only(Probe)
    bench.probed(launch, Verdict.READY)
    bench.probed(launch, Verdict.READY, deep=True)
    assert bench.state == "ready"
