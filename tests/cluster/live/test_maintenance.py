"""Maintenance and removal: cordoned, drained, switched off, taken out."""

from __future__ import annotations

import threading

import httpx
import pytest

from tests.cluster.harness.calls import call, thief
from tests.cluster.harness.cluster import MODEL, OFFLINE, Cluster
from tests.processes import fair, wait_for


def maintenance(cluster: Cluster, node: str, verb: str, **fields: str) -> None:
    cluster.api().post(f"nodes/{cluster[node].id}/{verb}", fields)


def row(cluster: Cluster, node: str) -> dict[str, object]:
    return dict(next(item for item in cluster.api().all("nodes") if item["name"] == node))


@pytest.mark.prove
def test_nothing_new_is_placed_on_a_cordoned_node_and_the_reason_is_shown(cluster: Cluster) -> None:
    maintenance(cluster, "i1", "cordon", reason="a new fan")
    assert (row(cluster, "i1")["maintenance"], row(cluster, "i1")["maintenance_why"]) == ("cordoned", "a new fan")
    cluster.serve("tiny-elsewhere", replicas=2)
    assert set(cluster.ready("tiny-elsewhere")) <= {"i2", "i3"}
    assert "i1" in cluster.ready(MODEL), "what runs there stays"
    maintenance(cluster, "i1", "uncordon")
    assert row(cluster, "i1")["maintenance"] == ""


def test_a_drained_node_is_empty_after_its_replicas_moved_and_no_request_fails_meanwhile(cluster: Cluster) -> None:
    failed: list[str] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            answer = cluster.chat(max_tokens=5)
            if answer.status_code != 200:
                failed.append(answer.text)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        maintenance(cluster, "i1", "drain", reason="out for repair")
        wait_for(lambda: not cluster["i1"].engines(), seconds=fair(20), what="i1 to be empty", every=0.2)
        assert len(cluster.ready(MODEL)) == 3
    finally:
        over.set()
        asking.join(30)
    assert failed == []


@pytest.mark.prove
def test_f65_f69_models_pinned_to_nodes_that_are_away_are_placed_nowhere_else_and_maintenance_is_told(
    cluster: Cluster,
) -> None:
    """i2 is away of its own accord, i3 is switched off in maintenance: one wait for both."""
    cluster.serve("tiny-there", profile={"nodes": ["i3"]})
    cluster.serve("tiny-pinned", profile={"nodes": ["i2"]})
    wait_for(lambda: cluster.answers("tiny-there"), seconds=fair(30), what="the model", every=0.2)
    maintenance(cluster, "i3", "cordon", reason="its mainboard is replaced")
    for node in ("i2", "i3"):
        cluster[node].kill()
    for node in ("i2", "i3"):
        wait_for(
            lambda node=node: cluster.states()[node] == "offline",  # type: ignore[misc]
            seconds=fair(3 * OFFLINE),
            what=f"{node} to be offline",
        )
    told = _away(cluster, "tiny-there")
    assert "its mainboard is replaced" in told.text
    assert "retry-after" in told.headers
    shown = row(cluster, "i3")
    assert (shown["state"], shown["maintenance"]) == ("offline", "cordoned")
    assert "mainboard" not in _away(cluster, "tiny-pinned").text
    assert row(cluster, "i2")["maintenance"] == ""
    for model, home in (("tiny-there", "i3"), ("tiny-pinned", "i2")):
        assert not [node.name for node in cluster.nodes.values() if node.name != home and node.engines(model)]
        assert {item["node_name"] for item in cluster.replicas(model)} <= {home, None}


def _away(cluster: Cluster, model: str) -> httpx.Response:
    """The answer by which a model that is served nowhere is told of."""
    answer = wait_for(
        lambda: (now := cluster.chat(model)).status_code == 503 and now, seconds=fair(30), what="503", every=0.3
    )
    assert isinstance(answer, httpx.Response)
    return answer


def names_in_map(cluster: Cluster, node: str) -> list[str]:
    """Of the nodes in the map that a node keeps."""
    return [item["name"] for item in cluster[node].file("cluster/module-map.json")["map"]["nodes"]]


def test_a_removed_node_is_refused_everywhere_at_once_and_its_engines_end(cluster: Cluster) -> None:
    node = cluster.extra("i4", "inference")
    cluster.serve("tiny-leaving", profile={"nodes": ["i4"]})
    assert len(node.engines()) == 1
    answer = wait_for(
        lambda: (now := call(node, cluster["r1"], "GET", "/api/v1/node/models")).status_code == 200 and now,
        seconds=fair(30), what="r1 to know it",
    )  # fmt: skip
    assert answer
    copied = thief(node)
    cluster.api().delete(f"nodes/{node.id}")
    for other in ("c1", "r1", "i1"):
        refused = wait_for(
            lambda other=other: (now := call(copied, cluster[other], "GET", "/api/v1/node/models")).status_code == 401 and now,  # type: ignore[misc]
            seconds=fair(30), what=f"{other} to refuse it",
        )  # fmt: skip
        assert isinstance(refused, httpx.Response)
        assert refused.json()["error"]["code"] == "node_removed"
        wait_for(  # the nudge says so before there is a new map
            lambda other=other: node.name not in names_in_map(cluster, other),  # type: ignore[misc]
            seconds=fair(30), what=f"{other} to have a map without it",
        )  # fmt: skip
    wait_for(lambda: not node.engines(), seconds=fair(20), what="its engines to end", every=0.2)
    cluster.serve("tiny-staying")
    assert cluster.ready("tiny-staying")[0] != "i4"
