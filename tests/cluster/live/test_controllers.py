"""What becomes of a cluster whose controllers die, stall, or are several."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from typing import Any

import psycopg

from tests.cluster.harness.cluster import EXTERNAL, MODEL, OFFLINE, STALE, Cluster
from tests.cluster.harness.node import CONTROLLER
from tests.cluster.live.test_chat import an_id
from tests.processes import fair, wait_for


def placed(cluster: Cluster) -> list[tuple[Any, ...]]:
    return sorted((item["id"], item["node_name"], item["generation"]) for item in cluster.replicas())


def records(cluster: Cluster) -> Counter[str]:
    """Usage records by request id."""
    return Counter(row["request_id"] for row in cluster.api().all("usage", page_size=1000))


def test_nodes_serve_on_without_any_controller_and_no_usage_is_lost(cluster: Cluster) -> None:
    before = placed(cluster)
    cluster["c1"].kill()
    names = [an_id() for _ in range(6)]
    for number, name in enumerate(names):
        assert cluster.chat((MODEL, EXTERNAL)[number % 2], request_id=name).status_code == 200
    # also a node that starts meanwhile: it knows its peers and its models from its files
    cluster["r1"].restart("gateway", "agent")
    cluster["i1"].restart("gateway", "agent")
    cluster["r2"].link.set("refuse")
    for _ in range(4):
        names.append(an_id())
        wait_for(
            lambda: cluster.chat(request_id=names[-1]).status_code == 200,
            seconds=fair(10),
            what="an answer by r1",
            every=0.5,
        )
    cluster["c1"].start(seconds=60)
    wait_for(
        lambda: set(names) <= set(records(cluster)), seconds=fair(30), what="the spooled records to arrive", every=0.5
    )
    assert all(records(cluster)[name] == 1 for name in names[:6])
    assert placed(cluster) == before


def test_f05_a_controller_that_was_stopped_for_longer_than_offline_declares_nobody_dead(cluster: Cluster) -> None:
    before, engines = placed(cluster), _engines(cluster)
    cluster["c1"].freeze("web", "worker")
    until = time.monotonic() + OFFLINE + 3
    while time.monotonic() < until:
        assert cluster.chat().status_code == 200
        time.sleep(0.3)
    cluster["c1"].thaw()
    _nobody_offline(cluster, seconds=STALE)
    assert placed(cluster) == before
    assert _engines(cluster) == engines


def test_f05_a_database_that_stalled_for_longer_than_offline_lets_nobody_be_declared_dead(cluster: Cluster) -> None:
    before, engines = placed(cluster), _engines(cluster)
    with psycopg.connect(cluster.stores["DATABASE_URL"]) as link:
        link.execute("LOCK TABLE cluster_node IN ACCESS EXCLUSIVE MODE")
        until = time.monotonic() + OFFLINE + 3
        while time.monotonic() < until:
            assert cluster.chat().status_code == 200
            time.sleep(0.3)
    _nobody_offline(cluster, seconds=STALE)
    assert placed(cluster) == before
    assert _engines(cluster) == engines


def _engines(cluster: Cluster) -> dict[str, list[int]]:
    return {name: cluster[name].engines(MODEL) for name in ("i1", "i2", "i3")}


def _nobody_offline(cluster: Cluster, *, seconds: float) -> None:
    """For so long no node is said to be offline; at the end all are online."""
    until = time.monotonic() + seconds
    states: dict[str, str] = {}
    while time.monotonic() < until:
        states = wait_for(cluster.states, seconds=fair(10), what="the controller to answer")
        assert "offline" not in states.values(), states
        time.sleep(0.2)
    wait_for(
        lambda: set(cluster.states().values()) == {"online"},
        seconds=fair(10),
        what=f"all to be online: {states}",
        every=0.2,
    )


def test_a_change_reaches_connected_nodes_in_under_a_second_without_any_heartbeat(cluster: Cluster) -> None:
    slow = {"LLMGW_HEARTBEAT": "60", "LLMGW_STALE_AFTER": "200", "LLMGW_OFFLINE_AFTER": "400"}
    usual = {name: cluster["c1"].environ[name] for name in slow}
    cluster["c1"].restart("web", "worker", **slow)
    try:
        time.sleep(2.5)  # the last answers that ask for a heartbeat each second are used up
        took = []
        for number in range(5):
            key = cluster.api().post("keys", {"name": an_id(), "project": "default"})["key"]
            began = time.monotonic()
            wait_for(
                lambda key=key: cluster.request("GET", "/v1/models", token=key).status_code == 200,
                seconds=fair(5),
                what=f"key {number} to be known",
            )  # type: ignore[misc]
            took.append(time.monotonic() - began)
        assert sorted(took)[2] < fair(1.0), took
        cluster.setup({"r2": ["router", "edge"]})
        began = time.monotonic()
        wait_for(lambda: _runs(cluster, "r2", "edge"), seconds=fair(5), what="the setup to be followed")
        assert time.monotonic() - began < fair(2.0)
    finally:
        cluster["c1"].restart("web", "worker", **usual)


def _runs(cluster: Cluster, node: str, module: str) -> bool:
    found = cluster.admin("GET", "/api/v1/node/modules", via=node).json()["modules"]
    return any(item["name"] == module and item["state"] == "running" for item in found)


def test_a_second_controller_takes_over_the_heartbeats_when_the_first_dies(cluster: Cluster) -> None:
    second = cluster.extra("c2", "controller", services=CONTROLLER, **cluster.stores)
    both = {cluster["c1"].id, second.id}

    def knows(node: str) -> bool:
        rows = cluster[node].file("cluster/module-map.json")["map"]["nodes"]
        return {
            row["node_id"]
            for row in rows
            if any(m["name"] == "controller" and m["state"] == "running" for m in row["modules"])
        } == both

    for node in ("e1", "i1"):
        wait_for(lambda node=node: knows(node), seconds=fair(10), what=f"{node} to know both controllers", every=0.2)  # type: ignore[misc]
    cluster["c1"].kill()
    lost = time.monotonic()
    wait_for(
        lambda: _states(cluster, "c2").get("c1") == "offline",
        seconds=fair(4 * OFFLINE),
        what="c1 to be offline",
        every=0.3,
    )
    states = _states(cluster, "c2")
    assert {name: state for name, state in states.items() if name != "c1"} == dict.fromkeys(
        states.keys() - {"c1"}, "online"
    )
    assert time.monotonic() - lost > STALE
    key = cluster.api("c2").post("keys", {"name": an_id(), "project": "default"})["key"]
    wait_for(
        lambda: cluster.request("GET", "/v1/models", token=key).status_code == 200,
        seconds=fair(10),
        what="a key of c2 at the edge",
    )
    name = an_id()
    assert cluster.chat(request_id=name).status_code == 200
    wait_for(
        lambda: name in {row["request_id"] for row in cluster.api("c2").all("usage", page_size=500)},
        seconds=fair(15), what="a record at c2", every=0.3,
    )  # fmt: skip
    cluster["c1"].start(seconds=60)
    wait_for(lambda: cluster.states()["c1"] == "online", seconds=fair(20), what="c1 to be back", every=0.3)


def _states(cluster: Cluster, node: str) -> dict[str, str]:
    return {row["name"]: row["state"] for row in cluster.api(node).all("nodes")}


def test_a_controller_that_is_killed_at_random_moments_loses_and_doubles_no_record(cluster: Cluster) -> None:
    names: list[str] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            names.append(an_id())
            assert cluster.chat(request_id=names[-1], max_tokens=3).status_code == 200

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(2):
            time.sleep(1.0)
            cluster["c1"].kill("web", sign=signal.SIGKILL)
            cluster["c1"].start("web", seconds=60)
    finally:
        over.set()
        asking.join(60)
    found = wait_for(
        lambda: (now := records(cluster)).keys() >= set(names) and now, seconds=fair(30), what="all records", every=0.5
    )
    assert {found[name] for name in names} == {1}  # type: ignore[index]
