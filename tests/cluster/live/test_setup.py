"""Roles and cluster setup: which node runs what, set once, followed at once."""

from __future__ import annotations

from typing import Any

import pytest

from llmgw_site.cli.client import CliError
from tests.cluster.harness.cluster import MODEL, Cluster
from tests.cluster.live.test_chat import ROUTERS, an_id
from tests.processes import fair, wait_for


def modules(cluster: Cluster, node: str) -> dict[str, str]:
    """The modules of a node and their states, as the node says."""
    answer = cluster.admin("GET", "/api/v1/node/modules", via=node)
    assert answer.status_code == 200, answer.text
    return {item["name"]: item["state"] for item in answer.json()["modules"]}


def until(cluster: Cluster, node: str, module: str, state: str | None) -> None:
    wait_for(
        lambda: modules(cluster, node).get(module) == state,
        seconds=fair(30),
        what=f"{module} of {node} to be {state}",
    )


def test_a_node_runs_the_modules_of_its_roles_and_no_others(cluster: Cluster) -> None:
    for name, module in {"e1": "edge", "r1": "router", "i3": "inference", "x1": "cloud"}.items():
        assert [other for other, state in modules(cluster, name).items() if state == "running"] == [module]
    assert modules(cluster, "c1")["controller"] == "running"


def test_the_setup_starts_a_module_and_a_stopped_one_is_listed_until_the_node_restarts(
    cluster: Cluster,
) -> None:
    cluster.setup({"i1": ["inference", "router"]})
    until(cluster, "i1", "router", "running")
    for router in ROUTERS:
        cluster[router].link.set("refuse")
    name = an_id()
    wait_for(lambda: cluster.chat(request_id=name).status_code == 200, seconds=fair(30), what="i1 to route", every=0.2)
    assert "i1" in cluster.went(name)
    cluster.setup({"i1": ["inference"]})
    until(cluster, "i1", "router", "stopped")
    wait_for(lambda: cluster.chat().status_code >= 500, seconds=fair(30), what="i1 to route no more", every=0.2)
    cluster["i1"].reboot()
    until(cluster, "i1", "router", None)


@pytest.mark.prove
def test_a_node_that_is_switched_to_inference_and_back_takes_replicas_and_gives_them_up(cluster: Cluster) -> None:
    cluster.setup({"r2": ["router", "inference"]})
    until(cluster, "r2", "inference", "running")
    cluster.serve("tiny-moved", profile={"nodes": ["r2"]})
    assert len(cluster["r2"].engines("tiny-moved")) == 1
    wait_for(lambda: cluster.answers("tiny-moved"), seconds=fair(30), what="an answer of r2", every=0.2)
    cluster.setup({"r2": ["router"]})
    wait_for(lambda: not cluster["r2"].engines(), seconds=fair(20), what="the engine of r2 to end", every=0.2)
    answer = cluster.chat("tiny-moved")
    assert answer.status_code == 503, answer.text


def test_a_node_that_the_setup_names_is_switched_there_and_nowhere_else(cluster: Cluster) -> None:
    cluster.setup({"r2": ["router"]})
    wait_for(
        lambda: cluster.admin("GET", "/api/v1/node/modules", via="r2").json()["managed"],
        seconds=fair(30),
        what="r2 to know",
    )
    refused = cluster.admin("PUT", "/api/v1/node/modules/router", via="r2", json={"state": "stopped"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "managed_by_cluster_setup")
    assert modules(cluster, "r2")["router"] == "running"
    own = cluster.admin("PUT", "/api/v1/node/modules/router", via="r1", json={"state": "running"})
    assert own.status_code == 200, "a node that it does not name keeps its own"


def test_a_module_that_is_switched_off_answers_503(cluster: Cluster) -> None:
    off = cluster.admin("PUT", "/api/v1/node/modules/edge", via="e1", json={"state": "stopped"})
    assert off.status_code == 200
    try:
        until(cluster, "e1", "edge", "stopped")
        answer = wait_for(
            lambda: (now := cluster.chat()).status_code != 200 and now, seconds=fair(30), what="the edge to be off"
        )
        assert answer
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "module_stopped")
    finally:
        cluster.admin("PUT", "/api/v1/node/modules/edge", via="e1", json={"state": "running"})
    wait_for(cluster.answers, seconds=fair(30), what="the edge to be back", every=0.2)


@pytest.mark.parametrize(
    "nodes",
    [
        {"c1": ["edge"]},
        {"r1": ["data"], "r2": ["data"], "i1": ["data"], "i2": ["data"], "i3": ["data"], "x1": ["data"]},
        {"nobody-of-this-name": ["edge"]},
        {"e1": ["cook"]},
    ],
    ids=["no controller", "an edge with nothing behind it", "an unknown node", "an unknown role"],
)
def test_a_setup_that_cannot_work_is_refused_with_the_reason_and_changes_nothing(cluster: Cluster, nodes: Any) -> None:
    before = cluster.api().get("cluster/setup")
    with pytest.raises(CliError) as refused:
        cluster.setup(nodes)
    assert len(str(refused.value)) > 30
    assert cluster.api().get("cluster/setup") == before
    assert cluster.outcome(MODEL) == "200"
