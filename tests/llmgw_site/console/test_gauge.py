"""llmgw_site.console.gauge: the load of a model against the thresholds of scaling, as it is drawn."""

from __future__ import annotations

import pytest

from cluster.domain.scale import Load
from cluster.domain.types import Standing, World
from llmgw_site.console.gauge import MOST_PIPS, gauge, pips
from tests.cluster.builders import a_model

T = 1000.0
WORLD = World(scale_up_after=60.0, scale_down_after=600.0)


def test_by_slots_one_more_comes_when_one_request_waits_for_each() -> None:
    model = a_model(base=1, most=4, standing=Standing(grown=1))
    drawn = gauge(WORLD, model, Load(ready=2, in_flight=2, slots=4, widest=2), T)
    assert drawn is not None
    assert (drawn.load, drawn.up, drawn.down) == pytest.approx((100 * 2 / 7.5, 100 * 6 / 7.5, 100 * 2 / 7.5))
    assert drawn.words == "2 under way at 4 slots"
    assert drawn.up_words == "one more from 1 request that waits for each of 2 replicas"
    assert drawn.down_words == "one less up to 2 under way, the slots of the others"


def test_by_what_was_measured_where_all_were() -> None:
    model = a_model(base=1, most=4, standing=Standing(grown=1, pressed_since=T - 15))
    drawn = gauge(WORLD, model, Load(ready=2, in_flight=50, waiting=34, slots=16, widest=8, capacity=20, best=10), T)
    assert drawn is not None
    assert (drawn.load, drawn.up, drawn.down, drawn.look) == (100.0, 40.0, 14.0, "warn")
    assert drawn.words == "50 under way at 16 slots, 34 wait"
    assert (drawn.progress, drawn.progress_words) == (
        25.0,
        "too much has been under way for 15 s; one more after 1 min 0 s",
    )


def test_quiet_counts_down_and_a_full_model_says_that_it_is() -> None:
    quiet = a_model(base=1, most=4, standing=Standing(grown=1, quiet_since=T - 300))
    drawn = gauge(WORLD, quiet, Load(ready=2, slots=4, widest=2), T)
    assert drawn is not None
    assert (drawn.progress, drawn.progress_words) == (
        50.0,
        "it has been quiet for 5 min 0 s; one less after 10 min 0 s",
    )
    full = a_model(base=1, most=2, standing=Standing(grown=1))
    drawn = gauge(WORLD, full, Load(ready=2, in_flight=9, waiting=5, slots=4, widest=2), T)
    assert drawn is not None
    assert (drawn.progress, drawn.progress_words) == (
        None,
        "too much is under way, and it has the 2 replicas of its maximum",
    )


@pytest.mark.parametrize(
    ("model", "load"),
    [(a_model(base=2, most=2), Load(ready=2)), (a_model(base=1, most=4), Load()), (a_model(base=0, most=1), Load())],
)
def test_what_does_not_scale_now_is_not_drawn(model: object, load: Load) -> None:
    assert gauge(WORLD, model, load, T) is None  # type: ignore[arg-type]


def test_a_mark_stands_for_each_replica_up_to_the_maximum() -> None:
    assert pips(a_model(base=2, most=4), 1, 2) == ("ready", "missing", "spare", "spare")
    assert pips(a_model(base=1, most=1), 2, 1) == ("ready", "ready")  # one is about to stop
    assert pips(a_model(base=1, most=MOST_PIPS + 1), 1, 1) == ()
