"""When a node stops answering: at most one second try, and never for a request that somebody accepted."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from routing.domain.way import FORWARDED
from routing.gateway.membership import Marks
from tests.cluster.harness.calls import call
from tests.cluster.harness.cluster import EXTERNAL, FIRST_BYTE, MODEL, Cluster
from tests.cluster.live.test_chat import INFERENCE, ROUTERS, all_idle, an_id, peers
from tests.processes import fair, wait_for

LONG = {"max_tokens": 2000, "ignore_eos": True}
"""An answer that takes seconds."""


def unreachable(cluster: Cluster) -> dict[str, float]:
    """How often a request of r1 could not reach a node, by node. (That it is silent, a look of its own may have found as well.)"""
    lines = [line for line in cluster["r1"].metrics().splitlines() if line.startswith("llmgw_node_unreachable_total{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


@pytest.mark.parametrize("mode", ["refuse", "silent"])
def test_a_node_that_cannot_be_reached_costs_no_request_and_is_skipped_for_a_while(
    one_router: Cluster, mode: Any
) -> None:
    cluster = one_router
    strategy = "/api/v1/router/strategy"
    assert cluster.admin("PUT", strategy, via="r1", json={"strategy": "round_robin"}).status_code == 200
    # one that could not be reached in the test before is left out for a while, though a look has found it since
    wait_for(lambda: _goes_to(cluster, "i1"), seconds=fair(30), what="i1 to take its turn")
    cluster["i1"].link.set(mode)
    cluster["i1"].link.reset()  # only new connections tell what cannot be reached
    names = [an_id() for _ in range(8)]
    for name in names:
        answer = cluster.chat(request_id=name)
        assert answer.status_code == 200, answer.text
    went = [set(cluster.went(name)) & INFERENCE for name in names]
    assert all(len(nodes) == 1 and "i1" not in nodes for nodes in went)
    assert peers(cluster)["i1"]["down_for_s"] is not None  # by a request in its turn, or by a look that came before it
    cluster["i1"].link.set("open")
    # longer than it is skipped: a look that began before finds it gone after
    wait_for(lambda: _goes_to(cluster, "i1"), seconds=fair(30), what="it to be chosen again")
    wait_for(lambda: all_idle(cluster), seconds=fair(30), what="counters to be zero")


def _goes_to(cluster: Cluster, node: str) -> bool:
    name = an_id()
    return cluster.outcome(request_id=name) == "200" and node in cluster.went(name)


def test_a_request_is_tried_on_a_second_node_and_on_no_third(one_router: Cluster) -> None:
    cluster = one_router
    for node in INFERENCE:
        cluster[node].link.set("refuse")
    answer = cluster.chat()
    assert answer.status_code in (502, 503), answer.text
    assert answer.json()["error"]["code"]
    for node in INFERENCE:
        cluster[node].link.set("open")
    assert cluster.outcome() == "200", "every node is marked: they are tried anyway"


def test_every_endpoint_fails_over(one_router: Cluster) -> None:
    cluster = one_router
    cluster["i1"].link.set("refuse")
    cluster["i2"].link.set("refuse")
    for stream in (False, True):
        for path, body in (
            ("/v1/completions", {"prompt": "Hi.", "max_tokens": 3}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 3}),
        ):
            answer = cluster.request("POST", path, json={"model": MODEL, "stream": stream, **body})
            assert answer.status_code in (200, 502, 503)  # two of three are gone: the one second try may hit the other
            wait_for(
                lambda path=path, body=body: (
                    cluster.request("POST", path, json={"model": MODEL, **body}).status_code == 200
                ),
                seconds=fair(30),
                what=f"{path} to work",
                every=0.1,
            )  # type: ignore[misc]


def test_a_request_that_was_accepted_and_lost_is_502_and_reached_one_node_only(one_router: Cluster) -> None:
    cluster = one_router
    before = unreachable(cluster)
    for node in INFERENCE:
        cluster[node].link.set("mute")
    name = an_id()
    answer = _while_under_way(cluster, name, lambda node: cluster[node].link.reset())
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_lost")
    assert len(set(cluster.went(name)) & INFERENCE) == 1
    assert len([node for node in cluster.went(name) if node in INFERENCE]) == 1
    for other in INFERENCE:
        cluster[other].link.set("open")
    assert unreachable(cluster) == before, "a node that accepted is not skipped"
    wait_for(lambda: all_idle(cluster), seconds=fair(30), what="counters to be zero")


def _while_under_way(cluster: Cluster, name: str, act: Any, **more: Any) -> httpx.Response:
    """Ask in a thread; act on the inference node that the request reached."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: cluster.chat(request_id=name, timeout=fair(30), **more))
        (node,) = wait_for(
            lambda: set(cluster.went(name)) & INFERENCE, seconds=fair(30), what="the request to reach a node"
        )
        act(node)
        return asked.result()


@pytest.mark.prove
def test_a_node_that_accepts_and_never_answers_is_not_asked_twice_and_hurts_nobody_else(one_router: Cluster) -> None:
    cluster = one_router
    model = "tiny-patient"
    cluster.serve(model)
    row = cluster.api().find("models", model, noun="model")
    cluster.api().patch(f"models/{row['id']}", {"first_byte_timeout": 2})
    (home,) = cluster.ready(model)
    for node in ("e1", "r1", home):
        known = partial(_goes_by, cluster, node, model, 2.0)
        wait_for(known, seconds=fair(30), what=f"{node} to know the timeout", every=0.1)
    wait_for(lambda: cluster.answers(model), seconds=fair(30), what="the model to answer", every=0.2)
    cluster[home].link.set("mute")
    name = an_id()
    began = time.monotonic()
    answer = _while_under_way(cluster, name, lambda node: None, model=model)
    assert answer.status_code == 504, answer.text
    assert time.monotonic() - began < FIRST_BYTE * 0.75, (
        "a node is given up by its silence, however long a request may wait its turn"
    )
    assert [node for node in cluster.went(name) if node in INFERENCE] == [home]
    for _ in range(4):
        assert cluster.outcome(EXTERNAL) == "200"


def _goes_by(cluster: Cluster, node: str, model: str, timeout: float) -> bool:
    """Whether the gateway of a node has taken over a snapshot with this first-byte timeout of the model."""
    snapshot = cluster[node].file("cluster/snapshot.json")
    found = [item["first_byte_timeout"] for item in snapshot.get("models", ()) if item["name"] == model]
    taken = {line["version"] for line in cluster[node].logged() if line["event"] == "snapshot_taken"}
    return found == [timeout] and snapshot["version"] in taken


def test_a_stream_that_breaks_ends_with_an_error_event_and_is_recorded_as_failed(one_router: Cluster) -> None:
    cluster = one_router
    for node in INFERENCE:
        cluster[node].link.slow(rate=4000)
    name = an_id()
    text = _stream(cluster, name, lambda node: cluster[node].link.reset())
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert len(events) > 1
    assert json.loads(events[-1])["error"]["code"] == "upstream_lost"
    assert "[DONE]" not in text
    assert len([node for node in cluster.went(name) if node in INFERENCE]) == 1
    record = _record(cluster, name)
    assert record["outcome"] == "failed"
    wait_for(lambda: all_idle(cluster), seconds=fair(30), what="counters to be zero")


def _stream(cluster: Cluster, name: str, act: Any, via: str = "e1") -> str:
    """A long stream; act on its node once the first content came; all that the client saw. It has no clean end."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi."}], "stream": True, **LONG}
    headers = {"authorization": f"Bearer {cluster.key}", "x-request-id": name}
    text, acted = "", False
    with httpx.stream(
        "POST", f"{cluster[via].url}/v1/chat/completions", json=body, headers=headers, timeout=fair(30), trust_env=False
    ) as answer:
        assert answer.status_code == 200
        with contextlib.suppress(httpx.RemoteProtocolError):
            for piece in answer.iter_text():
                text += piece
                if not acted and text.count("data: ") > 2:
                    acted = True
                    (node,) = set(cluster.went(name)) & INFERENCE
                    act(node)
    return text


def _record(cluster: Cluster, name: str) -> dict[str, Any]:
    """The one usage record of a request."""
    found = wait_for(
        lambda: [row for row in cluster.api().all("usage", page_size=500) if row["request_id"] == name],
        seconds=fair(15), what="the usage record", every=0.3,
    )  # fmt: skip
    (row,) = found
    return dict(row)


def test_an_error_that_a_node_answers_goes_through_unchanged_and_skips_nobody(one_router: Cluster) -> None:
    cluster, before = one_router, unreachable(one_router)
    name = an_id()
    words = [{"role": "user", "content": "word " * 6000}]
    answer = cluster.chat(request_id=name, messages=words)
    assert answer.status_code == 400, answer.text
    assert "context" in answer.text
    assert len([node for node in cluster.went(name) if node in INFERENCE]) == 1
    assert unreachable(cluster) == before


def test_the_edge_tries_a_second_router_only_if_the_first_could_not_be_reached(cluster: Cluster) -> None:
    cluster["r1"].link.set("refuse")
    for _ in range(3):
        name = an_id()
        assert cluster.outcome(request_id=name) == "200"
        assert set(cluster.went(name)) & ROUTERS == {"r2"}
    cluster["r1"].link.set("open")
    for router in ROUTERS:
        cluster[router].link.set("mute")
    name = an_id()
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: cluster.chat(request_id=name, timeout=fair(30)))
        wait_for(lambda: set(cluster.went(name)) & ROUTERS, seconds=fair(30), what="the request to reach a router")
        for router in ROUTERS:
            cluster[router].link.reset()
        answer = asked.result()
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_lost")
    assert len([node for node in cluster.went(name) if node in ROUTERS]) == 1


def test_the_edge_tells_no_address_of_an_internal_node(cluster: Cluster) -> None:
    inside = [node.link.outer[0] for node in cluster.nodes.values()] + [node.host for node in cluster.nodes.values()]
    inside.remove(cluster["e1"].host)
    answers = [cluster.chat(), cluster.chat("nothing-of-this-name"), cluster.chat(EXTERNAL)]
    for node in ROUTERS | INFERENCE:
        cluster[node].link.set("refuse")
    answers.append(cluster.chat())
    assert answers[-1].status_code >= 500
    for answer in answers:
        seen = f"{answer.headers} {answer.text}"
        assert not [
            address for address in inside if f"{address}:" in seen or f"{address} " in seen or f"{address}'" in seen
        ], seen
        assert not [header for header in answer.headers if header.startswith("x-llmgw")]


def test_a_request_that_was_forwarded_is_never_forwarded_again(cluster: Cluster) -> None:
    key = wait_for(lambda: cluster.api().all("keys"), what="keys")[0]
    marks = Marks(hop=FORWARDED, key=key["id"], project=str(key["project"]))
    cluster.serve("tiny-not-here", profile={"nodes": ["i2"]})
    name = an_id()
    cluster.provider.seen.clear()
    refused = set()
    for model in ("tiny-not-here", EXTERNAL):
        body = {"model": model, "messages": [{"role": "user", "content": "Hi."}]}
        answer = call(cluster["r1"], cluster["i1"], "POST", "/v1/chat/completions", body, marks=marks)
        refused.add((model, answer.status_code, answer.json()["error"]["code"]))
    assert refused == {("tiny-not-here", 508, "already_forwarded"), (EXTERNAL, 503, "module_stopped")}
    assert cluster.went(name) == []
    assert cluster.provider.seen == []


def test_nothing_of_a_client_passes_for_a_node(cluster: Cluster) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 3}
    for headers in ({"authorization": f"Bearer {cluster.key}"}, {"x-llmgw-hop": "forwarded"}, {}):
        answer = httpx.post(
            f"{cluster['i1'].link.url}/v1/chat/completions",
            json=body,
            headers=headers,
            trust_env=False,
            timeout=fair(30),
        )
        assert answer.status_code == 401
    name = an_id()
    forged = {"x-llmgw-hop": "forwarded", "x-llmgw-node": cluster["r1"].id, "x-llmgw-key": "key_of_somebody"}
    assert cluster.outcome(request_id=name, headers=forged) == "200"
    assert len(cluster.went(name)) == 2, "passed on as any other"


def test_an_edge_with_nothing_behind_it_says_so(cluster: Cluster) -> None:
    try:
        for router in ROUTERS:
            _switch(cluster, router, "stopped")
        answer = wait_for(
            lambda: (found := cluster.chat()).status_code == 503 and "no_chat_upstream" in found.text and found,
            seconds=fair(30), what="the edge to have heard", every=0.2,
        )  # fmt: skip
        assert answer.json()["error"]["code"] == "no_chat_upstream"
    finally:
        for router in ROUTERS:
            _switch(cluster, router, "running")


def _switch(cluster: Cluster, node: str, state: str) -> None:
    answer = cluster.admin("PUT", "/api/v1/node/modules/router", via=node, json={"state": state})
    assert answer.status_code == 200, answer.text


@pytest.fixture(autouse=True)
def _whole_answers(cluster: Cluster) -> Iterator[None]:
    """What was skipped is not skipped any more when the next test begins."""
    yield
    cluster.links.mend()
    wait_for(
        lambda: all(row["down_for_s"] is None for row in peers(cluster).values()),
        seconds=fair(30),
        what="nobody to be skipped",
        every=0.2,
    )
