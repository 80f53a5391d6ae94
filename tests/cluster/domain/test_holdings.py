"""What lies on a node by what it reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.holdings import ASKED_FOR, Holding, Lie, Sought, asked_for, holding

NOW = 1000.0
OLD = NOW - ASKED_FOR


@pytest.mark.parametrize(
    ("found", "size", "changed_at", "has", "lacks"),
    [
        (Lie(size=5), 5, OLD, True, False),
        (Lie(size=5), 0, OLD, True, False),  # nobody knows how large it should be
        (Lie(size=0, folder=True), 5, OLD, True, False),
        (Lie(size=4), 5, OLD, False, True),
        (Lie(), 5, OLD, False, True),
        (Lie(), 0, OLD, False, True),
        (None, 5, OLD, False, False),  # not told of for so long: who knows
        (None, 5, NOW, False, True),  # it is about to say
        (None, 5, OLD + 0.1, False, True),
        (None, 5, NOW + 1.0, False, True),
        (None, 5, NOW + 3600.0, False, False),  # by a clock that goes wrong
    ],
)
def test_what_a_node_tells_of_a_path(found: Lie | None, size: int, changed_at: float, has: bool, lacks: bool) -> None:
    sought = Sought(path="/m", size=size, changed_at=changed_at)
    made = holding({} if found is None else {"/m": found}, [sought], NOW)
    assert (sought.name in made.has, sought.name in made.lacks) == (has, lacks)


def test_a_node_that_no_nudge_reaches_is_waited_for_until_its_heartbeat() -> None:
    sought = Sought(path="/m", size=5, changed_at=NOW - 70.0)
    assert asked_for(1.0) == ASKED_FOR
    assert [holding({}, [sought], NOW, asked_for(every)).lacks != frozenset() for every in (30.0, 70.0)] == [
        False,
        True,
    ]


def test_a_version_is_never_lacked_for_the_node_fetches_it() -> None:
    version = Sought(path="ver_00000000", fetched=True, changed_at=NOW)
    for told, has in (({}, False), ({"ver_00000000": Lie(size=5)}, True), ({"ver_00000000": Lie()}, False)):
        made = holding(told, [version], NOW)
        assert (version.name in made.has, version.name in made.lacks) == (has, False)


def test_two_models_with_other_weights_at_one_path_are_told_apart() -> None:
    small, large = Sought(path="/m", size=5), Sought(path="/m", size=9)
    assert holding({"/m": Lie(size=9)}, [small, large], NOW) == Holding(
        has=frozenset({large.name}), lacks=frozenset({small.name})
    )
    assert small.name == "/m of 5 bytes"


PATHS = st.sampled_from(["/a", "/b", "/c"])
SOUGHT = st.builds(Sought, path=PATHS, size=st.integers(0, 3), changed_at=st.sampled_from([OLD, NOW]))
LIES = st.builds(Lie, size=st.none() | st.integers(0, 3), folder=st.booleans())


@given(st.dictionaries(PATHS, LIES), st.lists(SOUGHT, unique_by=lambda item: item.name))
def test_nothing_is_both_there_and_missing_and_what_was_told_is_one_of_them(
    told: dict[str, Lie], sought: list[Sought]
) -> None:
    made = holding(told, sought, NOW)
    assert not made.has & made.lacks
    assert made.has | made.lacks <= {item.name for item in sought}
    assert {item.name for item in sought if item.path in told} <= made.has | made.lacks
    assert all(item.path in told for item in sought if item.name in made.has)
