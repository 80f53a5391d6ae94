"""When a node stops answering: one second try, only where no connection stood; nothing is ever run twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from routing.domain.snapshot import ModelEntry
from routing.gateway import dispatch
from tests.routing.gateway.hops import Many, Site, chain, closed_port, deaf, many
from tests.routing.gateway.rig import TINY, ask, until
from tests.routing.gateway.scripted import Peer

STREAMS = pytest.mark.parametrize("stream", [False, True])
LOST = b'{"error":{"message":"m","type":"server_error","code":"mine","param":null}}'


async def router_and_two(town: Many, **settings: Any) -> tuple[Site, Site]:
    """An edge that routes, and a node `second` that is chosen only when the others are tried or gone."""
    edge = await town.start("edge", "edge", "router", **settings)
    second = await town.start("second", "inference", serves=(TINY,))
    edge.busy(second, 3)
    return edge, second


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def calm(edge: Site, second: Site) -> None:
    """In-flight counts are what `busy` made them."""
    assert edge.gateway.peers.in_flight == {(second.node_id, TINY): 3}
    assert not edge.gateway.app.active


@STREAMS
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"])
async def test_refused_connections_send_a_request_once_to_another_node(tmp_path: Path, path: str, stream: bool) -> None:
    async with many(tmp_path) as town:
        kind = path.endswith("embeddings")
        town.change(TINY, embeddings=kind)
        edge, second = await router_and_two(town)
        first = await town.start("first", "inference", serves=(TINY,))
        await town.settle()
        await town.unreachable(first)
        body = {"model": TINY, "input": "x", "prompt": "x", "messages": [{"role": "user", "content": "x"}]}
        answer = await edge.client.post(path, json={**body, **({"stream": True} if stream and not kind else {})})
        assert answer.status_code == 200
        assert second.asked == 1
        assert (await edge.record()).node_id == second.node_id
        assert len(edge.records("open")) == 1
        assert edge.gateway.peers.unreachable_counts == {first.node_id: 1}
        for _ in range(3):  # it is skipped from now on: nobody waits for it again
            assert (await edge.client.post(path, json=body)).status_code == 200
        assert edge.gateway.peers.unreachable_counts == {first.node_id: 1}
        await until(lambda: not edge.gateway.app.active)
        calm(edge, second)


@pytest.mark.parametrize(
    "name", ["no-such-host.invalid", "a..invalid", "b\u00fccher.invalid", "n" * 70 + ".invalid", "[::1%25no]"]
)
async def test_a_name_that_does_not_resolve_is_as_good_as_a_refused_connection(tmp_path: Path, name: str) -> None:
    async with many(tmp_path) as town:
        edge, second = await router_and_two(town)
        town.ghost("first", "inference", address=f"http://{name}:8880", serves=(TINY,))
        await town.settle()
        assert (await edge.chat()).status_code == 200
        assert second.asked == 1


@STREAMS
async def test_no_connection_within_the_connect_timeout_is_too(tmp_path: Path, stream: bool) -> None:
    async with many(tmp_path) as town, deaf() as listener:
        edge, second = await router_and_two(town)
        await town.settle()
        assert (await edge.chat()).status_code == 200  # from now on there is a connection to the second
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        town.ghost("first", "inference", address=address, serves=(TINY,))
        await town.settle()
        edge.gateway.upstream._connect_timeout = 0.5
        assert (await edge.chat(stream=stream)).status_code == 200
        assert second.asked == 2
        assert edge.gateway.peers.skipped("node_first")


async def test_once_a_comment_was_sent_nothing_is_tried_again(tmp_path: Path) -> None:
    async with many(tmp_path) as town, deaf() as listener:
        edge, second = await router_and_two(town, keepalive_comment=0.2)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        town.ghost("first", "inference", address=address, serves=(TINY,))
        await town.settle()
        text = await cut_stream(edge.client, "hello", first=listener.close)
        assert text.startswith(b": keep-alive\n\n")
        assert b'"upstream_unreachable"' in text
        assert b"[DONE]" not in text
        assert second.asked == 0
        record = await edge.record()
        assert (record.outcome, record.code, record.status) == ("failed", "upstream_unreachable", 200)


async def test_two_nodes_are_tried_and_not_a_third(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        edge, second = await router_and_two(town)
        for name in ("a", "b"):
            town.ghost(name, "inference", serves=(TINY,))
        await town.settle()
        answer = await edge.chat()
        assert code(answer) == (502, "upstream_unreachable")
        assert second.asked == 0
        assert answer.headers["retry-after"] == "2"
        assert (await edge.chat()).status_code == 200  # both are known to be gone now
        assert second.asked == 1


async def test_if_every_node_is_marked_they_are_tried_anyway(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        edge, second = await router_and_two(town)
        town.ghost("first", "inference", serves=(TINY,))
        await town.settle()
        for name in (second.node_id, "node_first"):
            edge.gateway.peers.unreachable(name)
        assert (await edge.chat()).status_code == 200


@STREAMS
@pytest.mark.parametrize("how", ["closed", "reset", "garbage"])
async def test_f17_a_node_that_took_the_request_and_broke_is_502_and_nobody_else_is_asked(
    tmp_path: Path, how: str, stream: bool
) -> None:
    async def breaks(peer: Peer) -> None:
        await peer.request()
        if how == "garbage":
            await peer.send(b"what?\r\n\r\n")
        elif how == "reset":
            peer.writer.transport.abort()

    async with many(tmp_path) as town:
        edge, second = await router_and_two(town)
        first = await town.scripted("first", "inference", handler=breaks, serves=(TINY,))
        await town.settle()
        assert code(await edge.chat(stream=stream)) == (502, "upstream_lost")
        assert (first.accepted, second.asked) == (1, 0)
        assert not edge.gateway.peers.skipped("node_first")
        record = await edge.record()
        assert (record.outcome, record.code, record.status) == ("failed", "upstream_lost", 502)
        assert record.node_id == "node_first"
        calm(edge, second)


@pytest.mark.parametrize(("status", "retry"), [(500, False), (503, True), (429, True), (400, False)])
async def test_an_answer_of_a_node_goes_to_the_client_unchanged_and_the_node_is_not_skipped(
    tmp_path: Path, status: int, retry: bool
) -> None:
    async def answers(peer: Peer) -> None:
        while await peer.request():
            extra = b"retry-after: 7\r\n" if retry else b""
            head = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
            await peer.send(head % (status, extra, len(LOST)) + LOST)

    async with many(tmp_path) as town:
        edge, second = await router_and_two(town)
        await town.scripted("first", "inference", handler=answers, serves=(TINY,))
        await town.settle()
        for _ in range(2):
            answer = await edge.chat()
            assert (answer.status_code, answer.content) == (status, LOST)
            assert answer.headers.get("retry-after") == ("7" if retry else None)
        assert second.asked == 0
        assert edge.gateway.peers.standings.get("node_first") is None
        calm(edge, second)


@STREAMS
@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b"", b'{"error":"no"}', b'{"error":{"message":"m"}}'])
async def test_f47_what_is_no_error_object_of_a_node_reaches_no_client(
    tmp_path: Path, body: bytes, stream: bool
) -> None:
    async def answers(peer: Peer) -> None:
        while await peer.request():
            head = b"HTTP/1.1 503 X\r\ncontent-type: text/html\r\nserver: proxy\r\ncontent-length: %d\r\n\r\n"
            await peer.send(head % len(body) + body)

    async with many(tmp_path) as town:
        edge, second = await router_and_two(town)
        await town.scripted("first", "inference", handler=answers, serves=(TINY,))
        await town.settle()
        answer = await edge.chat(stream=stream)
        assert code(answer) == (502, "upstream_error")
        assert answer.headers["content-type"] == "application/json"
        assert set(answer.json()["error"]) == {"message", "type", "code", "param"}
        assert second.asked == 0
        record = await edge.record()
        assert (record.outcome, record.code, record.status) == ("failed", "upstream_error", 502)
        calm(edge, second)


@pytest.mark.parametrize("script", [{"tokens": 9, "die_after": 2, "gap": 0.05}, {"tokens": 9, "cut_after": 2}])
async def test_f16_a_stream_that_dies_ends_with_one_error_event_at_every_distance(
    tmp_path: Path, script: dict[str, Any]
) -> None:
    async with chain(tmp_path) as (town, edge, _, worker):
        text = await cut_stream(edge.client, script)
        assert text.count(b'"error"') == 1
        assert b'"engine_broken"' in text or b'"upstream_lost"' in text
        assert b"[DONE]" not in text
        assert text.count(b"data: ") == 3
        assert worker.asked == 1
        record = await edge.record()
        assert (record.outcome, record.status, record.completion_tokens) == ("failed", 200, 2)
        assert record.estimated
        await town.idle()


async def test_f16_a_node_that_dies_in_mid_stream_is_lost(tmp_path: Path) -> None:
    async def dies(peer: Peer) -> None:
        await peer.request()
        event = b'data: {"choices":[{"delta":{"content":"t"}}]}\n\n'
        head = b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        await peer.send(head + b"%x\r\n%b\r\n" % (len(event), event))
        await asyncio.sleep(0.1)
        peer.writer.transport.abort()

    async with many(tmp_path) as town:
        edge, second = await router_and_two(town)
        first = await town.scripted("first", "inference", handler=dies, serves=(TINY,))
        await town.settle()
        text = await cut_stream(edge.client, "x")
        assert text.count(b"data: ") == 2
        assert b'"code":"upstream_lost"' in text
        assert (first.accepted, second.asked) == (1, 0)
        record = await edge.record()
        assert (record.outcome, record.code, record.completion_tokens) == ("failed", "upstream_lost", 1)
        calm(edge, second)


async def test_an_edge_tries_a_second_router_only_if_it_could_not_reach_the_first(tmp_path: Path) -> None:
    calls = []

    async def breaks(peer: Peer) -> None:
        calls.append(await peer.request())

    async with many(tmp_path) as town:
        edge = await town.start("edge", "edge")
        router = await town.start("router", "router")
        worker = await town.start("worker", "inference", serves=(TINY,))
        ghost = town.ghost("ghost", "router")
        await town.settle()
        edge.gateway.peers.unreachable(router.node_id)  # so that the other is the first choice
        assert (await edge.chat()).status_code == 200
        assert edge.gateway.peers.skipped(ghost.node_id)
        town.cluster.nodes.pop("ghost")
        await town.scripted("broken", "router", handler=breaks)
        await town.settle()
        edge.gateway.peers.unreachable(router.node_id)
        assert code(await edge.chat()) == (502, "upstream_lost")
        assert len(calls) == 1
        assert worker.asked == 1
        await town.idle()


async def test_an_engine_that_cannot_be_reached_sends_the_request_to_another_node_once(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        front = await town.start("front", "edge", "router", "inference", serves=(TINY,))
        worker = await town.start("worker", "inference", serves=(TINY,))
        await town.settle()
        await front.engine.stop()
        assert (await front.chat()).status_code == 200
        assert worker.asked == 1
        assert (await front.record()).node_id == worker.node_id
        await town.idle()
        await front.engine.start()


async def test_an_engine_behind_a_forwarded_request_is_waited_for_and_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "GRACE", 0.3)
    async with many(tmp_path) as town:
        edge = await town.start("edge", "edge", "router")
        other = await town.start("other", "inference", serves=(TINY,))
        worker = await town.start("worker", "router", "inference", serves=(TINY,))
        edge.busy(other)
        await town.settle()
        await worker.engine.stop()
        assert code(await edge.chat()) == (502, "engine_unreachable")
        assert other.asked == 0
        await worker.engine.start()


async def test_f02_timeouts_of_a_model_rule_on_every_hop_and_the_inner_one_speaks_first(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        town.change(TINY, first_byte_timeout=60.0, idle_timeout=60.0)
        # shorter than the model's: what the operator set for the model counts, on every hop
        edge = await town.start("edge", "edge", first_byte_timeout=0.1, idle_timeout=0.1)
        await town.start("router", "router", first_byte_timeout=0.1, idle_timeout=0.1)
        worker = await town.start("worker", "inference", serves=(TINY,), first_byte_timeout=0.1, idle_timeout=0.1)
        await town.settle()
        assert (await edge.chat({"silent": 0.5})).status_code == 200
        town.change(TINY, first_byte_timeout=0.4)
        await town.settle()
        assert code(await edge.chat({"never": True})) == (504, "engine_timeout")
        town.change(TINY, first_byte_timeout=60.0, idle_timeout=0.4)
        await town.settle()
        text = await cut_stream(edge.client, {"tokens": 3, "gap": 30.0})
        assert text.count(b'"error"') == 1
        assert b'"engine_timeout"' in text
        assert worker.asked == 3
        await town.idle()


async def test_f64_a_node_that_is_silent_is_504_one_that_is_not_there_502(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.closed()

    async with many(tmp_path) as town:
        town.change(TINY, first_byte_timeout=0.3)
        edge = await town.start("edge", "edge", "router", queue_wait=0.1)
        first = await town.scripted("first", "inference", handler=silent, serves=(TINY,))
        await town.settle()
        from routing.gateway import hop

        monkeypatch.setattr(hop, "patience", lambda config, mark: 0.1)
        assert code(await edge.chat()) == (504, "upstream_timeout")
        assert first.accepted == 1
        town.cluster.nodes["first"].address = f"http://127.0.0.1:{closed_port()}"
        await town.settle()
        assert code(await edge.chat()) == (502, "upstream_unreachable")
        assert not any(edge.counts())


@pytest.mark.parametrize("script", [{"never": True}, {"silent": 30}, {"tokens": 500, "gap": 0.05}])
@STREAMS
async def test_f27_a_client_that_leaves_is_noticed_by_the_engine_over_two_hops(
    tmp_path: Path, script: dict[str, Any], stream: bool
) -> None:
    if not stream and "gap" in script:
        script = {"silent": 20}
    async with chain(tmp_path) as (town, edge, _, worker):
        task = asyncio.ensure_future(edge.chat(script, stream=stream))
        await until(lambda: worker.asked == 1)
        await asyncio.sleep(0.4)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: worker.engine.last.aborted_at is not None, seconds=5.0)
        await town.idle()
        record = await edge.record()
        assert (record.outcome, record.status, record.code) == ("client_gone", 499, "client_gone")


async def test_f51_every_count_is_zero_after_any_mix_of_ends(tmp_path: Path) -> None:
    scripts: list[Any] = [
        "ok", {"status": 500}, {"reset": True}, {"tokens": 3, "die_after": 1}, {"never": True}, {"cut_after": 1},
    ]  # fmt: skip
    async with chain(tmp_path) as (town, edge, _, worker):
        town.change(TINY, first_byte_timeout=1.0)
        await town.settle()
        work: list[Awaitable[object]] = []
        for number in range(60):
            stream = bool(number // 6 % 2)
            call = edge.chat(scripts[number % 6], stream=stream)
            work.append(_ended(call, leave=0.3 if number % 5 == 0 else None))
        await asyncio.gather(*work)
        await town.idle()
        closed = [record.record_id for record in edge.records()]
        assert 48 <= len(closed) == len(set(closed)) <= 60  # on a slow machine some leave before they were heard
        assert {record.record_id for record in edge.records("open")} <= set(closed)
        assert worker.asked <= 60
        ids = [seen.headers["x-request-id"] for seen in worker.engine.requests]
        assert len(ids) == len(set(ids))  # none ran twice


async def test_f48_one_node_that_accepts_and_never_answers_affects_nobody_else(tmp_path: Path) -> None:
    async def silent(peer: Peer) -> None:
        await peer.closed()

    async with many(tmp_path) as town:
        town.models.append(ModelEntry(name="stuck", created=2))
        edge = await town.start("edge", "edge", "router")
        await town.start("worker", "inference", serves=(TINY,))
        await town.scripted("silent", "inference", handler=silent, serves=("stuck",))
        await town.settle()
        stuck = [asyncio.ensure_future(edge.chat(model="stuck")) for _ in range(50)]
        await until(lambda: edge.gateway.peers.in_flight.get(("node_silent", "stuck")) == 50)
        for _ in range(5):
            assert (await edge.chat()).status_code == 200
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
        await town.idle()


async def test_a_removed_node_is_refused_at_once_also_on_an_open_connection(tmp_path: Path) -> None:
    async with chain(tmp_path) as (town, edge, router, worker):
        assert (await edge.chat()).status_code == 200
        town.cluster.nodes.pop("router")
        kept = town.sites.pop("router")
        town.publish()  # edge and worker know; the router itself does not
        assert code(await edge.chat()) == (503, "no_chat_upstream")
        headers = router.gateway.members.sign(
            router.gateway.members.nodes[worker.node_id], method="GET", path="/api/v1/node/models", body=b""
        )
        names = {name.decode(): value.decode() for name, value in headers}
        answer = await edge.client.get(f"{worker.node.address}/api/v1/node/models", headers=names)
        assert code(answer) == (401, "node_removed")
        assert not any(kept.counts())


async def cut_stream(client: httpx.AsyncClient, script: Any, *, first: Callable[[], object] = int) -> bytes:
    """What came of a stream that has no clean end; `first` is called once something has come."""
    pieces: list[bytes] = []
    with pytest.raises(httpx.RemoteProtocolError):
        await _read(client, script, pieces, first)
    return b"".join(pieces)


async def _read(client: httpx.AsyncClient, script: Any, pieces: list[bytes], first: Callable[[], object]) -> None:
    async with client.stream("POST", "/v1/chat/completions", json=ask(script, stream=True)) as answer:
        assert answer.status_code == 200
        async for piece in answer.aiter_raw():
            if not pieces:
                first()
            pieces.append(piece)


async def _ended(call: Awaitable[httpx.Response], *, leave: float | None) -> None:
    try:
        await asyncio.wait_for(call, leave)
    except (httpx.HTTPError, TimeoutError):
        pass
