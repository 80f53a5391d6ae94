"""Nodes that are cut off, return, move, or lose a part."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

import pytest

from tests.cluster.harness.cluster import HOMES, MODEL, OFFLINE, STALE, Cluster
from tests.cluster.harness.node import NODE_PORT
from tests.cluster.live.test_chat import INFERENCE, an_id
from tests.processes import alive, fair, wait_for


def engines(cluster: Cluster) -> int:
    """Engines of the shared model, on all nodes."""
    return sum(len(node.engines(MODEL)) for node in cluster.nodes.values())


def test_f66_a_node_that_returns_from_a_partition_leaves_no_engine_that_nobody_owns(cluster: Cluster) -> None:
    mine = cluster["i2"].engines(MODEL)
    cluster.links.partition("i2")
    wait_for(
        lambda: cluster.states()["i2"] in ("stale", "offline"),
        seconds=fair(3 * STALE),
        what="i2 to be stale",
        every=0.1,
    )
    placed = {row["node_name"] for row in cluster.replicas()}
    if cluster.states()["i2"] == "stale":  # still: so it was when they were listed
        assert "i2" in placed, "stale alone removes nothing"
    wait_for(lambda: cluster.states()["i2"] == "offline", seconds=fair(3 * OFFLINE), what="i2 to be offline", every=0.2)
    wait_for(
        lambda: len([name for name in cluster.ready() if name != "i2"]) == 3,
        seconds=fair(20),
        what="three replicas elsewhere",
        every=0.2,
    )
    for _ in range(4):
        name = an_id()
        assert cluster.outcome(request_id=name) == "200"
        assert "i2" not in cluster.went(name)
    assert cluster["i2"].engines(MODEL) == mine, "cut off, it goes on with what it has"
    cluster.links.mend()
    wait_for(lambda: cluster.states()["i2"] == "online", seconds=fair(20), what="i2 to be back", every=0.2)
    wait_for(
        lambda: len(cluster.ready()) == 3 and engines(cluster) == 3,
        seconds=fair(30),
        what=f"the surplus to be stopped: {engines(cluster)}",
        every=0.3,
    )

    def all_owned() -> bool:
        owned = {row["pid"] for row in cluster.replicas() if row["run"]}
        return owned == {pid for node in cluster.nodes.values() for pid in node.engines(MODEL)}

    wait_for(all_owned, seconds=fair(30), what="every engine to be a replica's")
    cluster.serve("tiny-new", profile={"nodes": ["i2"]})
    wait_for(lambda: cluster.answers("tiny-new"), seconds=fair(30), what="an answer of i2")


@pytest.mark.prove
def test_f04_a_model_whose_agent_stalls_is_never_404(cluster: Cluster) -> None:
    cluster.serve("tiny-stalled", profile={"nodes": ["i1"]})
    wait_for(lambda: cluster.answers("tiny-stalled"), seconds=fair(30), what="the model", every=0.2)
    cluster["i1"].freeze("agent")
    seen = set()
    until = time.monotonic() + OFFLINE + 2
    while time.monotonic() < until:
        answer = cluster.chat("tiny-stalled", max_tokens=3)
        seen.add(answer.status_code)
        if answer.status_code != 200:
            assert answer.status_code == 503, answer.text
            assert "retry-after" in answer.headers
        time.sleep(0.3)
    assert seen <= {200, 503}
    cluster["i1"].thaw()
    wait_for(lambda: cluster.answers("tiny-stalled"), seconds=fair(20), what="the model to be back", every=0.3)


@pytest.mark.parametrize(
    "victims",
    [pytest.param(("i1",), id="of one node", marks=pytest.mark.prove), pytest.param(HOMES, id="of all nodes")],
)
def test_f45_the_first_requests_after_an_idle_engine_was_killed_work(cluster: Cluster, victims: Sequence[str]) -> None:
    for node in victims:
        for pid in cluster[node].engines(MODEL):
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda pid=pid: not alive(pid), what="the engine to be gone")  # type: ignore[misc]
    for _ in range(6):
        answer = cluster.chat()
        assert answer.status_code == 200, answer.text
    wait_for(lambda: engines(cluster) == 3, seconds=fair(20), what="the engines to be back", every=0.2)


@pytest.mark.prove
def test_f52_a_router_that_restarts_while_a_model_is_at_zero_replicas_never_says_404(cluster: Cluster) -> None:
    cluster.serve("tiny-asleep")
    row = cluster.api().find("models", "tiny-asleep", noun="model")
    cluster.api().patch(f"models/{row['id']}", {"replicas": 0})
    wait_for(lambda: not cluster.ready("tiny-asleep"), seconds=fair(20), what="no replica", every=0.2)
    cluster["r2"].link.set("refuse")
    cluster["r1"].restart("gateway", "agent")
    for _ in range(5):
        answer = cluster.chat("tiny-asleep")
        assert answer.status_code == 503, answer.text
        time.sleep(0.2)


def test_f53_a_session_whose_replica_disappears_is_pinned_anew_without_an_error(cluster: Cluster) -> None:
    cluster["r2"].link.set("refuse")
    path, session = "/api/v1/router/strategy", {"x-session-id": "f53"}
    try:
        assert cluster.admin("PUT", path, via="r1", json={"strategy": "affinity"}).status_code == 200
        name = an_id()
        assert cluster.outcome(request_id=name, headers=session) == "200"
        (home,) = set(cluster.went(name)) & INFERENCE
        cluster[home].kill("gateway")
        names = [an_id() for _ in range(4)]
        for name in names:
            assert cluster.outcome(request_id=name, headers=session) == "200"
        homes = {node for name in names for node in cluster.went(name) if node in INFERENCE}
        assert len(homes) == 1
        assert home not in homes
    finally:
        cluster.admin("PUT", path, via="r1", json={"strategy": "load_based"})


@pytest.mark.prove
def test_f67_a_node_whose_address_changes_is_found_at_the_new_one(cluster: Cluster) -> None:
    node = cluster["i3"]
    old = node.link
    outer = (old.outer[0].replace(".1.", ".2."), NODE_PORT)
    new = cluster.links.add("i3-new", outer=outer, inner=old.inner)
    cluster.serve("tiny-moves", profile={"nodes": ["i3"]})
    try:
        node.restart("agent", LLMGW_NODE_ADDRESS=new.url)
        old.set("refuse")
        wait_for(
            lambda: cluster.answers("tiny-moves"), seconds=fair(20), what="an answer from the new address", every=0.3
        )
        name = an_id()
        assert cluster.outcome("tiny-moves", request_id=name) == "200"
        assert "i3-new" in cluster.went(name)
    finally:
        old.set("open")
        node.restart("agent", LLMGW_NODE_ADDRESS=old.url)
        wait_for(
            lambda: cluster.answers("tiny-moves"), seconds=fair(20), what="an answer from the old address", every=0.3
        )
        new.set("refuse")
        cluster.links.links.pop("i3-new")


@pytest.mark.prove
def test_a_node_whose_clock_jumps_an_hour_goes_on_calling_and_being_called(cluster: Cluster) -> None:
    node = cluster.extra("i4", "inference,router,edge")
    node.restart("gateway", "agent", **node.skewed())
    cluster.serve("tiny-late", profile={"nodes": ["i4"]})
    for hours in (1, -1, 0):
        node.skew(3600 * hours)
        wait_for(
            lambda: (
                abs(node.file("cluster/module-map.json")["offset"] + 3600 * hours) < 60  # noqa: B023 - called in this turn
                and cluster.answers("tiny-late")
                and cluster.answers(via="i4")
                and cluster.states()["i4"] == "online"
            ),
            seconds=fair(15), what=f"calls both ways with a clock {hours} h ahead", every=0.3,
        )  # fmt: skip
        for _ in range(3):
            assert cluster.outcome("tiny-late") == "200"
            assert cluster.outcome(via="i4") == "200"
        assert len(node.engines("tiny-late")) == 1
