"""Who fetches which weights, and from whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.domain.fetching import (
    PULLS,
    REGISTRY,
    SHUNNED,
    SOURCES,
    STILL,
    Fetch,
    FetchReport,
    Sharing,
    Site,
    remember,
)

V = "ver_00000000"
NOW = 10_000.0


def site(number: int, *, has: bool = False, data: bool = False, **fetch: Any) -> Site:
    fetches = {V: Fetch(version=V, size=100, **fetch)} if fetch else {}
    return Site(
        id=f"n{number}", name=f"node-{number}", address=f"https://n{number}:7443", data=data, has={V} if has else (),
        fetches=fetches,
    )  # fmt: skip


WANTS: dict[str, Any] = {"there": 0}


def orders(*sites: Site, now: float = NOW) -> dict[str, Any]:
    """What each node that lacks it is told, each asked once."""
    sharing = Sharing(V, sites, now)
    return {item.id: sharing.order(item) for item in sites if V not in item.has}


def firsts(found: dict[str, Any]) -> dict[str, str]:
    return {name: order.sources[0].node_id if order.sources else "" for name, order in found.items()}


def test_nobody_has_it_and_one_data_node_fetches_it_from_where_it_comes_from() -> None:
    found = orders(site(1, data=True), site(2, data=True), site(3, **WANTS))
    assert sum(order.registry for order in found.values()) == 1
    waits = [order for order in found.values() if not order.registry]
    assert [order.code for order in waits] == ["fetch_waits"] * 2
    assert all(order.message.endswith("fetches it first") for order in waits)


def test_without_a_data_node_nobody_fetches_it_and_the_order_says_so() -> None:
    order = orders(site(1, **WANTS))["n1"]
    assert (order.registry, order.sources, order.code) == (False, (), "no_mirror")
    assert "role data" in order.message


def test_a_data_node_that_nobody_knew_to_be_there_fetches_it() -> None:
    sharing = Sharing(V, [], NOW)
    first, second = site(1, data=True), site(2, data=True)
    assert sharing.order(first).registry
    assert not sharing.order(second).registry


def test_a_data_node_that_moves_stays_the_one_that_fetches() -> None:
    moving = {"rate": 5, "source": REGISTRY, "moved_at": NOW}
    for mover in (1, 2, 3):
        found = orders(
            *(site(n, data=True, there=10 if n == mover else 90, **(moving if n == mover else {})) for n in (1, 2, 3))
        )
        assert [name for name, order in found.items() if order.registry] == [f"n{mover}"]


def test_of_data_nodes_that_do_not_move_the_one_that_has_most_fetches() -> None:
    found = orders(site(1, data=True, there=10), site(2, data=True, there=20), site(3, data=True))
    assert [name for name, order in found.items() if order.registry] == ["n2"]


def test_a_data_node_that_fails_leaves_it_to_another_and_tries_where_there_is_none() -> None:
    failing = site(1, data=True, there=90, code="disk_full", message="no room", failed_at=NOW - 1000)
    assert [name for name, order in orders(failing, site(2, data=True)).items() if order.registry] == ["n2"]
    found = orders(failing, site(3, **WANTS))
    assert found["n1"].registry
    assert found["n3"].message == "node node-1 does not get it: no room"


@pytest.mark.parametrize(("ago", "registry"), [(1.0, "n2"), (SHUNNED + 1, "n1")])
def test_who_failed_is_left_alone_for_a_while(ago: float, registry: str) -> None:
    found = orders(site(1, data=True, there=90, failed_at=NOW - ago), site(2, data=True))
    assert [name for name, order in found.items() if order.registry] == [registry]


def test_who_has_it_gives_it_to_a_few_at_once_and_the_others_wait() -> None:
    found = orders(site(0, has=True, data=True), *(site(n, **WANTS) for n in range(1, 20)))
    assert sum(bool(order.sources) for order in found.values()) == PULLS
    waits = next(order for order in found.values() if not order.sources)
    assert waits.code == "fetch_waits"
    assert "each of the 1 nodes that have it gives it to 4 others" in waits.message


def test_a_data_node_gives_it_only_where_the_others_have_no_hand_free() -> None:
    mirror, other = site(0, has=True, data=True), site(1, has=True)
    found = firsts(orders(mirror, other, *(site(n, **WANTS) for n in range(2, 2 + PULLS + 1))))
    assert sorted(found.values()) == ["n0"] + ["n1"] * PULLS
    order = orders(mirror, other, site(2, **WANTS))["n2"]
    assert [source.node_id for source in order.sources] == ["n1", "n0"]


def test_an_order_names_a_few_holders_to_turn_to() -> None:
    found = orders(*(site(n, has=True) for n in range(9)), site(10, **WANTS))["n10"]
    assert len({source.node_id for source in found.sources}) == SOURCES
    assert found.sources[0].address == f"https://{found.sources[0].node_id}:7443"


def test_who_moves_keeps_its_source_when_others_have_it_too() -> None:
    movers = [site(n, there=5, rate=9, source="n0", moved_at=NOW) for n in range(1, 1 + PULLS)]
    holders = [site(0, has=True, data=True), *(site(n, has=True) for n in range(50, 60))]
    assert set(firsts(orders(*holders, *movers, *(site(n, **WANTS) for n in range(20, 30)))).values()) >= {"n0"}
    assert all(firsts(orders(*holders, *movers))[mover.id] == "n0" for mover in movers)


def test_a_holder_that_failed_a_node_is_not_named_to_it_where_there_is_another() -> None:
    failed = {"n0": NOW - 1}
    both = orders(site(0, has=True), site(1, has=True, data=True), site(2, there=0, failed=failed))["n2"]
    assert [source.node_id for source in both.sources] == ["n1"]
    alone = orders(site(0, has=True), site(2, there=0, failed=failed))["n2"]
    assert [source.node_id for source in alone.sources] == ["n0"]
    later = orders(site(0, has=True), site(1, has=True, data=True), site(2, there=0, failed={"n0": NOW - SHUNNED}))[
        "n2"
    ]
    assert [source.node_id for source in later.sources] == ["n0", "n1"]


def test_others_turn_last_to_a_holder_that_failed_somebody() -> None:
    found = orders(
        site(0, has=True), site(1, has=True, data=True), site(2, there=0, failed={"n0": NOW}), site(3, **WANTS)
    )
    assert [source.node_id for source in found["n3"].sources] == ["n1", "n0"]


def test_a_data_node_that_gets_it_from_nobody_who_has_it_goes_where_it_comes_from() -> None:
    broken = {"there": 0, "failed": {"n0": NOW}}
    found = orders(site(0, has=True), site(1, data=True, **broken), site(2, data=True, **broken), site(3, **broken))
    assert sum(order.registry for order in found.values()) == 1
    assert not found["n3"].registry


def test_one_that_fails_waits_for_the_others() -> None:
    failing = [site(n, there=1, code="disk_full", failed_at=NOW) for n in range(1, 9)]
    found = orders(site(0, has=True), *failing, site(10, **WANTS))
    assert found["n10"].sources


def test_a_holder_that_nobody_can_reach_holds_nothing() -> None:
    hidden = replace(site(0, has=True), address="")
    assert orders(hidden, site(1, data=True))["n1"].registry


# --- what is remembered


def told(**fields: Any) -> FetchReport:
    return FetchReport(**{"version": V, "size": 100, **fields})


def after(*steps: tuple[float, FetchReport]) -> Fetch:
    known: tuple[Fetch, ...] = ()
    for at, report in steps:
        known = remember(known, [report], at)
    return known[0]


def test_what_waits_is_remembered_as_it_was_so_that_its_row_is_left_alone() -> None:
    waits = told(code="fetch_waits", message="its turn comes")
    assert after((1.0, waits)) == after((1.0, waits), (2.0, waits), (900.0, waits))
    assert not after((1.0, waits)).failing(1.0)


def test_a_fetch_that_gets_no_byte_for_long_has_failed_and_one_that_is_being_checked_has_not() -> None:
    still = told(there=5, rate=0.0)
    assert not after((1.0, still), (STILL, still)).failing(STILL)
    stopped = after((1.0, still), (STILL + 1, still))
    assert stopped.failing(STILL + 1)
    assert not stopped.moving
    checked = told(there=100, rate=0.0)
    assert not after((1.0, checked), (STILL + 1, checked)).failing(STILL + 1)
    moves = after((1.0, still), (STILL + 1, still), (STILL + 2, told(there=6, rate=1.0)))
    assert not moves.failing(STILL + 2)


def test_a_failure_counts_from_when_it_began_and_is_over_when_bytes_come() -> None:
    fails = told(there=5, code="disk_full", message="no room")
    found = after((1.0, fails), (500.0, fails))
    assert (found.failed_at, found.failing(500.0)) == (1.0, True)
    assert after((1.0, fails), (10.0, told(there=5))).failing(10.0)
    assert not after((1.0, fails), (10.0, told(there=5)), (1.0 + SHUNNED, told(there=5))).failed_at
    assert not after((1.0, fails), (10.0, told(there=6))).failed_at


def test_a_holder_that_failed_is_remembered_for_a_while() -> None:
    found = after((1.0, told(failed=("n0",))), (2.0, told()))
    assert found.shuns("n0", 2.0)
    assert not found.shuns("n1", 2.0)
    assert after((1.0, told(failed=("n0",))), (SHUNNED + 2, told())).failed == {}


def test_what_is_not_reported_any_more_is_forgotten() -> None:
    assert remember([Fetch(version=V)], [], NOW) == ()
