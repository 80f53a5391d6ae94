"""Where a request may go, by modules and by how it came."""

from __future__ import annotations

import itertools

import pytest

from llmgw_site.lib.errors import HTTP_STATUS, Refused
from routing.domain.way import FORWARDED, HANDED, Way, already_forwarded, way

MODULES = ("edge", "router", "inference", "cloud")


@pytest.mark.parametrize(
    ("hop", "runs", "routers", "found"),
    [
        ("", "", True, "module_stopped"),
        ("", "router inference", True, "module_stopped"),
        ("", "edge router", True, Way.ROUTE),
        ("", "edge router inference", False, Way.ROUTE),
        ("", "edge", True, Way.HAND),
        ("", "edge inference cloud", True, Way.HAND),
        ("", "edge inference", False, Way.HERE),
        ("", "edge cloud", False, Way.HERE),
        ("", "edge", False, "no_chat_upstream"),
        (HANDED, "router", False, Way.ROUTE),
        (HANDED, "edge inference", True, "module_stopped"),
        (FORWARDED, "inference", True, Way.HERE),
        (FORWARDED, "router", True, Way.HERE),
        (FORWARDED, "", True, Way.HERE),
    ],
)
def test_the_way(hop: str, runs: str, routers: bool, found: Way | str) -> None:
    got = way(hop=hop, runs=lambda name: name in runs.split(), routers=lambda: routers)
    assert (got.code if isinstance(got, Refused) else got) == found
    if isinstance(got, Refused):
        assert HTTP_STATUS[got.kind] == 503
        assert got.retry_after


def test_no_request_is_passed_on_more_than_twice() -> None:
    """Client to router to whoever answers: whatever runs where, a third hop is impossible."""
    for runs in itertools.chain.from_iterable(itertools.combinations(MODULES, n) for n in range(5)):
        for routers in (False, True):
            ways = {h: way(hop=h, runs=runs.__contains__, routers=lambda r=routers: r) for h in ("", HANDED, FORWARDED)}
            assert ways[FORWARDED] is Way.HERE
            assert ways[HANDED] is not Way.HAND


def test_a_loop_is_508() -> None:
    assert HTTP_STATUS[already_forwarded("m" * 999).kind] == 508
    assert len(already_forwarded("m" * 999).message) < 500
