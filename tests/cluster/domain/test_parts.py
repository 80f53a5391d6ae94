"""Parts of a replica over several nodes: orders, reports and states by tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.domain.parts import (
    FIRST_PORT,
    PART_LOST,
    PORTS,
    Order,
    PartView,
    Said,
    fabric_address,
    heard,
    meeting_port,
    order,
    pause,
    stand,
    unreachable,
)
from cluster.domain.states import ReplicaState

S = ReplicaState
NOW = 500.0


def part(rank: int = 0, state: ReplicaState = S.READY, generation: int = 1, **fields: Any) -> PartView:
    running = state in (S.READY, S.DRAINING)
    values = {"pid": 10 + rank if running else None, "node": "ab"[rank], "since": 100.0, **fields}
    return PartView(rank=rank, state=state, generation=generation, **values)


NEW = [part(0, S.PENDING, 0), part(1, S.PENDING, 0)]
HERE = [part(0, S.STARTING, code="waiting_for_parts"), part(1, S.STARTING, code="waiting_for_parts")]
SERVING = [part(0), part(1)]
DEAD = part(1, S.BACKOFF, code="engine_died", message="The engine was ended by signal 9.")


@pytest.mark.parametrize(
    ("what", "parts", "replica", "leader", "other"),
    [
        ("new", NEW, {}, Order(generation=1, run=True, hold=True), Order(generation=1, run=True, hold=True)),
        ("one here", [HERE[0], NEW[1]], {}, Order(generation=1, run=True, hold=True), Order(generation=1, run=True, hold=True)),
        ("one fetches", [HERE[0], part(1, S.FETCHING)], {}, Order(generation=1, run=True, hold=True), Order(generation=1, run=True, hold=True)),
        ("all here", HERE, {}, Order(generation=1, run=True), Order(generation=1, run=True)),
        ("serving", SERVING, {}, Order(generation=1, run=True), Order(generation=1, run=True)),
        ("one could not begin", [HERE[0], part(1, S.BACKOFF, code="card_memory_taken")], {}, Order(generation=1, run=True), Order(generation=1, run=True)),
        ("one ended", [SERVING[0], DEAD], {}, Order(generation=1, run=False, grace=0.0), Order(generation=1, run=False, grace=0.0)),
        ("one is refused", [SERVING[0], part(1, S.FAILED)], {}, Order(generation=1, run=False, grace=0.0), Order(generation=1, run=False, grace=0.0)),
        ("told to stop", SERVING, {"run": False, "grace": 30.0}, Order(generation=1, run=False, grace=30.0), Order(generation=1, run=True, hold=True)),
        ("the leader drains", [part(0, S.DRAINING), part(1)], {"run": False}, Order(generation=1, run=False), Order(generation=1, run=True, hold=True)),
        ("the leader has stopped", [part(0, S.STOPPED), part(1)], {"run": False, "grace": 30.0}, Order(generation=1, run=False, grace=30.0), Order(generation=1, run=False, grace=30.0)),
        ("the leader is removed", [part(0, gone=True), part(1)], {"run": False}, Order(generation=1, run=False), Order(generation=1, run=False)),
        ("lost with a node", SERVING, {"run": False, "grace": 0.0}, Order(generation=1, run=False, grace=0.0), Order(generation=1, run=False, grace=0.0)),
        ("never began", NEW, {"run": False}, Order(generation=1, run=False), Order(generation=1, run=False)),
        ("to restart", SERVING, {"generation": 2}, Order(generation=2, run=True, hold=True), Order(generation=1, run=True, hold=True)),
        ("its leader is ready to", [part(0, S.STARTING, 2), part(1)], {"generation": 2}, Order(generation=2, run=True, hold=True), Order(generation=2, run=True, hold=True)),
        ("both are", [part(0, S.STARTING, 2), part(1, S.STARTING, 2)], {"generation": 2}, Order(generation=2, run=True), Order(generation=2, run=True)),
        ("at once after an end", SERVING, {"generation": 2, "grace": 0.0}, Order(generation=2, run=True, grace=0.0, hold=True), Order(generation=2, run=True, grace=0.0, hold=True)),
        ("after an end", [part(0, S.STOPPED), DEAD], {"generation": 2}, Order(generation=2, run=True, hold=True), Order(generation=2, run=True, hold=True)),
    ],
)  # fmt: skip
def test_what_each_node_is_told(
    what: str, parts: list[PartView], replica: dict[str, Any], leader: Order, other: Order
) -> None:
    values = {"run": True, "generation": 1, "grace": None, **replica}
    assert (order(parts[0], parts, **values), order(parts[1], parts, **values)) == (leader, other), what


def said(state: ReplicaState = S.READY, *, generation: int = 1, pid: int | None = 11, **fields: Any) -> Said:
    return Said(generation=generation, state=state, pid=pid, **fields)


GONE = said(S.STARTING, pid=None, code="waiting_for_parts")


@pytest.mark.parametrize(
    ("what", "before", "report", "asked", "state", "code"),
    [
        ("1: an end stays", DEAD, said(S.STOPPED, pid=None), {"told": False}, S.BACKOFF, "engine_died"),
        ("1: whatever its node does", DEAD, GONE, {"told": False}, S.BACKOFF, "engine_died"),
        ("1: nor is a refusal undone", part(1, S.FAILED, code="engine_args_refused"), said(S.STOPPED, pid=None), {"told": False}, S.FAILED, "engine_args_refused"),
        ("1: until the replica stops", DEAD, said(S.STOPPED, pid=None), {"run": False, "told": False}, S.STOPPED, ""),
        ("1: or begins anew", DEAD, said(S.STARTING, generation=2, pid=None), {"generation": 2}, S.STARTING, ""),
        ("2: nothing is there", part(1), None, {}, S.BACKOFF, PART_LOST),
        ("2: it waits anew", part(1), GONE, {}, S.BACKOFF, PART_LOST),
        ("2: another process", part(1), said(pid=99), {}, S.BACKOFF, PART_LOST),
        ("2: but it says why", part(1), said(S.BACKOFF, pid=None, code="engine_died"), {}, S.BACKOFF, "engine_died"),
        ("2: not where it was told to end", part(1), GONE, {"told": False}, S.STARTING, "waiting_for_parts"),
        ("2: nor of an earlier generation", part(1), GONE, {"generation": 2}, S.STARTING, "waiting_for_parts"),
        ("3: it is to come", NEW[1], None, {}, S.PENDING, ""),
        ("3: it has stopped", part(1), None, {"run": False, "told": False}, S.STOPPED, ""),
        ("4: as reported", HERE[1], said(), {}, S.READY, ""),
    ],
)  # fmt: skip
def test_what_is_made_of_a_report(
    what: str, before: PartView, report: Said | None, asked: dict[str, Any], state: ReplicaState, code: str
) -> None:
    after = heard(before, report, **{"run": True, "told": True, "generation": 1, "now": NOW, **asked})
    assert (after.state, after.code) == (state, code), what


def test_the_same_report_changes_nothing() -> None:
    assert heard(part(1), said(), run=True, told=True, generation=1, now=NOW) == part(1)


@pytest.mark.parametrize(
    ("what", "parts", "replica", "state", "words"),
    [
        ("1: it drains", [part(0, S.DRAINING), part(1)], {"run": False}, S.DRAINING, ""),
        ("1: a part still ends", [part(0, S.STOPPED), part(1)], {"run": False}, S.DRAINING, ""),
        ("1: it has stopped", [part(0, S.STOPPED), part(1, S.STOPPED)], {"run": False}, S.STOPPED, ""),
        ("1: a node was removed", [part(0, S.STOPPED), part(1, gone=True)], {"run": False}, S.STOPPED, ""),
        ("2: refused", [part(0), part(1, S.FAILED, message="no")], {}, S.FAILED, "part 2 of 2, on node b: no"),
        ("2: the first that ended, and the next", [part(0, S.BACKOFF, code="engine_died", message="later", since=200.0), DEAD], {}, S.BACKOFF, "part 2 of 2, on node b: The engine was ended by signal 9; part 1 of 2, on node a: later"),
        ("2: could not begin", [HERE[0], part(1, S.BACKOFF, code="card_memory_taken", message="taken")], {}, S.BACKOFF, "part 2 of 2, on node b: taken"),
        ("3: weights", [HERE[0], part(1, S.FETCHING, message="1 GiB of 2")], {}, S.FETCHING, "part 2 of 2, on node b: 1 GiB of 2"),
        ("4: ready", SERVING, {}, S.READY, ""),
        ("5: nobody has spoken", NEW, {}, S.PENDING, ""),
        ("5: of this generation", SERVING, {"generation": 2}, S.PENDING, ""),
        ("6: one is not there yet", [part(0), NEW[1]], {}, S.STARTING, ""),
        ("6: it begins again", [part(0, S.STOPPED), DEAD], {"generation": 2, "begun": True}, S.STARTING, ""),
        ("6: the leader loads", [part(0, S.STARTING, message="it loads"), part(1)], {}, S.STARTING, "it loads"),
    ],
)  # fmt: skip
def test_how_the_replica_stands(
    what: str, parts: list[PartView], replica: dict[str, Any], state: ReplicaState, words: str
) -> None:
    found = stand(parts, **{"run": True, "generation": 1, "begun": False, **replica})
    assert (found.state, found.message) == (state, words), what


def test_parts_meet_elsewhere_in_each_generation_and_never_where_another_replica_does() -> None:
    for number in range(200):
        ports = {meeting_port(f"rep_{number}", generation, ()) for generation in range(1, PORTS + 1)}
        assert ports == set(range(FIRST_PORT, FIRST_PORT + PORTS))
    first = meeting_port("rep_1", 1, ())
    assert meeting_port("rep_1", 1, {first}) != first


@pytest.mark.parametrize(("starts", "seconds"), [(0, 2), (1, 2), (3, 2), (4, 4), (5, 8), (20, 60)])
def test_the_pause_before_the_parts_begin_anew_grows(starts: int, seconds: float) -> None:
    assert pause(starts) == seconds


@pytest.mark.parametrize(
    ("given", "advertised", "found", "why"),
    [
        ("", "http://10.1.2.3:8880", "10.1.2.3", ""),
        ("10.9.0.3", "http://127.0.0.1:8880", "10.9.0.3", ""),
        ("", "http://[fd00::7]:8880", "fd00::7", ""),
        ("", "https://alpha.example:8880", "", "is not known"),
        ("", "", "", "is not known"),
        ("", "http://127.0.0.1:8880", "127.0.0.1", "no other node reaches it"),
        ("::1", "", "::1", "no other node reaches it"),
        ("0.0.0.0", "", "0.0.0.0", "no other node reaches it"),
        ("fe80::1", "", "fe80::1", "no other node reaches it"),
    ],
)
def test_a_node_is_reached_over_its_fabric_by_an_address_that_is_no_loopback(
    given: str, advertised: str, found: str, why: str
) -> None:
    assert fabric_address(given, advertised) == found
    told = unreachable("ib0", given, advertised, knows=True)
    assert why in told if why else told == ""
    assert unreachable("", given, advertised, knows=True) == ""


def test_an_agent_of_before_them_takes_no_part() -> None:
    assert "upgrade" in unreachable("ib0", "10.0.0.1", "", knows=False)


def test_a_removed_node_holds_no_part() -> None:
    assert replace(part(1), gone=True).over
