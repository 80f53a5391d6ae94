"""The HTTP/1.1 client against byte servers: what is written, and who is asked."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from routing.gateway.upstream import Broken, NotReached, Target, Upstream
from tests.routing.gateway.scripted import Peer, Server, connected, serving
from tests.routing.gateway.upstreams import HEAD, OK, answering, ask, drain


@pytest.mark.parametrize(
    "host", ["a..invalid", "b\u00fccher.invalid", "n" * 70 + ".invalid", "\u00fc" * 70, "a\0b", "."]
)
async def test_what_is_no_host_name_is_not_reached(upstream: Upstream, host: str) -> None:
    with pytest.raises(NotReached):
        await ask(upstream, Target(host, 1))


async def test_the_request_is_written_once_with_host_and_length_and_nothing_else(upstream: Upstream) -> None:
    seen: list[bytes] = []

    async def handle(peer: Peer) -> None:
        seen.append(await peer.request())
        await peer.send(OK)

    async with serving(handle) as server:
        assert await drain(await ask(upstream, server.target, headers=[(b"x-a", b"1")], body=b"hello")) == b"ok"
        port = server.target.port
    expected = f"POST /v1/x HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: 5\r\nx-a: 1\r\n\r\nhello"
    assert seen == [expected.encode()]


async def test_f17_a_connection_cut_after_the_request_was_sent_is_broken_and_never_sent_again(
    upstream: Upstream,
) -> None:
    requests = 0

    async def handle(peer: Peer) -> None:
        nonlocal requests
        await peer.request()
        requests += 1
        if requests == 1:
            await peer.send(OK)
            await peer.request()
            requests += 1
        peer.writer.transport.abort()

    async with serving(handle) as server:
        assert await drain(await ask(upstream, server.target)) == b"ok"
        for sent in (2, 3):  # on a kept connection, on a fresh one
            with pytest.raises(Broken) as broken:
                await ask(upstream, server.target)
            assert broken.value.reached
            assert not broken.value.headers_received
            assert requests == sent


@pytest.mark.parametrize("at", ["before the head", "in the body"])
async def test_f27_cancelling_drops_the_connection_at_once(upstream: Upstream, at: str) -> None:
    reached, gone = asyncio.Event(), asyncio.Event()

    async def handle(peer: Peer) -> None:
        await peer.request()
        if at == "in the body":
            await peer.send(HEAD + b"1\r\na\r\n")
        else:
            reached.set()
        await peer.closed()
        gone.set()

    async def use(server: Server) -> None:
        response = await ask(upstream, server.target)
        assert await response.read() == b"a"
        reached.set()
        await response.read()

    async with serving(handle) as server:
        task = asyncio.ensure_future(use(server))
        await reached.wait()
        task.cancel()
        async with asyncio.timeout(30):
            await gone.wait()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_abort_is_idempotent_and_harmless_after_the_end(upstream: Upstream) -> None:
    async with serving(answering(OK, OK, HEAD + b"1\r\na\r\n")) as server:
        ended = await ask(upstream, server.target)
        assert await drain(ended) == b"ok"
        ended.abort()
        assert await drain(await ask(upstream, server.target)) == b"ok"
        running = await ask(upstream, server.target)
        running.abort()
        running.abort()
        with pytest.raises(Broken):
            await running.read()
        assert server.accepted == 1


@pytest.mark.parametrize("header", [(b"x", b"a\r\nx-llmgw-node: b"), (b"x\n", b"a"), (b"x", b"a\rb")])
async def test_f54_a_line_break_in_a_header_is_refused_and_nothing_is_sent(
    upstream: Upstream, header: tuple[bytes, bytes]
) -> None:
    async with serving(answering(OK)) as server:
        with pytest.raises(ValueError, match="line break"):
            await ask(upstream, server.target, headers=[header])
        assert server.accepted == 0


async def test_after_close_nothing_is_open_and_readers_hear_of_it() -> None:
    client = Upstream(connect_timeout=30)
    async with serving(answering(HEAD + b"1\r\na\r\n", OK)) as server:
        response = await ask(client, server.target)
        await client.close()
        with pytest.raises(Broken):
            await drain(response)
        with pytest.raises(NotReached):
            await ask(client, server.target)
    assert client.connections == 0


async def test_a_server_without_tls_is_not_reached_by_tls(upstream: Upstream) -> None:
    async def handle(peer: Peer) -> None:
        await peer.send(b"220 this is no TLS\r\n")
        await peer.closed()

    async with serving(handle) as server:
        target = Target("127.0.0.1", server.target.port, tls=ssl.create_default_context())
        with pytest.raises(NotReached):
            await ask(upstream, target)


async def test_a_scripted_client_can_be_closed() -> None:
    async with serving(answering(OK)) as server, connected(server.target.port) as client:
        await client.send(b"GET / HTTP/1.1\r\n\r\n")
        assert (await client.response())[2] == b"ok"
