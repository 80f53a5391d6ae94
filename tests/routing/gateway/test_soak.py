"""Memory and answers of one gateway process under streams: many at once, and many that come and go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.processes import fair
from tests.routing.gateway.soak import Plan, Soak, soak

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("soak")]

SHORT = Plan(streams=100, seconds=2, turnover=600, each=200, warm=300)
LONG = Plan(streams=1_000, seconds=60, turnover=20_000, each=1_000, warm=2_000)
PER_STREAM = 60 * 1024
PER_THOUSAND = 1024 * 1024


long = pytest.param(LONG, id="long", marks=pytest.mark.prove)
both = pytest.mark.parametrize("ran", [pytest.param(SHORT, id="short"), long], indirect=True)


@pytest.fixture(scope="module")
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Soak:
    """Run once for all tests of this file."""
    return soak(tmp_path_factory.mktemp("soak"), request.param)


@both
def test_f50_with_all_streams_running_none_fails_and_healthz_answers_at_once(
    ran: Soak, record_property: Callable[[str, object], None]
) -> None:
    plan, health = ran.plan, ran.health
    record_property("healthz_asked", health.asked)
    record_property("healthz_worst_ms", round(health.worst * 1000, 1))
    record_property("healthz_p99_ms", round(health.p99 * 1000, 1))
    assert ran.tally.errors == []
    assert ran.tally.answers == plan.streams
    assert ran.tally.events == plan.streams * plan.chunks  # and no usage, which nobody asked for
    assert ran.log == []
    assert health.wrong == []
    assert health.asked > plan.seconds  # it was asked all the while
    longest = (
        health.worst if plan is LONG else health.p90
    )  # beside other tests this machine itself pauses, for a second and more
    assert longest < fair(0.2), f"{health.asked} answers, p99 {health.p99:.3f} s, worst {health.worst:.3f} s"


@both
def test_f58_a_running_stream_costs_no_more_memory_than_is_documented(
    ran: Soak, record_property: Callable[[str, object], None]
) -> None:
    record_property("kib_per_stream", round(ran.per_stream / 1024, 1))
    assert ran.per_stream <= PER_STREAM, f"{ran.before} bytes before, {ran.most} with {ran.plan.streams} streams"


@pytest.mark.parametrize("ran", [long], indirect=True)
def test_f30_streams_that_ended_or_were_left_leave_no_memory_behind(
    ran: Soak, record_property: Callable[[str, object], None]
) -> None:
    record_property("kib_left_by_1000", round(ran.per_thousand / 1024, 1))
    assert ran.passing.errors == []
    assert ran.per_thousand < PER_THOUSAND, ran.rests


@both
def test_each_stream_has_one_record_whether_it_ended_or_was_left(ran: Soak) -> None:
    plan = ran.plan
    assert set(ran.ids.values()) == {1}
    passed = plan.warm + plan.turnover
    assert ran.left > passed / 4
    assert ran.records.total() == plan.streams + passed
    assert ran.records == {"ok": plan.streams + passed - ran.left, "client_gone": ran.left}
