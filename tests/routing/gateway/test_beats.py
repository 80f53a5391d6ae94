"""A request that waits at another node is told from a node that is dead: by interim answers, which no client sees."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import orjson
import pytest

from routing.gateway import hop, lifespan
from routing.gateway.upstream import Headers, TooSlow, Upstream
from tests.routing.gateway.hops import Site, chain, many
from tests.routing.gateway.rig import KEY, TINY, ask
from tests.routing.gateway.scripted import Peer, connected, serving, until
from tests.routing.gateway.upstreams import OK, drain
from tests.routing.gateway.upstreams import ask as request

BEAT = b"HTTP/1.1 102 Processing\r\n\r\n"
ANSWER = b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
OLDER = b"HTTP/1.1 200 X\r\nx-llmgw-node: node_router\r\n" + ANSWER
NEWER = b"HTTP/1.1 200 X\r\nx-llmgw-node: node_router\r\nx-llmgw-beats: 1\r\n" + ANSWER
SILENCE = 1.0


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans that a test can wait for."""
    monkeypatch.setattr(lifespan, "BEAT", 0.1)
    monkeypatch.setattr(lifespan, "TICK", 0.05)
    monkeypatch.setattr(hop, "SILENCE", SILENCE)


async def test_interim_answers_are_life_until_the_head_and_silence_is_death(upstream: Upstream) -> None:
    async def late(peer: Peer) -> None:
        await peer.request()
        for _ in range(12):
            await peer.send(BEAT)
            await asyncio.sleep(0.1)
        await peer.send(OK)
        await peer.request()
        await peer.send(BEAT)
        await peer.closed()

    async with serving(late) as server:
        assert await drain(await request(upstream, server.target, first_byte_timeout=60, silence=SILENCE)) == b"ok"
        with pytest.raises(TooSlow) as slow:
            await request(upstream, server.target, first_byte_timeout=60, silence=SILENCE)
    assert (slow.value.stage, slow.value.seconds, slow.value.reached) == ("silent", SILENCE, True)
    assert server.accepted == 1  # the connection is as good as any after an answer that had some


async def test_the_time_to_the_first_byte_rules_however_lively_the_other_side_is(upstream: Upstream) -> None:
    async def never(peer: Peer) -> None:
        await peer.request()
        while True:
            await peer.send(BEAT)
            await asyncio.sleep(0.02)

    async with serving(never) as server:
        with pytest.raises(TooSlow) as slow:
            await request(upstream, server.target, first_byte_timeout=0.3, silence=5.0)
    assert slow.value.stage == "first_byte"


@pytest.mark.parametrize("at_once", [10, 3000])
async def test_interim_answers_of_hours_are_no_head_that_is_too_long(upstream: Upstream, at_once: int) -> None:
    """Nor are those that came while this process stood still, and are read as one."""

    async def long(peer: Peer) -> None:
        await peer.request()
        for _ in range(3000 // at_once):
            await peer.send(b"HTTP/1.1 102 Processing\r\nx-llmgw-queue-s: 0.5\r\n\r\n" * at_once)
        await peer.send(OK)

    heard: list[Headers] = []
    async with serving(long) as server:
        answer = await request(upstream, server.target, silence=5.0, interim=heard.append)
        assert await drain(answer) == b"ok"
    assert heard == [[(b"x-llmgw-queue-s", b"0.5")]] * 3000


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_waits_for_its_turn_outlasts_the_silence_and_its_client_sees_none_of_it(
    tmp_path: Path, stream: bool
) -> None:
    async with chain(tmp_path, slots=1) as (town, edge, router, worker):
        assert (await edge.chat()).status_code == 200
        assert (edge.gateway.peers.beats(router.node_id), router.gateway.peers.beats(worker.node_id)) == (True, True)
        held = asyncio.ensure_future(edge.chat({"never": True}))
        await until(lambda: worker.asked == 2)
        port = edge.client.base_url.port
        assert port is not None
        async with connected(port) as client:
            body = orjson.dumps(ask(stream=stream))
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY.text}\r\n"
            await client.send(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
            await until(lambda: worker.gateway.queues.lines[TINY].waiting == 1)
            await asyncio.sleep(1.5 * SILENCE)  # the silence that is survived is what is tested
            assert worker.gateway.queues.lines[TINY].waiting == 1
            held.cancel()
            answer = await client.read_all()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"102 Processing" not in answer
        assert b"x-llmgw-beats" not in answer
        assert worker.asked == 3
        await town.idle()


@pytest.mark.usefixtures("short")
async def test_an_engine_may_be_silent_for_as_long_as_its_model_has(tmp_path: Path) -> None:
    async with chain(tmp_path) as (_, edge, _, _worker):
        assert (await edge.chat()).status_code == 200
        assert (await edge.chat({"silent": 1.5 * SILENCE})).status_code == 200


@pytest.mark.usefixtures("short")
async def test_a_mute_node_that_is_known_to_tell_is_given_up_long_before_a_turn_could_have_come(tmp_path: Path) -> None:
    async def mute(peer: Peer) -> None:
        await peer.request()
        await peer.closed()

    async with many(tmp_path) as town:
        edge = await town.start("edge", "edge")
        server = await town.scripted("router", "router", handler=mute)
        await town.settle()
        edge.gateway.peers.note_beats("node_router", True)
        began = time.monotonic()
        answer = await edge.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")
        assert f"has said nothing for {SILENCE:g} s" in answer.json()["error"]["message"]
        assert SILENCE <= time.monotonic() - began < 60  # a first byte's time and a turn's would be 720 s
        assert server.accepted == 1
        assert "node_router" in edge.gateway.peers.suspects
        assert (await edge.record()).code == "upstream_timeout"
        await town.idle()


@pytest.mark.usefixtures("short")
async def test_a_node_of_an_older_version_may_be_silent_as_ever(tmp_path: Path) -> None:
    answers = iter((NEWER, OLDER, OLDER))

    async def older(peer: Peer) -> None:
        for number in range(3):
            await peer.request()
            await asyncio.sleep(1.5 * SILENCE if number == 2 else 0)
            await peer.send(next(answers))

    async with many(tmp_path) as town:
        edge = await town.start("edge", "edge")
        await town.scripted("router", "router", handler=older)
        await town.settle()
        known = []
        for _ in range(3):
            assert (await edge.chat()).text == "{}"
            known.append(edge.gateway.peers.beats("node_router"))
        assert known == [True, False, False]  # it was put back to the version before


@pytest.mark.usefixtures("short")
async def test_a_router_is_at_hand_itself_however_silent_an_older_node_behind_it_is(tmp_path: Path) -> None:
    async def older(peer: Peer) -> None:
        await peer.request()
        await asyncio.sleep(1.5 * SILENCE)
        await peer.send(OLDER.replace(b"node_router", b"node_worker"))

    async with many(tmp_path) as town:
        edge = await town.start("edge", "edge")
        router = await town.start("router", "router")
        await town.scripted("worker", "inference", handler=older, serves=(TINY,))
        await town.settle()
        edge.gateway.peers.note_beats(router.node_id, True)
        assert (await edge.chat()).text == "{}"
        record = await edge.record()
        assert (record.node_id, record.status) == ("node_worker", 200)


async def test_who_asks_a_node_what_it_serves_hears_that_it_tells(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        town.polls = True
        router: Site = await town.start("router", "router")
        worker = await town.start("worker", "inference", serves=(TINY,))
        await town.settle()
        await until(lambda: router.gateway.peers.beats(worker.node_id))
    assert hop.SILENCE >= 4 * hop.BEAT


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_an_engine_behind_two_hops_is_known_to_have_had_its_prompt_read(
    tmp_path: Path, stream: bool
) -> None:
    async with chain(tmp_path) as (town, edge, _, worker):
        asking = asyncio.ensure_future(edge.chat({"never": True}, stream=stream))
        await until(lambda: any(exchange.working for exchange in edge.gateway.app.active))
        asking.cancel()
        record = await edge.record()
        assert (record.outcome, record.prompt_tokens, record.completion_tokens) == ("client_gone", 2, None)
        assert record.estimated
        assert (record.node_id, record.replica_id) == (worker.node_id, "rep_worker_tiny")
        await town.idle()


@pytest.mark.usefixtures("short")
async def test_a_client_that_leaves_a_queue_behind_two_hops_has_had_nothing_read(tmp_path: Path) -> None:
    async with chain(tmp_path, slots=1) as (town, edge, router, worker):
        first = asyncio.ensure_future(edge.chat({"never": True}))
        await until(lambda: worker.asked)
        second = asyncio.ensure_future(edge.chat("a b c"))
        await until(lambda: worker.gateway.queues.lines[TINY].waiting)
        beats = [exchange.beat_at for exchange in router.gateway.app.active]
        await until(lambda: sum(item.beat_at not in beats for item in router.gateway.app.active) == 2)
        second.cancel()
        waited = await edge.record()
        assert (waited.outcome, waited.prompt_tokens, waited.estimated) == ("client_gone", None, False)
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        await town.idle()
