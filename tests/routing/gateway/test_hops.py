"""Requests across nodes: from edge to router to inference and back, what each hop adds and what it keeps to itself."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from cluster.domain.signing import Call
from routing.domain.affinity import session_of
from routing.domain.snapshot import ModelEntry
from routing.gateway.callers import Caller, Marks
from routing.gateway.exchange import Exchange
from tests.routing.gateway.hops import Site, chain, many
from tests.routing.gateway.nodes import CONTROLLER_PUBLIC
from tests.routing.gateway.rig import ENGINE_KEY, KEY, TINY, ask, until
from tests.routing.gateway.scripted import Peer


async def test_a_chat_goes_from_edge_to_router_to_inference_and_comes_back_unchanged(tmp_path: Path) -> None:
    async with chain(tmp_path) as (town, edge, router, worker):
        answer = await edge.chat("hello", extra={"kept": 1})
        assert answer.status_code == 200
        assert answer.json()["choices"][0]["message"]["content"] == "t0 t1 t2 "
        assert not [name for name in answer.headers if name.startswith("x-llmgw-")]
        assert worker.engine.last.json["extra"] == {"kept": 1}
        assert worker.engine.last.headers["x-request-id"] == answer.headers["x-request-id"]
        record = await edge.record()
        assert (record.node_id, record.replica_id) == (worker.node_id, f"rep_worker_{TINY}")
        assert (record.outcome, record.status, record.model_served) == ("ok", 200, TINY)
        assert (record.prompt_tokens, record.completion_tokens, record.estimated) == (7, 3, False)
        assert record.queue_s is not None
        assert record.queue_s >= 0
        assert router.records() == worker.records() == []
        await town.idle()


@pytest.mark.parametrize("usage", [False, True])
async def test_a_stream_passes_through_all_hops_and_is_counted_once_at_the_edge(tmp_path: Path, usage: bool) -> None:
    async with chain(tmp_path) as (town, edge, _, worker):
        extra = {"stream_options": {"include_usage": True}} if usage else {}
        body = ask({"tokens": 8, "gap": 0.03}, stream=True, **extra)
        pieces = []
        async with edge.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            pieces = [piece async for piece in answer.aiter_raw()]
        assert len(pieces) >= 5  # one chunk in, one chunk out; some come together where the machine is busy
        text = b"".join(pieces)
        assert text.count(b"data: ") == 8 + 1 + 1 + usage  # tokens, the end, [DONE], and the counts if asked for
        assert text.endswith(b"data: [DONE]\n\n")
        assert worker.engine.last.json["stream_options"] == {"include_usage": True}
        record = await edge.record()
        assert (record.prompt_tokens, record.completion_tokens, record.stream) == (7, 8, True)
        assert record.first_token_s is not None
        await town.idle()


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings"])
async def test_every_v1_endpoint_is_passed_on(tmp_path: Path, path: str) -> None:
    async with many(tmp_path) as town:
        town.models.append(ModelEntry(name="vectors", created=2, embeddings=True))
        edge = await town.start("edge", "edge")
        await town.start("router", "router")
        worker = await town.start("worker", "inference", serves=(TINY, "vectors"))
        await town.settle()
        model = "vectors" if path.endswith("embeddings") else TINY
        answer = await edge.client.post(path, json={"model": model, "input": "x", "prompt": "x"})
        assert answer.status_code == 200
        assert worker.engine.last.path == path
        assert (await edge.record()).prompt_tokens == 7


async def test_an_edge_with_a_router_on_the_same_node_forwards_by_itself(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        front = await town.start("front", "edge", "router")
        other = await town.start("other", "router")
        worker = await town.start("worker", "inference", serves=(TINY,))
        await town.settle()
        assert (await front.chat()).status_code == 200
        assert worker.asked == 1
        assert "x-llmgw-hop" not in worker.engine.last.headers
        assert _passed_on(worker) == {("forwarded", "200"): 1.0}
        assert _passed_on(other) == {}


async def test_a_router_that_serves_the_model_itself_answers_itself(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        edge = await town.start("edge", "edge")
        router = await town.start("router", "router", "inference", serves=(TINY,))
        worker = await town.start("worker", "inference", serves=(TINY,))
        await town.settle()
        for _ in range(4):
            assert (await edge.chat()).status_code == 200
        assert (router.asked, worker.asked) == (4, 0)
        assert edge.records()[-1].node_id == router.node_id


async def test_an_edge_alone_with_inference_answers_directly_and_one_with_nothing_says_so(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        single = await town.start("single", "edge", "inference", serves=(TINY,))
        bare = await town.start("bare", "edge")
        await town.settle()
        assert (await single.chat()).status_code == 200
        answer = await bare.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_chat_upstream")
        assert "retry-after" in answer.headers
        assert bare.records()[0].outcome == "refused"


async def test_the_router_of_the_settings_is_asked_and_any_other_once_it_is_gone(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        named = await town.start("named", "router")
        other = await town.start("other", "router")
        await town.start("worker", "inference", serves=(TINY,))
        edge = await town.start("edge", "edge", router_url=f"{named.node.address}/")
        await town.settle()
        for _ in range(5):
            assert (await edge.chat()).status_code == 200
        assert _passed_on(named) == {("handed", "200"): 5.0}
        await town.unreachable(named)
        for _ in range(3):
            assert (await edge.chat()).status_code == 200
        assert _passed_on(other) == {("handed", "200"): 3.0}
        assert edge.gateway.peers.unreachable_counts == {named.node_id: 1}  # it is left out afterwards


async def test_what_the_edge_refuses_reaches_no_other_node(tmp_path: Path) -> None:
    async with chain(tmp_path) as (_, edge, router, worker):
        no_key = await edge.client.post("/v1/chat/completions", json=ask(), headers={"authorization": "Bearer x"})
        unknown = await edge.client.post("/v1/chat/completions", json=ask(model="nothing"))
        kind = await edge.client.post("/v1/embeddings", json={"model": TINY, "input": "x"})
        assert [r.json()["error"]["code"] for r in (no_key, unknown, kind)] == [
            "invalid_api_key",
            "model_not_found",
            "wrong_endpoint",
        ]
        assert _passed_on(router) == _passed_on(worker) == {}


async def test_a_model_that_a_later_node_has_not_heard_of_is_503_and_never_404(tmp_path: Path) -> None:
    async with chain(tmp_path) as (town, edge, router, worker):
        kept = town.models
        town.models = []
        town.publish()
        town.models = kept
        town.sites = {"edge": edge}
        town.publish()
        answer = await edge.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready")
        assert answer.headers["retry-after"] == "2"
        assert router.asked == worker.asked == 0


async def test_a_forwarded_request_is_never_forwarded_again(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        edge = await town.start("edge", "edge", "router")
        late = await town.start("late", "router", "inference", serves=(TINY,))
        worker = await town.start("worker", "inference", serves=(TINY,))
        edge.busy(worker)
        town.serve(late)  # the snapshot still says that it runs there
        await town.settle()
        answer = await edge.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (508, "already_forwarded")
        assert worker.asked == 0
        town.serve(late, starting=(TINY,))
        await town.settle()
        answer = await edge.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready")
        late.node.modules, late.node.stopped = ("router",), ("inference",)
        late.gateway.members._files[2].path.write_text(
            json.dumps({"modules": [{"name": "router"}, {"name": "inference", "state": "stopped"}]})
        )
        late.gateway.members.look()
        answer = await edge.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "module_stopped")


async def test_a_request_handed_to_a_node_without_a_router_is_refused(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        worker = await town.start("worker", "inference", serves=(TINY,))
        edge = await town.start("edge", "edge", router_url=worker.node.address)
        await town.settle()
        answer = await edge.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "module_stopped")
        assert worker.asked == 0


async def test_modules_that_do_not_run_answer_503_and_a_node_without_web_404(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        site = await town.start("site", "inference", serves=(TINY,))
        await town.settle()
        for path in ("/v1/models", "/v1/nothing"):
            answer = await site.client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "module_stopped")
        answer = await site.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "module_stopped")
        with pytest.raises(InvalidStatus):
            await connect(f"ws://127.0.0.1:{site.client.base_url.port}/ws/x", open_timeout=10)
        for path in ("/", "/admin/", "/api/v1/models", "/api/v1/agent/heartbeat"):
            answer = await site.client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        assert (await site.client.get("/api/v1/node/modules")).status_code == 401
        assert (await site.client.get("/healthz")).status_code == 200
        site.node.stopped = ("controller",)
        town.publish()
        answer = await site.client.get("/admin/")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "module_stopped")


async def test_a_key_of_a_client_and_marks_of_its_own_making_are_worth_nothing(tmp_path: Path) -> None:
    async with chain(tmp_path) as (_, edge, router, worker):
        forged = {"x-llmgw-hop": "forwarded", "x-llmgw-key": "key_other", "x-llmgw-node": edge.node_id}
        url = f"{worker.node.address}/v1/chat/completions"
        answer = await edge.client.post(url, json=ask(), headers=forged)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "node_signature_required")
        assert (await edge.client.post("/v1/chat/completions", json=ask(), headers=forged)).status_code == 200
        assert (await edge.record()).key_id == "key_all"
        assert _passed_on(router) == {("handed", "200"): 1.0}
        assert "x-llmgw-key" not in worker.engine.last.headers


async def test_only_the_question_reaches_the_engine_over_hops(tmp_path: Path) -> None:
    sent = {"cookie": "a=1", "x-forwarded-for": "1.2.3.4", "x-kept": "yes", "x-session-id": "s1", "x-llmgw-x": "1"}
    async with chain(tmp_path) as (_, edge, _, worker):
        await edge.client.post("/v1/chat/completions", json=ask(), headers=sent)
        got = worker.engine.last.headers
        assert got["authorization"] == f"Bearer {ENGINE_KEY}"
        assert (got["x-kept"], got["accept-encoding"]) == ("yes", "identity")
        assert not {"cookie", "x-forwarded-for"} & set(got)
        assert not [name for name in got if name.startswith("x-llmgw-")]
        assert KEY.text not in str(worker.engine.last)
        assert CONTROLLER_PUBLIC not in str(worker.engine.last)


async def test_errors_of_an_engine_pass_all_hops_with_their_status_and_without_addresses(tmp_path: Path) -> None:
    async with chain(tmp_path) as (town, edge, _, worker):
        text = f"no luck at http://127.0.0.1:{worker.engine.port}/x"
        body = json.dumps({"error": {"message": text, "code": "mine"}})
        answer = await edge.chat({"status": 422, "body": body})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "mine")
        assert answer.json()["error"]["message"] == "no luck at [internal]/x"
        assert int(answer.headers["content-length"]) == len(answer.content)
        record = await edge.record()
        assert (record.outcome, record.status, record.code) == ("failed", 422, "mine")
        await town.idle()


async def test_redirects_and_headers_of_a_node_show_no_internal_address(tmp_path: Path) -> None:
    async def redirect(peer: Peer) -> None:
        await peer.request()
        await peer.send(
            b"HTTP/1.1 307 X\r\nlocation: http://127.0.0.1:9/secret?x=1\r\nx-from: 127.0.0.1\r\nx-kept: 1\r\n"
            b"content-type: text/plain\r\ncontent-length: 24\r\n\r\nsee 127.0.0.1:9 instead."
        )

    async with many(tmp_path) as town:
        edge = await town.start("edge", "edge")
        await town.scripted("router", "router", handler=redirect)
        await town.settle()
        answer = await edge.chat()
        assert (answer.status_code, answer.text) == (307, "see [internal] instead.")
        assert answer.headers["location"] == "/secret?x=1"
        assert "x-from" not in answer.headers
        assert answer.headers["x-kept"] == "1"


@pytest.mark.parametrize(("told", "waited"), [(b"2.5", 2.5), (b"nan", 0.0), (b"-1", 0.0), (b"soon", 0.0)])
async def test_who_ran_it_and_how_long_it_waited_is_told_by_the_node_behind(
    tmp_path: Path, told: bytes, waited: float
) -> None:
    async def answers(peer: Peer) -> None:
        await peer.request()
        facts = b"x-llmgw-node: node_far\r\nx-llmgw-replica: rep_far\r\nx-llmgw-queue-s: %b\r\n" % told
        await peer.send(b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\n%bcontent-length: 2\r\n\r\n{}" % facts)

    async with many(tmp_path) as town:
        edge = await town.start("edge", "edge")
        await town.scripted("router", "router", handler=answers)
        await town.settle()
        answer = await edge.chat()
        assert (answer.status_code, answer.text) == (200, "{}")
        assert not [name for name in answer.headers if name.startswith("x-llmgw-")]
        record = await edge.record()
        assert (record.node_id, record.replica_id) == ("node_far", "rep_far")
        assert record.queue_s is not None
        assert record.total_s is not None
        assert waited <= record.queue_s <= waited + record.total_s


async def test_what_the_edge_lets_in_passes_every_hop_up_to_its_last_byte(tmp_path: Path) -> None:
    async with chain(tmp_path, max_body=2000, max_header_bytes=1500) as (_, edge, router, worker):
        body = json.dumps(ask("x" * 1000, stream=True)).encode()
        body += b" " * (2000 - len(body))
        headers = {"x-long": "y" * 750, "x-session-id": "s" * 255 + " t"}
        answer = await edge.client.post("/v1/chat/completions", content=body, headers=headers)
        assert answer.status_code == 200
        assert len(worker.engine.last.body) > 2000
        answer = await edge.client.post("/v1/chat/completions", content=body + b" ")
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        assert router.gateway.app.active == set()


async def test_a_good_answers_headers_show_no_internal_address_either(tmp_path: Path) -> None:
    async with chain(tmp_path) as (_, edge, _, worker):
        headers = [["x-served-by", f"127.0.0.1:{worker.engine.port}"], ["x-model-rank", "1"]]
        for stream in (False, True):
            answer = await edge.chat({"headers": headers}, stream=stream)
            assert answer.status_code == 200
            assert "x-served-by" not in answer.headers
            assert answer.headers["x-model-rank"] == "1"


@pytest.mark.parametrize("usage", [False, True])
async def test_an_error_event_in_a_stream_shows_no_internal_address(tmp_path: Path, usage: bool) -> None:
    async def fails(peer: Peer) -> None:
        await peer.request()
        events = b'data: {"choices":[{"delta":{"content":"at 127.0.0.1:9"}}]}\n\n'
        await peer.send(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + events)
        for part in (b'data: {"error":{"message":"lost 127.', b'0.0.1:9","code":"mine"}}\n', b"\n"):
            await asyncio.sleep(0.1)
            await peer.send(part)

    async with many(tmp_path) as town:
        edge = await town.start("edge", "edge")
        await town.scripted("router", "router", handler=fails)
        await town.settle()
        answer = await edge.chat(stream=True, stream_options={"include_usage": usage})
        assert b'"content":"at 127.0.0.1:9"' in answer.content  # what a model says is its own
        assert b'"message":"lost [internal]"' in answer.content
        assert (await edge.record()).code == "mine"


async def test_a_node_that_refuses_this_node_does_not_tell_the_client_that_its_key_is_wrong(tmp_path: Path) -> None:
    async with chain(tmp_path) as (town, edge, router, _):
        gone = town.cluster.nodes.pop("edge")
        town.sites.pop("edge")
        town.publish()  # the router knows that the edge was removed; the edge does not yet
        answer = await edge.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "node_refused")
        assert "node_removed" in answer.json()["error"]["message"]
        town.cluster.nodes["edge"] = gone
        assert not any(router.counts())


async def test_no_401_of_a_node_is_the_clients(tmp_path: Path) -> None:
    async def refuses(peer: Peer) -> None:
        await peer.request()
        body = b'{"error":{"message":"who are you?","code":"invalid_api_key"}}'
        await peer.send(
            b"HTTP/1.1 401 X\r\nwww-authenticate: Basic\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )

    async with many(tmp_path) as town:
        edge = await town.start("edge", "edge")
        await town.scripted("router", "router", handler=refuses)
        await town.settle()
        answer = await edge.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "node_refused")
        assert "router" not in answer.text
        assert "www-authenticate" not in answer.headers


async def test_sessions_reach_the_inference_node_and_stay_on_one_replica(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        edge = await town.start("edge", "edge")
        router = await town.start("router", "router")
        workers = [await town.start(name, "inference", serves=(TINY,)) for name in ("a", "b", "c")]
        router.node.config.router_file.write_text('{"strategy": "affinity"}')
        router.gateway.rule.load()
        await town.settle()
        for number in range(6):
            for _ in range(4):
                headers = {"x-session-id": f"talk-{number}"}
                answer = await edge.client.post("/v1/chat/completions", json=ask(), headers=headers)
                assert answer.status_code == 200
        homes: dict[str, set[str]] = {}
        for worker in workers:
            for seen in worker.engine.requests:
                homes.setdefault(seen.headers["x-session-id"], set()).add(worker.node.name)
        assert sorted(homes) == [f"talk-{number}" for number in range(6)]
        assert all(len(names) == 1 for names in homes.values())


async def test_a_router_looks_once_into_a_body_for_its_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[bytes] = []

    def look(key_id: str, explicit: bytes | None, body: bytes) -> str:
        looked.append(body)
        return session_of(key_id, explicit, body)

    monkeypatch.setattr("routing.gateway.peers.session_of", look)
    async with many(tmp_path) as town:
        router = await town.start("router", "edge", "router")
        await town.start("worker", "inference", serves=(TINY,))
        router.node.config.router_file.write_text('{"strategy": "affinity"}')
        router.gateway.rule.load()
        await town.settle()
        assert (await router.chat()).status_code == 200
    assert len(looked) == 1


async def test_models_are_listed_at_the_edge_from_what_nodes_offer(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        town.polls = True
        town.models.append(ModelEntry(name="other", created=2))
        edge = await town.start("edge", "edge", peers_refresh=0.2)
        worker = await town.start("worker", "inference", serves=(TINY, "other"))
        await town.settle()

        async def ids() -> list[str]:
            return [model["id"] for model in (await edge.client.get("/v1/models")).json()["data"]]

        await until(lambda: edge.gateway.peers.heard_at(worker.node_id) is not None)
        assert await ids() == ["other", TINY]
        await town.unreachable(worker)
        async with asyncio.timeout(60):
            while await ids():
                await asyncio.sleep(0.05)
        await town.listen(worker)
        async with asyncio.timeout(60):
            while await ids() != ["other", TINY]:
                await asyncio.sleep(0.05)


async def test_comments_of_an_inner_hop_pass_as_life(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        edge = await town.start("edge", "edge", keepalive_comment=60.0, idle_timeout=0.1)
        worker = await town.start("worker", "router", "inference", serves=(TINY,), keepalive_comment=0.2)
        await town.settle()
        text = await _held(edge, worker, comments=2)
        assert text.count(b": keep-alive\n\n") >= 2
        assert text.endswith(b"data: [DONE]\n\n")
        await town.idle()


async def test_after_any_comments_the_edge_still_learns_who_answers(tmp_path: Path) -> None:
    async with chain(tmp_path, keepalive_comment=0.3) as (town, edge, _, worker):
        assert b": keep-alive\n\n" in await _held(edge, worker, comments=1)
        assert (await edge.record()).replica_id == f"rep_worker_{TINY}"
        await town.idle()


async def test_the_node_that_answers_is_the_first_to_send_a_comment() -> None:
    loop = asyncio.get_running_loop()

    async def nothing(*_: Any) -> Any:
        return {}

    def when(hop: str, *, relays: bool = False) -> list[float]:
        exchange = Exchange({"headers": []}, nothing, nothing, endpoint="chat.completions", now=0.0, loop=loop)
        exchange.quiet_since = 0.0
        call = Call(node="n", time=0.0, boot="b", counter=1, body="", signature="")
        exchange.caller = Caller(node_id="n", marks=Marks(hop=hop), call=call) if hop else None
        exchange.pings, exchange.relays = True, relays
        return [at for at in (7.9, 8.0, 9.9, 10.0) if exchange.silent(at, 10.0)]

    assert when("forwarded") == when("handed") == [8.0, 9.9, 10.0]
    assert when("handed", relays=True) == []
    assert when("") == [10.0]


async def test_a_stream_counts_as_answered_at_a_router_when_it_says_something(tmp_path: Path) -> None:
    async with chain(tmp_path, keepalive_comment=0.3) as (_, edge, router, worker):
        assert (await edge.chat({"silent": 1.0}, stream=True)).status_code == 200
        await until(lambda: not router.gateway.app.active)
        shown = router.gateway.peers.shown(router.gateway.table.view.routes[TINY].model)
        assert [item["node_id"] for item in shown] == [worker.node_id]
        assert shown[0]["answer_s"] >= 1.0


async def _held(edge: Site, worker: Site, *, comments: int) -> bytes:
    """All of a stream whose engine says nothing until so many comments have come."""
    text = b""
    async with edge.client.stream("POST", "/v1/chat/completions", json=ask({"held": True}, stream=True)) as answer:
        async for piece in answer.aiter_raw():
            text += piece
            if text.count(b": keep-alive\n\n") >= comments:
                worker.engine.release.set()
    return text


def _passed_on(site: Site) -> dict[tuple[str, str], float]:
    """Requests that this node was passed, by mark and status."""
    found = {}
    for metric in site.gateway.metrics.registry.collect():
        for sample in metric.samples:
            if sample.name == "llmgw_passed_on_total":
                found[sample.labels["hop"], sample.labels["status"]] = sample.value
    return found
