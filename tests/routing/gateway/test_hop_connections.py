"""Connections between nodes: no hidden cap, kept for a while, never used once the other side has let go."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import orjson

from tests.routing.gateway.hops import chain
from tests.routing.gateway.rig import KEY, ask, until
from tests.routing.gateway.scripted import Peer, connected

STREAMS = 500


def _request(script: object) -> bytes:
    body = orjson.dumps(ask(script, stream=True))
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n"
    return head.format(KEY.text, len(body)).encode() + body


async def test_500_streams_at_once_reach_one_engine_over_two_hops(tmp_path: Path) -> None:
    async with chain(tmp_path, slots=STREAMS + 1) as (town, edge, _, worker), AsyncExitStack() as stack:
        port = edge.client.base_url.port
        assert port is not None
        clients: list[Peer] = []
        for _ in range(STREAMS):
            client = await stack.enter_async_context(connected(port))
            await client.send(_request({"never": True}))
            clients.append(client)
        await until(lambda: worker.asked == STREAMS, seconds=60)
        assert (await edge.chat()).status_code == 200  # and there is room for more
        assert sum(seen.aborted_at is None and not seen.done for seen in worker.engine.requests) == STREAMS
        for client in clients:
            client.close()
        await until(lambda: all(s.done or s.aborted_at is not None for s in worker.engine.requests), seconds=60)
        await until(lambda: not any(any(site.counts()) for site in town.sites.values()), seconds=60)


async def test_a_connection_to_a_node_is_used_again_and_given_up_before_the_node_would(tmp_path: Path) -> None:
    async with chain(tmp_path, keepalive_timeout=1.0) as (town, edge, router, _):
        for _ in range(3):
            assert (await edge.chat()).status_code == 200
        assert edge.gateway.upstream.connections == 1
        await until(lambda: edge.gateway.upstream.connections == 0)  # 0.8 of the time that the router keeps it
        for pause in (0.7, 0.85, 1.05):
            assert (await edge.chat()).status_code == 200
            await asyncio.sleep(pause)
        assert not router.records()
        await town.idle()
