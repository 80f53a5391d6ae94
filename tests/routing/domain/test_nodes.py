"""Which node answers: exclusion, preference, fairness, and that nothing else decides."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_site.lib.errors import Kind, Refused
from routing.domain import affinity
from routing.domain.nodes import Candidate, Rule, Strategy, Works, choose_node, read_rule
from tests.examples import few

NAMES = "abcdefgh"
TRUE_STRATEGIES = [item for item in Strategy if item is not Strategy.AFFINITY]


def node(name: str, state: str = "works", **other: Any) -> Candidate:
    return Candidate(node_id=name, state=Works(state), **other)


def pick(*nodes: Candidate, strategy: str = "load_based", option: bool = False, **other: Any) -> str | None:
    found = choose_node(nodes, Rule(strategy=Strategy(strategy), affinity=option), **other)
    return None if found is None else found.node_id


candidates = st.lists(
    st.builds(
        Candidate,
        node_id=st.sampled_from(NAMES),
        state=st.sampled_from(Works),
        skipped=st.booleans(),
        in_flight=st.integers(0, 6),
        latency=st.none() | st.floats(0.001, 30),
        slots=st.integers(1, 4),
    ),
    unique_by=lambda item: item.node_id,
    max_size=8,
)
rules = st.builds(Rule, strategy=st.sampled_from(Strategy), affinity=st.booleans())
dice = st.floats(0, 1, exclude_max=True)
tried = st.sets(st.sampled_from(NAMES), max_size=3)
sessions = st.just("") | st.text(min_size=1, max_size=8)
lasts = st.just("") | st.sampled_from(NAMES)


@pytest.mark.parametrize(
    ("nodes", "other", "wanted"),
    [
        ([], {}, None),
        ([node("a", "cannot")], {}, None),
        ([node("a")], {"without": {"a"}}, None),
        ([node("a", "cannot"), node("b", "unknown", in_flight=9)], {}, "b"),
        ([node("a", "unknown"), node("b", in_flight=9)], {}, "b"),  # known to work, though busier
        ([node("a", skipped=True), node("b", "unknown")], {}, "b"),  # answers, though not known to work
        ([node("a", skipped=True), node("b", "cannot")], {}, "a"),  # all that are left are marked: tried anyway
        ([node("a", skipped=True), node("b", skipped=True, in_flight=1)], {}, "a"),
        ([node("a", skipped=True), node("b")], {"without": {"b"}}, "a"),
        ([node("a", in_flight=2), node("b", in_flight=1, latency=9.0)], {}, "b"),
        ([node("a", latency=2.0), node("b", latency=1.0)], {}, "b"),
        ([node("a", latency=0.1), node("b")], {}, "b"),  # never measured: tried
        ([node("a", latency=0.1, in_flight=1), node("b", in_flight=1)], {}, "a"),  # being measured
        ([node("a", in_flight=9, latency=1.0), node("b", latency=2.0)], {"strategy": "least_latency"}, "a"),
        ([node("a", in_flight=1, latency=1.0), node("b", latency=2.0)], {"strategy": "least_connections"}, "b"),
        ([node("a"), node("b"), node("c")], {"strategy": "round_robin", "last": "a"}, "b"),
        ([node("a"), node("b"), node("c")], {"strategy": "round_robin", "last": "c"}, "a"),
        ([node("a"), node("c")], {"strategy": "round_robin", "last": "b"}, "c"),  # b went away
        ([node("a"), node("b")], {"strategy": "random", "dice": 0.6}, "b"),
    ],
)
def test_cases_in_their_order(nodes: list[Candidate], other: dict[str, Any], wanted: str | None) -> None:
    assert pick(*nodes, **other) == wanted


@given(candidates, rules, lasts, sessions, dice, tried)
def test_a_node_that_cannot_or_was_tried_is_never_chosen_and_some_other_is_if_there_is_one(
    nodes: list[Candidate], rule: Rule, last: str, session: str, dice: float, tried: set[str]
) -> None:
    found = choose_node(nodes, rule, last=last, session=session, dice=dice, without=tried)
    can = [item for item in nodes if item.state is not Works.CANNOT and item.node_id not in tried]
    assert (found is None) == (not can)
    assert found is None or found in can


@given(candidates, rules, lasts, sessions, dice)
def test_a_skipped_node_is_chosen_only_if_all_are_and_a_working_one_is_preferred(
    nodes: list[Candidate], rule: Rule, last: str, session: str, dice: float
) -> None:
    found = choose_node(nodes, rule, last=last, session=session, dice=dice)
    if found is None:
        return
    can = [item for item in nodes if item.state is not Works.CANNOT]
    assert not found.skipped or all(item.skipped for item in can)
    same = [item for item in can if item.skipped == found.skipped]
    assert found.state is Works.WORKS or all(item.state is not Works.WORKS for item in same)


@few()
@given(candidates, rules, lasts, sessions, dice, tried, st.randoms())
def test_the_choice_depends_on_nothing_but_what_is_passed(
    nodes: list[Candidate], rule: Rule, last: str, session: str, dice: float, tried: set[str], shuffle: Any
) -> None:
    arguments: dict[str, Any] = {"last": last, "session": session, "dice": dice, "without": tried}
    before = list(nodes)
    first = choose_node(nodes, rule, **arguments)
    assert nodes == before
    assert choose_node(nodes, rule, **arguments) == first
    if rule.strategy is Strategy.ROUND_ROBIN or (rule.strategy is Strategy.AFFINITY and session):
        shuffle.shuffle(nodes)  # and where no dice decide, not on the order of the view either
        assert choose_node(nodes, rule, **arguments) == first


@given(st.integers(1, 8), st.integers(1, 60), st.sampled_from(TRUE_STRATEGIES), st.integers(0, 2**32))
def test_requests_are_spread_evenly_over_equal_nodes(count: int, requests: int, strategy: Strategy, seed: int) -> None:
    """None of these end: round_robin and by load each node gets its share, to within one."""
    busy = Counter[str]()
    last = ""
    for number in range(requests):
        nodes = [node(name, in_flight=busy[name], latency=1.0) for name in NAMES[:count]]
        last = pick(*nodes, strategy=strategy, last=last, dice=(seed * (number + 1) * 0.6180339887) % 1) or ""
        busy[last] += 1
    if strategy in (Strategy.LOAD_BASED, Strategy.LEAST_CONNECTIONS, Strategy.ROUND_ROBIN, Strategy.LEAST_LATENCY):
        shares = [busy[name] for name in NAMES[:count]]
        assert max(shares) - min(shares) <= 1


def test_random_gives_each_node_its_share() -> None:
    nodes = [node(name) for name in NAMES]
    shares = Counter(pick(*nodes, strategy="random", dice=number / 800) for number in range(800))
    assert set(shares.values()) == {100}


@given(st.integers(2, 8), st.sampled_from(["round_robin"]), st.integers(0, 7), st.integers(1, 50))
def test_round_robin_passes_over_a_node_that_goes_and_takes_it_up_again(
    count: int, strategy: str, gone: int, requests: int
) -> None:
    last, shares = "", Counter[str]()
    for number in range(2 * requests * count):
        away = number < requests * count
        nodes = [node(name, skipped=away and n == gone) for n, name in enumerate(NAMES[:count])]
        last = pick(*nodes, strategy=strategy, last=last) or ""
        shares[last] += not away
    assert max(shares.values()) - min(shares.values()) <= 1


# --- affinity


def test_a_conversation_stays_until_its_node_is_overloaded_then_goes_on_by_the_strategy() -> None:
    free = [node(name, slots=2) for name in NAMES[:4]]
    home = pick(*free, strategy="affinity", session="s")
    assert pick(*free, option=True, session="s", dice=0.99) == home
    busy = [node(name, slots=2, in_flight=3 if name == home else 0) for name in NAMES[:4]]
    spill = pick(*busy, strategy="affinity", session="s")
    assert spill not in (home, None)
    assert pick(*busy, strategy="affinity", session="s", dice=0.5) == spill  # in its order, no dice
    assert {pick(*busy, option=True, session="s", dice=d / 10) for d in range(10)} == set(NAMES[:4]) - {home}


def test_without_a_session_affinity_is_by_load() -> None:
    nodes = [node("a", in_flight=1, latency=0.1), node("b", latency=9.0)]
    assert pick(*nodes, strategy="affinity") == "b"
    assert pick(*nodes, strategy="least_latency", option=True) == "a"


@given(candidates, st.text(min_size=1, max_size=8))
def test_f53_when_the_node_of_a_session_disappears_it_is_pinned_anew(nodes: list[Candidate], session: str) -> None:
    idle = [node(item.node_id) for item in nodes]
    home = pick(*idle, strategy="affinity", session=session)
    if home is None:
        return
    rest = [item for item in idle if item.node_id != home]
    anew = pick(*rest, strategy="affinity", session=session)
    assert (anew is None) == (not rest)
    assert pick(*rest, strategy="affinity", session=session, dice=0.9) == anew


@given(candidates, st.text(min_size=1, max_size=8), dice)
def test_no_node_is_loaded_over_its_bound_by_a_session(nodes: list[Candidate], session: str, dice: float) -> None:
    found = choose_node(nodes, Rule(strategy=Strategy.AFFINITY), session=session, dice=dice)
    pool = [item for item in nodes if item.state is not Works.CANNOT]
    pool = [item for item in pool if not item.skipped] or pool
    pool = [item for item in pool if item.state is Works.WORKS] or pool
    if found is not None and len(pool) > 1:
        assert not affinity.overloaded(found, pool)


# --- what administrators write


def test_a_rule_is_read_as_it_is_shown() -> None:
    assert read_rule({"strategy": "random"}, Rule()) == Rule(strategy=Strategy.RANDOM)
    assert read_rule({"strategy": "random", "affinity": True}, Rule()).affinity
    assert read_rule({"strategy": "random"}, Rule(affinity=True)).affinity  # stays as it was


@pytest.mark.parametrize(
    ("value", "code", "param"),
    [
        ({"strategy": "fastest"}, "invalid_strategy", "strategy"),
        ({"strategy": None}, "invalid_strategy", "strategy"),
        ({"strategy": ["random"]}, "invalid_strategy", "strategy"),
        ({}, "invalid_strategy", "strategy"),
        ({"strategy": "random", "affinity": 1}, "invalid_type", "affinity"),
        ({"strategy": "random", "sticky": True}, "unknown_field", "sticky"),
        (["random"], "not_an_object", None),
    ],
)
def test_what_is_no_rule_is_refused(value: Any, code: str, param: str | None) -> None:
    with pytest.raises(Refused) as caught:
        read_rule(value, Rule())
    assert (caught.value.kind, caught.value.code, caught.value.param) == (Kind.INVALID, code, param)
