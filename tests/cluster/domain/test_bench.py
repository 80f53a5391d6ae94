"""Which load is tried next, and what the tries say."""

from __future__ import annotations

import math

import pytest

from cluster.domain.bench import Level, found, level, nearly_all, next_load


def tried(limit: int, *, most: int = 256) -> list[Level]:
    """All tries of a replica that serves `limit` requests at once well."""
    levels: list[Level] = []
    while (at := next_load(levels, objective=2.0, most=most)) is not None:
        levels.append(Level(at_once=at, tps=10.0 * min(at, limit), first_s=0.1 if at <= limit else 9.0, requests=at))
        assert len(levels) < 20
    return levels


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 13, 31, 100, 255, 256])
def test_the_limit_is_found_within_an_eighth(limit: int) -> None:
    got = found(tried(limit), objective=2.0)
    assert limit * 8 / 9 - 1 <= got.at_once <= limit
    assert got.tps == 10.0 * got.at_once


def test_no_more_than_the_most_are_tried() -> None:
    assert [item.at_once for item in tried(1000, most=12)] == [1, 2, 4, 8, 12]


def test_one_that_is_too_slow_for_a_single_request_is_tried_once() -> None:
    assert [item.at_once for item in tried(0)] == [1]
    assert (found(tried(0), objective=2.0).at_once, found(tried(0), objective=2.0).tps) == (0, 0.0)


def test_failures_and_no_request_at_all_hold_nothing() -> None:
    assert not Level(at_once=1, tps=5, first_s=0.1, requests=3, failed=1).holds(2.0)
    assert not Level(at_once=1, tps=0, first_s=0.0, requests=0).holds(2.0)


def test_a_level_survives_json() -> None:
    one = Level(at_once=4, tps=5.5, first_s=0.1, requests=3)
    assert level(one.as_dict()) == one


def test_nearly_all_is_the_95th_of_a_hundred() -> None:
    assert nearly_all([float(n) for n in range(1, 101)]) == 95.0
    assert nearly_all([3.0]) == 3.0
    assert nearly_all([]) == math.inf
