"""workers.nudges: whom a change wakes, and how often a large cluster is woken as a whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from catalog.services import keys, tokens
from cluster.services import members
from cluster.wire import NODES_GROUP, node_group
from tests.rows import ACTOR, a_key, a_user
from workers import dispatch, nudges


class Layer:
    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        self.sent.append((group, message["nudge"]))

    @property
    def reasons(self) -> list[str]:
        return [nudge["reason"] for _, nudge in self.sent]


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> Layer:
    made = Layer()
    monkeypatch.setattr(nudges, "get_channel_layer", lambda: made)
    monkeypatch.setattr(nudges, "_to_all", nudges._ToAll())
    monkeypatch.setattr(nudges, "_not_before", 0.0)
    return made


class _Timer:
    """Stands for threading.Timer: notes what is to be done after how many seconds."""

    daemon = False

    def __init__(self, started: list[tuple[float, Any]], after: float, due: Any) -> None:
        self._started, self._what = started, (after, due)

    def start(self) -> None:
        self._started.append(self._what)


def of_size(monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
    monkeypatch.setattr(members, "size", lambda: nodes)


def test_a_few_nodes_are_nudged_one_by_one_and_many_as_one(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    of_size(monkeypatch, 3)
    nudges.send("wanted", nodes=["node_a", "node_b"])
    assert [group for group, _ in layer.sent] == [node_group("node_a"), node_group("node_b")]
    layer.sent.clear()
    nudges.send("wanted", nodes=[f"node_{number}" for number in range(1000)])
    assert [group for group, _ in layer.sent] == [NODES_GROUP]


def test_in_a_small_cluster_each_change_goes_at_once(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    of_size(monkeypatch, nudges.FEW)
    for reason in ("map", "snapshot", "setup"):
        nudges.send(reason)
    assert layer.reasons == ["map", "snapshot", "setup"]


def test_a_large_cluster_is_told_many_changes_together_and_the_last_one_is_not_lost(
    layer: Layer, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_size(monkeypatch, 1000)
    clock = 100.0
    monkeypatch.setattr(nudges, "time", SimpleNamespace(monotonic=lambda: clock))
    put_off: list[tuple[float, Any]] = []
    timer = lambda after, call, args: _Timer(put_off, after, lambda: call(*args))  # noqa: E731
    monkeypatch.setattr(nudges, "threading", SimpleNamespace(Timer=timer))
    for _ in range(50):
        nudges.send("snapshot")
    assert layer.reasons == ["snapshot"]
    nudges.send("map", removed=["node_gone"])  # a removal waits for nothing
    assert layer.sent[1][1]["removed"] == ["node_gone"]
    ((after, due),) = put_off
    assert after == 5.0
    clock += after
    due()
    assert layer.reasons == ["snapshot", "map", "snapshot"]
    nudges.send("map")
    assert len(put_off) == 2


def test_a_layer_that_fails_costs_one_attempt_now_and_then(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    of_size(monkeypatch, 3)
    tries = []

    async def broken(group: str, message: dict[str, Any]) -> None:
        tries.append(group)
        raise OSError("no Valkey")

    monkeypatch.setattr(layer, "group_send", broken)
    for _ in range(10):
        nudges.send("map")
    assert len(tries) == 1
    nudges.send("map", removed=["node_gone"])
    assert len(tries) == 2


@pytest.mark.parametrize(("nodes", "pause"), [(3, dispatch.NEWS_EVERY), (1000, 5.0)])
def test_what_concerns_all_nodes_is_put_together_as_often_as_they_are_told(
    monkeypatch: pytest.MonkeyPatch, nodes: int, pause: float
) -> None:
    of_size(monkeypatch, nodes)
    clock = 100.0
    monkeypatch.setattr(dispatch, "time", SimpleNamespace(monotonic=lambda: clock))
    delays: list[float] = []
    monkeypatch.setattr(dispatch, "reconcile_now", lambda delay: delays.append(delay))
    throttle = dispatch._Throttle(dispatch._between_news)
    assert throttle.now()
    assert [throttle.now() for _ in range(3)] == [False] * 3
    assert delays == [pause]
    clock += pause
    assert throttle.now()


def test_a_revocation_waits_for_nothing_and_a_long_one_goes_in_parts(
    layer: Layer, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_size(monkeypatch, 1000)
    monkeypatch.setattr(nudges, "MOST_REVOKED", 2)
    nudges.send("snapshot")
    nudges.send("revoked", revoked=["a", "b", "c"])
    assert [group for group, _ in layer.sent] == [NODES_GROUP] * 3
    assert sorted(text for _, nudge in layer.sent for text in nudge["revoked"]) == ["a", "b", "c"]
    monkeypatch.setattr(nudges, "_not_before", float("inf"))
    nudges.send("revoked", revoked=["d"])
    assert layer.sent[-1][1]["revoked"] == ["d"], "a layer that failed just now is tried all the same"


@pytest.mark.django_db(transaction=True)
def test_gateways_hear_of_a_revocation_before_anything_else_is_done_about_it(
    layer: Layer, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_size(monkeypatch, 3)
    monkeypatch.setattr(dispatch, "reconcile_now", lambda **options: None)
    one, two = a_key("one")[0], a_key("two")[0]
    former = one.sha256
    keys.rotate(actor=ACTOR, key=one, grace=60)
    layer.sent.clear()
    keys.revoke_all(actor=ACTOR, keys=[one, two])
    first, *rest = [nudge for _, nudge in layer.sent]
    assert (first["reason"], set(first["revoked"])) == ("revoked", {one.sha256, former, two.sha256})
    assert not any(nudge["revoked"] for nudge in rest)
    assert "snapshot" in layer.reasons
    layer.sent.clear()
    token = tokens.issue(actor=ACTOR, user=a_user(), name="t")[0]
    tokens.revoke(actor=ACTOR, token=token)
    assert [token.sha256] in [nudge["revoked"] for _, nudge in layer.sent]
