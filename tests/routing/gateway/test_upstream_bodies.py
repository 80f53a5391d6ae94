"""The HTTP/1.1 client: bodies that are streamed to the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from routing.gateway.upstream import Upstream
from tests.routing.gateway.scripted import Peer, serving, until
from tests.routing.gateway.upstreams import OK, ask, drain


async def test_a_streamed_body_is_sent_with_its_length_or_in_chunks(upstream: Upstream) -> None:
    seen: list[bytes] = []

    async def handle(peer: Peer) -> None:
        data = b""
        while not data.endswith((b"END", b"0\r\n\r\n")):
            data += await peer.reader.read(65536)
        seen.append(data.partition(b"\r\n\r\n")[0].rpartition(b"\r\n")[2] + b"|" + data.partition(b"\r\n\r\n")[2])
        await peer.send(OK)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"abc"
        yield b""
        yield b"END"

    async with serving(handle) as server:
        assert await drain(await ask(upstream, server.target, body=pieces(), length=6)) == b"ok"
        assert await drain(await ask(upstream, server.target, body=pieces())) == b"ok"
    assert seen == [b"content-length: 6|abcEND", b"transfer-encoding: chunked|3\r\nabc\r\n3\r\nEND\r\n0\r\n\r\n"]


async def test_an_early_answer_stops_the_sending_and_the_connection_is_not_used_again(upstream: Upstream) -> None:
    stopped = asyncio.Event()

    async def handle(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await peer.closed()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 1000
                await asyncio.sleep(0.01)
        finally:
            stopped.set()

    body = endless()
    async with serving(handle) as server:
        response = await ask(upstream, server.target, body=body)
        assert response.status == 413
        assert await drain(response) == b"no"
        await body.aclose()
        assert stopped.is_set()
        await until(lambda: upstream.connections == 0)


async def test_an_error_of_the_body_comes_through_and_drops_the_connection(upstream: Upstream) -> None:
    async def handle(peer: Peer) -> None:
        await peer.closed()

    async def failing() -> AsyncIterator[bytes]:
        yield b"abc"
        raise KeyError("client gone")

    async with serving(handle) as server:
        with pytest.raises(KeyError):
            await ask(upstream, server.target, body=failing())
        await until(lambda: upstream.connections == 0)


async def test_a_slow_server_slows_the_sending_of_a_streamed_body(upstream: Upstream) -> None:
    produced = 0
    go = asyncio.Event()

    async def handle(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await go.wait()
        await peer.reader.readexactly(64 * 1024 * 1024)
        await peer.send(OK)

    async def big() -> AsyncIterator[bytes]:
        nonlocal produced
        for _ in range(1024):
            produced += 65536
            yield b"x" * 65536

    async with serving(handle) as server:
        asking = asyncio.ensure_future(ask(upstream, server.target, body=big(), length=64 * 1024 * 1024))
        await asyncio.sleep(0.3)
        assert produced < 16 * 1024 * 1024  # what the kernel's buffers take
        go.set()
        assert await drain(await asking) == b"ok"
