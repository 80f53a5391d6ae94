"""cluster.domain.health: silence counts only while somebody listens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.health import (
    GAP,
    OFFLINE_AFTER,
    REMEMBERED,
    STALE_AFTER,
    Listening,
    Outcomes,
    gap_of,
    mark,
    node_state,
    set_back,
)
from cluster.domain.states import NodeState

T = 1_000_000.0
ALWAYS = Listening(T - 10_000, T)


@pytest.mark.parametrize(
    ("silence", "state"),
    [
        (0, NodeState.ONLINE),
        (89.9, NodeState.ONLINE),
        (90, NodeState.STALE),
        (299.9, NodeState.STALE),
        (300, NodeState.OFFLINE),
    ],
)
def test_a_node_is_as_old_as_its_last_heartbeat(silence: float, state: NodeState) -> None:
    assert node_state(T - silence, ALWAYS, T) is state


def test_f05_a_controller_that_stood_still_declares_no_node_dead() -> None:
    """Stalled for 600 s, then it goes on: the first looks find every node as it was."""
    listening = Listening(T - 10_000, T - 600)
    assert node_state(T - 601, listening, T) is NodeState.ONLINE
    listening = mark(listening, T)
    assert listening == Listening(T, T)
    assert node_state(T - 601, listening, T) is NodeState.ONLINE


def test_f05_a_node_that_stays_silent_after_the_stall_is_found_out_in_its_time() -> None:
    listening, states = Listening(T, T), {}
    for second in range(400):
        listening = mark(listening, T + second)
        states[second] = node_state(T - 601, listening, T + second)
    assert (states[89], states[90], states[300]) == (NodeState.ONLINE, NodeState.STALE, NodeState.OFFLINE)


def test_while_nobody_listens_a_silence_does_not_grow() -> None:
    listening = Listening(T, T + 100)
    assert node_state(T, listening, T + 5000) is NodeState.STALE


def test_a_node_that_never_reported_is_offline() -> None:
    assert node_state(None, ALWAYS, T) is NodeState.OFFLINE
    assert node_state(None, Listening(), T) is NodeState.OFFLINE


def test_a_cluster_in_which_nobody_listened_yet_holds_nothing_against_a_node() -> None:
    assert node_state(T - 9999, Listening(), T) is NodeState.ONLINE


def test_a_clock_that_goes_back_starts_a_new_span() -> None:
    assert mark(Listening(T - 50, T), T - 1) == Listening(T - 1, T - 1)


def test_where_nodes_are_stale_soon_a_shorter_pause_of_the_controllers_is_no_silence_of_the_nodes() -> None:
    assert gap_of(STALE_AFTER) == GAP
    stalled = mark(Listening(T - 100, T), T + 10, gap=gap_of(4.0))
    assert stalled == Listening(T + 10, T + 10)
    assert node_state(T, stalled, T + 10, stale_after=4.0, offline_after=8.0) == NodeState.ONLINE
    assert node_state(T, Listening(T - 100, T), T + 10, stale_after=4.0, offline_after=8.0) == NodeState.ONLINE


@given(st.lists(st.floats(0.1, 60), max_size=40))
def test_a_span_never_contains_a_gap(steps: list[float]) -> None:
    now, listening, began = T, Listening(), T
    for step in steps:
        now += step
        if step > GAP:
            began = now
        listening = mark(listening, now)
        assert listening.at == now
        assert listening.since is not None
        assert listening.since >= began if began != T else True


@given(st.floats(0, 1000), st.floats(0, 1000))
def test_a_heartbeat_makes_a_node_online_whatever_was_before(since: float, gap: float) -> None:
    listening = mark(Listening(T - since - gap, T - gap), T)
    assert node_state(T, listening, T) is NodeState.ONLINE
    assert STALE_AFTER < OFFLINE_AFTER


def test_after_the_database_s_clock_was_set_back_a_dead_node_is_found_all_the_same() -> None:
    back = T - 3600
    before = Listening(T - 9999, T)
    assert node_state(T - 9000, before, back) is NodeState.ONLINE  # nobody has listened since
    assert set_back(before, back)
    assert not set_back(before, T)
    seen, listening = back, mark(before, back)  # what was seen in the future is cut to now
    assert node_state(seen, listening, back) is NodeState.ONLINE
    for _ in range(40):
        back += 10
        listening = mark(listening, back)
    assert node_state(seen, listening, back) is NodeState.OFFLINE


@given(st.floats(0, 10_000), st.floats(0, 10_000), st.sampled_from([(4.0, 8.0), (30.0, 60.0), (90.0, 300.0)]))
def test_f05_who_stands_still_between_reading_the_clock_and_the_node_sees_no_older_node(
    silence: float, stood: float, times: tuple[float, float]
) -> None:
    """It was heard of while the reader stood; what he says is then not worse than what he would have said before."""
    stale, offline = times
    before = node_state(T - silence, ALWAYS, T, stale_after=stale, offline_after=offline)
    late = node_state(T - silence + stood, ALWAYS, T, stale_after=stale, offline_after=offline)
    order = list(NodeState)
    assert order.index(late) <= order.index(before)
    if stood >= silence:
        assert late is NodeState.ONLINE


# --- how heartbeats ended


def test_f06_a_process_hears_nothing_while_most_heartbeats_fail_and_hears_again_by_itself() -> None:
    outcomes = Outcomes()
    assert outcomes.working(T)
    for number in range(10):
        outcomes.note(True, T + number)
    assert outcomes.working(T + 10)
    for number in range(11):
        outcomes.note(False, T + 10 + number)
    assert not outcomes.working(T + 21)
    assert outcomes.working(T + 21 + REMEMBERED)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 20)), max_size=60), st.floats(0, 60))
def test_at_least_half_of_the_last_half_minute_must_have_worked(ends: list[tuple[bool, float]], later: float) -> None:
    outcomes, now, noted = Outcomes(), T, []
    for worked, pause in ends:
        now += pause
        outcomes.note(worked, now)
        noted.append((now, worked))
    now += later
    recent = [worked for at, worked in noted if now - at <= REMEMBERED]
    assert outcomes.working(now) is (2 * sum(recent) >= len(recent))
