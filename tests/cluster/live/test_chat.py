"""The way of a request through a cluster, the one catalogue, and which node answers."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from typing import Any

import openai
import pytest

from tests import tiny
from tests.cluster.harness import provider
from tests.cluster.harness.cluster import EXTERNAL, MODEL, Cluster
from tests.processes import fair, wait_for

INFERENCE, ROUTERS = {"i1", "i2", "i3"}, {"r1", "r2"}


def an_id() -> str:
    return f"live-{secrets.token_hex(5)}"


def peers(cluster: Cluster, model: str = MODEL, via: str = "r1") -> dict[str, dict[str, Any]]:
    """What a router knows of the nodes that serve a model, by name."""
    return {row["node"]: row for row in cluster.admin("GET", f"/api/v1/cloud/peers?model={model}", via=via).json()}


def all_idle(cluster: Cluster) -> bool:
    return not any(
        row["in_flight"]
        for via in ("r1", "r2")
        for model in (MODEL, EXTERNAL)
        for row in peers(cluster, model, via).values()
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_goes_from_the_edge_through_one_router_to_one_inference_node(cluster: Cluster, stream: bool) -> None:
    name = an_id()
    answer = cluster.chat(request_id=name, stream=stream)
    assert answer.status_code == 200, answer.text
    assert tiny.TEXT.split()[0] in answer.text
    if stream:
        assert answer.text.rstrip().endswith("data: [DONE]")
    went = cluster.went(name)
    assert len(went) == 2
    assert ROUTERS & set(went)
    assert INFERENCE & set(went)
    assert [cluster[node].engines() for node in ("e1", "r1", "r2")] == [[], [], []]


@pytest.mark.parametrize("stream", [False, True])
def test_a_cloud_model_is_answered_by_the_cloud_node_and_the_provider_sees_only_its_key(
    cluster: Cluster, stream: bool
) -> None:
    name = an_id()
    answer = cluster.chat(EXTERNAL, request_id=name, stream=stream, headers={"cookie": "a=b", "x-llmgw-key": "forged"})
    assert answer.status_code == 200, answer.text
    assert "far" in answer.text
    assert sorted(cluster.went(name))[-1] == "x1"
    assert len(cluster.went(name)) == 2
    headers, body = cluster.provider.seen[-1]
    assert headers["authorization"] == f"Bearer {provider.KEY}"
    assert body["model"] == provider.THEIRS
    everything = json.dumps([headers, body])
    assert cluster.key not in everything
    assert not [header for header in headers if header.startswith("x-llmgw")]
    assert "cookie" not in headers


def test_every_endpoint_takes_the_same_way(cluster: Cluster) -> None:
    client = openai.OpenAI(base_url=f"{cluster['e1'].url}/v1", api_key=cluster.key, max_retries=0)
    assert client.completions.create(model=MODEL, prompt="Hi.", max_tokens=3).choices[0].text
    cluster.serve("tiny-embed", tiny.tiny_gguf(pooling="mean", name="tiny-embed"))
    assert len(client.embeddings.create(model="tiny-embed", input="Hi.").data[0].embedding) > 10


def test_the_model_list_is_one_for_all_and_keeps_what_engines_say(cluster: Cluster) -> None:
    cluster.setup({"i3": ["inference", "edge"]})
    for node in ("e1", "i3"):
        wait_for(
            lambda node=node: sorted(cluster.models(node)) == [EXTERNAL, MODEL],
            seconds=fair(30),
            what=f"the list of {node}",
            every=0.2,
        )  # type: ignore[misc]

    def told() -> str:
        rows = {row["id"]: row for row in cluster.request("GET", "/v1/models").json()["data"]}
        return json.dumps(rows[MODEL])

    assert wait_for(
        lambda: "4096" in told(), seconds=fair(30), what=f"the context length that engines report: {told()}"
    )


def test_clients_see_only_what_their_key_may_use(cluster: Cluster) -> None:
    key = cluster.api().post("keys", {"name": f"narrow {an_id()}", "project": "default", "models": [EXTERNAL]})
    text = key["key"]
    wait_for(
        lambda: cluster.request("GET", "/v1/models", token=text).status_code == 200,
        seconds=fair(30), what="the key to be known at the edge",
    )  # fmt: skip
    listed = cluster.request("GET", "/v1/models", token=text).json()["data"]
    assert [row["id"] for row in listed] == [EXTERNAL]
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi."}]}
    assert cluster.request("POST", "/v1/chat/completions", token=text, json=body).status_code in (403, 404)


def test_a_node_that_serves_the_model_itself_answers_itself(cluster: Cluster) -> None:
    cluster.setup({"i2": ["inference", "router", "edge"]})

    def answers_itself() -> bool:
        name = an_id()
        return cluster.outcome(via="i2", request_id=name) == "200" and cluster.went(name) == []

    # until it routes, too, another one does it for the edge that it is
    wait_for(answers_itself, seconds=fair(30), what="i2 to be an edge and a router", every=0.2)
    assert [answers_itself() for _ in range(3)] == [True] * 3


def test_the_strategy_is_set_at_the_router_kept_and_followed(one_router: Cluster) -> None:
    cluster = one_router
    path = "/api/v1/router/strategy"
    before = cluster.admin("GET", path, via="r1").json()
    assert before["strategy"] == "load_based"
    wrong = cluster.admin("PUT", path, via="r1", json={"strategy": "the_best"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_strategy")
    assert cluster.request("PUT", path, via="r1", json={"strategy": "random"}).status_code == 401
    try:
        put = cluster.admin("PUT", path, via="r1", json={"strategy": "round_robin"})
        assert put.status_code == 200, put.text
        cluster["r1"].restart("gateway")
        assert cluster.admin("GET", path, via="r1").json()["strategy"] == "round_robin"
        whole_again = lambda: all(peer["down_for_s"] is None for peer in peers(cluster).values()) and cluster.answers()  # noqa: E731
        wait_for(whole_again, seconds=fair(30), what="an answer after the restart")
        names = [an_id() for _ in range(9)]
        for name in names:
            assert cluster.outcome(request_id=name) == "200"
        assert Counter(node for name in names for node in cluster.went(name) if node != "r1") == {
            "i1": 3,
            "i2": 3,
            "i3": 3,
        }
    finally:
        cluster.admin("PUT", path, via="r1", json={"strategy": "load_based"})


def homes_of(cluster: Cluster, session: str) -> set[tuple[str, ...]]:
    """The nodes that five requests of a session went to."""
    names = [an_id() for _ in range(5)]
    for name in names:
        assert cluster.outcome(request_id=name, headers={"x-session-id": session}) == "200"
    return {tuple(cluster.went(name)) for name in names}


def test_a_session_stays_with_one_node(one_router: Cluster) -> None:
    cluster = one_router
    path = "/api/v1/router/strategy"
    try:
        assert cluster.admin("PUT", path, via="r1", json={"strategy": "affinity"}).status_code == 200
        wait_for(
            lambda: {len(homes_of(cluster, session)) for session in ("one", "two", "three")} == {1},
            seconds=fair(30), what="each to stay, once r1 leaves out none that it could not reach before",
        )  # fmt: skip
    finally:
        cluster.admin("PUT", path, via="r1", json={"strategy": "load_based"})


def test_a_node_that_goes_down_leaves_the_list_at_the_next_refresh_and_comes_back(cluster: Cluster) -> None:
    cluster.serve("tiny-alone", replicas=1)
    (home,) = cluster.ready("tiny-alone")
    cluster[home].kill("gateway")
    wait_for(lambda: "tiny-alone" not in cluster.models(), seconds=fair(30), what="the model to leave the list")
    assert MODEL in cluster.models()
    cluster[home].start("gateway")
    wait_for(lambda: "tiny-alone" in cluster.models(), seconds=fair(30), what="the model to come back")
    wait_for(lambda: cluster.answers("tiny-alone"), seconds=fair(30), what="it to answer")


def test_a_node_that_hangs_spoils_nothing(cluster: Cluster) -> None:
    cluster["i3"].freeze("gateway")
    for _ in range(3):
        assert sorted(cluster.models()) == [EXTERNAL, MODEL]
    cluster["i3"].thaw()


def test_peers_shows_where_each_model_is_forwarded_to(cluster: Cluster) -> None:
    wait_for(lambda: all_idle(cluster), seconds=fair(30), what="the end of what the tests before asked")
    rows = cluster.admin("GET", "/api/v1/cloud/peers", via="r1").json()
    assert {row["node"] for row in rows if row["model"] == MODEL} == INFERENCE
    assert {row["node"] for row in rows if row["model"] == EXTERNAL} == {"x1"}
    only = cluster.admin("GET", f"/api/v1/cloud/peers?model={MODEL}", via="r1").json()
    assert {row["model"] for row in only} == {MODEL}
    assert all({"serving_state", "down_for_s", "in_flight"} <= row.keys() for row in only)
    assert {row["in_flight"] for row in only} == {0}
    assert cluster.request("GET", "/api/v1/cloud/peers", via="r1").status_code == 401
