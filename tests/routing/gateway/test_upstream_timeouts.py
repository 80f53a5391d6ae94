"""The HTTP/1.1 client: what is too slow, and what is only long."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from routing.gateway.upstream import NotReached, Target, TooSlow, Upstream
from tests.routing.gateway.hops import closed_port
from tests.routing.gateway.scripted import Peer, serving, until
from tests.routing.gateway.upstreams import HEAD, OK, answering, ask, drain


async def test_f64_unreachable_is_told_from_slow() -> None:
    client = Upstream(connect_timeout=30)
    with pytest.raises(NotReached) as unreachable:
        await ask(client, Target("127.0.0.1", closed_port()))
    assert not unreachable.value.reached

    async def silent(peer: Peer) -> None:
        await peer.closed()

    async with serving(silent) as server:
        with pytest.raises(TooSlow) as slow:
            await ask(client, server.target, first_byte_timeout=0.1)
    assert slow.value.stage == "first_byte"
    assert slow.value.reached
    await client.close()


async def test_f64_a_connect_that_is_never_answered_counts_as_not_reached() -> None:
    client = Upstream(connect_timeout=0.1)
    # A full accept queue: the kernel answers no further SYN, as a host behind a dropping firewall would.
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = []
    for _ in range(3):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
        fillers.append(filler)
    with pytest.raises(TooSlow) as slow:
        await ask(client, Target("127.0.0.1", listener.getsockname()[1]))
    assert slow.value.stage == "connect"
    assert not slow.value.reached
    for handle in (*fillers, listener):
        handle.close()
    await client.close()


async def test_f29_a_silent_stream_ends_at_the_time_that_was_set(upstream: Upstream) -> None:
    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD + b"1\r\na\r\n")
        await peer.closed()

    async with serving(handle) as server:
        response = await ask(upstream, server.target, first_byte_timeout=60, idle_timeout=0.2)
        assert await response.read() == b"a"
        started = asyncio.get_running_loop().time()
        with pytest.raises(TooSlow) as slow:
            await response.read()
        assert slow.value.stage == "idle"
        assert 0.15 < asyncio.get_running_loop().time() - started < 30  # and no 60


async def test_f02_a_head_that_comes_early_does_not_shorten_the_time_to_the_first_byte(upstream: Upstream) -> None:
    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD)
        await asyncio.sleep(0.3)
        await peer.send(b"1\r\na\r\n0\r\n\r\n")

    async with serving(handle) as server:
        assert await drain(await ask(upstream, server.target, first_byte_timeout=20, idle_timeout=0.1)) == b"a"


async def test_f28_comments_count_as_life(upstream: Upstream) -> None:
    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD)
        for _ in range(15):
            await peer.send(b"3\r\n:\n\n\r\n")
            await asyncio.sleep(0.06)
        await peer.send(b"0\r\n\r\n")

    async with serving(handle) as server:
        response = await ask(upstream, server.target, first_byte_timeout=0.6, idle_timeout=0.6)
        assert await drain(response) == b":\n\n" * 15


async def test_f48_one_server_that_never_answers_leaves_others_alone(upstream: Upstream) -> None:
    async def silent(peer: Peer) -> None:
        await peer.closed()

    async with serving(silent) as hung, serving(answering(*[OK] * 100)) as good:
        waiting = [asyncio.ensure_future(ask(upstream, hung.target)) for _ in range(50)]
        await until(lambda: hung.accepted == 50)
        for _ in range(100):
            assert await drain(await ask(upstream, good.target)) == b"ok"
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize("begun", [False, True])
async def test_a_pause_of_the_machine_is_no_silence_of_the_other_side(upstream: Upstream, begun: bool) -> None:
    pauses = 0

    async def pause(seconds: float) -> None:
        """Of both sides; so long after it begins, one of them has something to do."""
        nonlocal pauses
        pauses += 1
        asyncio.get_running_loop().call_later(0.05, time.sleep, 0.6)
        await asyncio.sleep(seconds)

    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD + (b"1\r\na\r\n" if begun else b""))
        await pause(0.1)
        await peer.send((b"" if begun else b"1\r\na\r\n") + b"0\r\n\r\n")
        await peer.request()
        await pause(30.0)

    async with serving(handle) as server:
        patience = {"first_byte_timeout": 0.3, "idle_timeout": 0.3}
        assert await drain(await ask(upstream, server.target, **patience)) == b"a"
        await asyncio.sleep(0.1)  # a connection rests after what had no length
        with pytest.raises(TooSlow):
            await ask(upstream, server.target, **patience)
    assert (server.accepted, pauses) == (1, 2)


async def test_each_pause_of_the_machine_is_spared_while_the_other_side_is_at_it(upstream: Upstream) -> None:
    told = 0

    def learn(headers: object) -> None:
        nonlocal told
        told += 1

    async def handle(peer: Peer) -> None:
        await peer.request()
        for _ in range(3):
            asyncio.get_running_loop().call_later(0.05, time.sleep, 0.6)
            await asyncio.sleep(0.1)
            await peer.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        await peer.send(OK)
        await peer.closed()

    async with serving(handle) as server:
        response = await ask(upstream, server.target, first_byte_timeout=30.0, silence=0.3, interim=learn)
        assert (await drain(response), told) == (b"ok", 3)
