"""cluster.domain.demand: what a request for a model at rest is told."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.domain.demand import (
    AGAIN,
    NOBODY_AFTER,
    Found,
    Stage,
    at_rest,
    attempt_for,
    nobody_waits,
    progress,
    verdict,
)
from cluster.domain.states import ReplicaState
from cluster.domain.types import Standing
from tests.cluster.builders import a_model, a_node, a_replica

NOW = 1000.0
NODE = a_node()
AWAKE = Standing(asked_at=NOW, used_at=NOW)
NO_ROOM = Found(attempt_at=NOW, why_at=NOW + 1, code="no_memory_now", message="one: it needs 4 GiB")


def on_demand(**fields: Any) -> Any:
    return a_model(**{"base": 0, "most": 1, "standing": AWAKE, **fields})


def told(
    model: Any, *states: ReplicaState | str, found: Found | None = None, attempt: float = NOW, **fields: Any
) -> Any:
    replicas = [(a_replica(model, NODE, state=ReplicaState(state), **fields), ReplicaState(state)) for state in states]
    return verdict(model, replicas, found or Found(attempt_at=NOW), attempt=attempt)


@pytest.mark.parametrize(
    ("states", "stage"),
    [
        ((), Stage.WAITING),
        (("pending",), Stage.STARTING),
        (("starting",), Stage.STARTING),
        (("draining",), Stage.STARTING),
        (("ready",), Stage.READY),
        (("failed", "ready"), Stage.READY),
        (("failed", "starting"), Stage.STARTING),
        (("failed",), Stage.FAILED),
        (("backoff",), Stage.FAILED),
        (("lost",), Stage.WAITING),
        (("lost", "starting"), Stage.STARTING),
    ],
)
def test_an_attempt_stands_as_its_nearest_replica_does(states: tuple[str, ...], stage: Stage) -> None:
    assert told(on_demand(), *states).stage is stage


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        ([], ""),
        ([("ready", {})], ""),
        ([("starting", {"run": False})], ""),
        ([("pending", {})], "its node is about to start a replica"),
        ([("fetching", {"message": "The node has 1 GiB of 4 GiB."})], "The node has 1 GiB of 4 GiB"),
        ([("fetching", {"code": "x", "message": "http://inside refused"})], "its node fetches the weights"),
        ([("starting", {"state_since": NOW - 9}), ("fetching", {})], "a replica has been loading its weights for 9 s"),
        ([("starting", {"state_since": NOW - n}) for n in (2, 30)], "a replica has been loading its weights for 30 s"),
    ],
)
def test_who_waits_is_told_how_far_the_nearest_replica_is(replicas: list[tuple[str, Any]], said: str) -> None:
    model = on_demand()
    rows = [
        (a_replica(model, NODE, state=ReplicaState(state), **more), ReplicaState(state)) for state, more in replicas
    ]
    assert progress(rows, NOW) == said


def test_a_start_that_failed_says_why() -> None:
    found = told(on_demand(), "backoff", code="engine_exited", message="invalid magic characters")
    assert (found.stage, found.code) == (Stage.FAILED, "engine_exited")
    assert "invalid magic characters" in found.message
    assert found.over


def test_an_engine_that_has_just_died_is_on_its_way_again() -> None:
    assert told(on_demand(), "backoff", code="engine_died").stage is Stage.STARTING


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("backoff", "its engine did not start, and its node tries again: half a file"),
        ("failed", "its engine did not start, and it is not tried again without a change: half a file"),
    ],
)
def test_a_failed_start_is_told_with_what_its_node_does_about_it(state: str, said: str) -> None:
    assert told(on_demand(), state, message="half a file").message == said


@pytest.mark.parametrize(
    ("restarting", "stage"), [(("r-0:1",), Stage.WAITING), (("r-0:2",), Stage.FAILED), ((), Stage.FAILED)]
)
def test_what_failed_and_is_about_to_start_anew_is_no_answer_any_more(
    restarting: tuple[str, ...], stage: Stage
) -> None:
    model = on_demand(standing=Standing(asked_at=NOW, restarting=restarting))
    for state in ("backoff", "failed"):
        assert told(model, state, code="weights_changed", id="r-0").stage is stage


def test_a_look_later_than_the_attempt_says_that_there_is_no_place() -> None:
    found = told(on_demand(), found=NO_ROOM)
    assert (found.stage, found.code, found.message) == (Stage.NOWHERE, "no_memory_now", "one: it needs 4 GiB")


@pytest.mark.parametrize(("code", "stage"), [("store_full", Stage.NOWHERE), ("fetch_waits", Stage.STARTING)])
def test_where_there_is_no_room_for_its_weights_a_replica_is_not_on_its_way(code: str, stage: Stage) -> None:
    found = Found(attempt_at=NOW, why_at=NOW + 1, code="waiting_to_move", message="one: 60 GiB more do not fit")
    answer = told(on_demand(), "fetching", code=code, found=found)
    assert (answer.stage, answer.code) == (stage, "waiting_to_move" if stage is Stage.NOWHERE else "")
    assert told(on_demand(), "fetching", code="disk_full").stage is Stage.WAITING, "a look may find another place"


def test_a_look_before_the_attempt_says_nothing_of_it() -> None:
    assert told(on_demand(), found=NO_ROOM, attempt=NOW + 2).stage is Stage.WAITING


def test_while_room_is_made_requests_wait() -> None:
    claimed = Found(attempt_at=NOW, why_at=NOW + 1, code="no_memory_now", claimed=True)
    assert told(on_demand(), found=claimed).stage is Stage.WAITING


def test_while_its_own_last_replica_leaves_requests_wait() -> None:
    assert told(on_demand(), "draining", found=NO_ROOM, run=False).stage is Stage.WAITING
    assert told(on_demand(), "stopped", found=NO_ROOM, run=False).stage is Stage.NOWHERE


def test_a_parked_model_is_answered_with_its_cause_whatever_else_there_is() -> None:
    standing = Standing(failures=5, parked_at=NOW, parked_code="engine_exited", parked_message="the file is broken")
    words = Found(parked="small is parked: the file is broken")
    found = told(on_demand(standing=standing), "failed", found=words)
    assert (found.stage, found.code) == (Stage.PARKED, "model_parked")
    assert found.message == "small is parked: the file is broken"


def test_a_model_whose_change_is_parked_is_ready_as_long_as_it_serves_as_before() -> None:
    standing = Standing(failures=5, parked_at=NOW, parked_code="engine_exited", parked_message="the file is broken")
    assert told(a_model(standing=standing), "ready", found=Found(parked="parked")).stage is Stage.READY


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"enabled": False}, "model_disabled"),
        ({"most": 0}, "model_not_wanted"),
        ({"external": True}, "model_not_wanted"),
    ],
)
def test_what_cannot_be_asked_for_says_so(fields: dict[str, Any], code: str) -> None:
    found = told(on_demand(**fields), "ready")
    assert (found.stage, found.code) == (Stage.UNWANTED, code)


RESTING = on_demand(standing=Standing())


@pytest.mark.parametrize(
    ("model", "found", "stage", "now", "attempt"),
    [
        (RESTING, Found(), Stage.WAITING, NOW, NOW),
        (RESTING, Found(attempt_at=10.0), Stage.WAITING, NOW, NOW),  # of when it was awake before
        (on_demand(), Found(attempt_at=NOW), Stage.STARTING, NOW + 60, NOW),
        (on_demand(), Found(attempt_at=NOW), Stage.WAITING, NOW + 60, NOW),
        (on_demand(), NO_ROOM, Stage.NOWHERE, NOW + AGAIN, NOW + AGAIN),
        (on_demand(), NO_ROOM, Stage.NOWHERE, NOW + AGAIN - 0.1, NOW),  # too soon: the last one answers
        (on_demand(), Found(attempt_at=NOW), Stage.FAILED, NOW + 60, NOW),  # the node tries again by itself
    ],
)
def test_a_request_waits_for_the_attempt_under_way_or_begins_one(
    model: Any, found: Found, stage: Stage, now: float, attempt: float
) -> None:
    assert attempt_for(model, found, stage, now) == attempt


def test_at_rest_is_only_what_runs_on_demand() -> None:
    assert at_rest(RESTING)
    assert not at_rest(on_demand())
    assert not at_rest(a_model(base=1))


def test_f39_a_load_for_which_nobody_waits_any_more_is_known_by_its_last_use() -> None:
    model = on_demand()
    assert not nobody_waits(model, NOW + NOBODY_AFTER - 1)
    assert nobody_waits(model, NOW + NOBODY_AFTER)
    assert not nobody_waits(a_model(base=1), NOW + 1000)
