"""The HTTP/1.1 client: how an answer is read: wake-ups, sinks, back-pressure."""

from __future__ import annotations

import asyncio
import resource
import tracemalloc

import pytest

from routing.gateway.upstream import Broken, Upstream
from tests.routing.gateway.scripted import Peer, serving, until
from tests.routing.gateway.upstreams import HEAD, answering, ask


async def test_a_slow_reader_slows_a_fast_server_and_memory_stays_bounded(upstream: Upstream) -> None:
    """200 MB from the server, a reader that falls behind: no more than the bound and the kernel's buffers wait."""
    total = 200 * 1024 * 1024
    sent = 0

    async def handle(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        piece = b"x" * (256 * 1024)
        while sent < total:
            await peer.send(piece)
            sent += len(piece)

    async with serving(handle) as server:
        response = await ask(upstream, server.target, idle_timeout=1)
        await asyncio.sleep(1.5)  # longer than the idle time: it is us who are slow, so it lives
        assert sent < 32 * 1024 * 1024
        tracemalloc.start()
        read = 0
        while piece := await response.read():
            assert len(piece) <= 1024 * 1024
            read += len(piece)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert read == total
    assert peak < 8 * 1024 * 1024
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 * 1024 * 1024


async def test_one_read_of_the_socket_wakes_the_reader_once(upstream: Upstream) -> None:
    """Several chunks in one read are one piece: fewer writes to the client, and no task or timer for each."""
    async with serving(answering(HEAD + b"1\r\na\r\n" * 100 + b"0\r\n\r\n")) as server:
        response = await ask(upstream, server.target)
        tasks = len(asyncio.all_tasks())
        assert await response.read() == b"a" * 100
        assert len(asyncio.all_tasks()) <= tasks
        assert await response.read() == b""


async def test_a_sink_is_given_every_piece_without_a_task_and_drains_where_it_is_full(upstream: Upstream) -> None:
    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD)
        for number in range(20):
            await peer.send(b"2\r\n%02d\r\n" % number)
            await asyncio.sleep(0.002)
        await peer.send(b"0\r\n\r\n")

    got: list[bytes] = []
    drained = 0

    def sink(piece: bytes) -> bool:
        got.append(piece)
        return len(got) % 5 > 0

    async def drain() -> None:
        nonlocal drained
        drained += 1
        await asyncio.sleep(0.02)

    async with serving(handle) as server:
        response = await ask(upstream, server.target)
        await response.pump(sink, drain)
        assert b"".join(got) == b"".join(b"%02d" % number for number in range(20))
        assert drained == len(got) // 5
        assert await response.read() == b""


async def test_what_a_sink_raises_comes_out_and_a_cut_body_is_broken_after_its_pieces(upstream: Upstream) -> None:
    got: list[bytes] = []
    served = 0

    def sink(piece: bytes) -> bool:
        got.append(piece)
        if piece == b"bad":
            raise KeyError("bad piece")
        return True

    async def drain() -> None:
        raise AssertionError("never full")

    async def handle(peer: Peer) -> None:
        nonlocal served
        before, served = served, served + 2
        await peer.request()
        await peer.send(HEAD + b"1\r\na\r\n")
        await until(lambda: len(got) == before + 1)  # so that they come apart
        await peer.send(b"3\r\nbad\r\n")
        await until(lambda: len(got) == before + 2)

    async with serving(handle) as server:
        response = await ask(upstream, server.target)
        with pytest.raises(KeyError):
            await response.pump(sink, drain)
        response.abort()
        cut = await ask(upstream, server.target)
        with pytest.raises(Broken):
            await cut.pump(lambda piece: bool(got.append(piece)) or True, drain)
    assert got == [b"a", b"bad", b"a", b"bad"]


async def test_a_sink_that_is_full_slows_a_fast_server(upstream: Upstream) -> None:
    sent = 0

    async def handle(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n")
        while sent < 104857600:
            await peer.send(b"x" * 262144)
            sent += 262144

    go = asyncio.Event()
    read = 0

    def sink(piece: bytes) -> bool:
        nonlocal read
        read += len(piece)
        return False

    async with serving(handle) as server:
        pumping = asyncio.ensure_future((await ask(upstream, server.target)).pump(sink, go.wait))  # type: ignore[arg-type]
        await asyncio.sleep(0.3)
        assert sent < 32 * 1024 * 1024
        go.set()
        await pumping
    assert read == 104857600
