"""When a fetch is tried again, what a node removes, how fast it says it is."""

from __future__ import annotations

import pytest

from cluster.wire import FetchOrder, FetchReport, FetchSource
from workers.agent.fetch_plan import LATER, LONGEST_PAUSE, Here, Rate, can_begin, pause, same_way, to_remove, words

HERE = (Here("kept", True), Here("ordered", False), Here("used", True), Here("old", True), Here("half", False))
NODE = (FetchSource(node_id="n", address="http://n"),)


@pytest.mark.parametrize(
    ("failures", "retry_after", "seconds"),
    [
        (1, 0.5, 2.0),
        (2, 0.5, 4.0),
        (3, 20.0, 20.0),
        (9, 1.0, LONGEST_PAUSE),
        (1, 600.0, 600.0),  # the registry said when
        (1, None, 10.0),
        (99, None, LATER),
    ],
)
def test_pauses_grow_and_are_no_shorter_than_asked(failures: int, retry_after: float | None, seconds: float) -> None:
    assert pause(failures, retry_after) == seconds


def test_nothing_is_removed_before_the_controllers_have_answered() -> None:
    assert to_remove(HERE, kept=None, ordered=(), used=(), data=True) == ()


@pytest.mark.parametrize(("data", "gone"), [(True, ("old", "half")), (False, ("half",))])
def test_a_data_node_has_what_is_named_and_others_drop_halves(data: bool, gone: tuple[str, ...]) -> None:
    assert to_remove(HERE, kept=("kept",), ordered=("ordered",), used=("used",), data=data) == gone


def test_other_nodes_are_taken_over_at_once_and_another_kind_of_source_is_not() -> None:
    waits, registry = FetchOrder(version="v"), FetchOrder(version="v", registry=True)
    nodes, more = FetchOrder(version="v", sources=NODE), FetchOrder(version="v", sources=NODE * 2)
    assert same_way(nodes, more)
    assert not same_way(registry, nodes)
    assert not same_way(nodes, waits)
    assert [can_begin(item) for item in (waits, registry, nodes)] == [False, True, True]


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()
    assert rate.of(0.0) == 0.0
    for second in range(20):
        rate.note(float(second), second * 100)
    assert rate.of(19.0) == pytest.approx(100.0)
    assert rate.of(119.0) < 6.0  # it stands still
    rate.note(20.0, 50)  # a file was begun anew
    assert rate.of(20.0) == 0.0
    rate.note(21.0, 150)
    assert rate.of(21.0) == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (FetchReport(version="v"), "what the weights consist of"),
        (FetchReport(version="v", size=1 << 30, there=1 << 29), "512.0 MiB of 1.0 GiB of the weights and waits"),
        (FetchReport(version="v", size=1 << 30, there=1 << 29, rate=float(1 << 20)), "gets 1.0 MiB a second"),
        (FetchReport(version="v", size=1 << 30, there=1 << 29, shared=1 << 28), "(256.0 MiB were here already)"),
        (FetchReport(version="v", size=1 << 30, message="the disk is full"), "the disk is full"),
    ],
)
def test_how_far_it_is_is_said_in_words(report: FetchReport, said: str) -> None:
    assert said in words(report)
