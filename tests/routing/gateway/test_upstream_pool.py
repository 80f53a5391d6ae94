"""The HTTP/1.1 client: which connections are used again, and which never."""

from __future__ import annotations

import asyncio
import socket

import pytest

from routing.gateway.connection import Connection
from routing.gateway.upstream import Limits, Response, Target, Upstream, _Pool
from tests.routing.gateway.scripted import Peer, serving, until
from tests.routing.gateway.upstreams import HEAD, OK, answering, ask, drain


async def test_a_connection_is_used_again_after_the_clean_end(upstream: Upstream) -> None:
    async with serving(answering(OK, HEAD + b"1\r\na\r\n0\r\n\r\n", OK)) as server:
        for body in (b"ok", b"a"):
            assert await drain(await ask(upstream, server.target)) == body
        await asyncio.sleep(Limits().rest + 0.01)
        assert await drain(await ask(upstream, server.target)) == b"ok"
        assert server.accepted == 1


async def test_after_a_stream_a_connection_rests_since_llama_cpp_closes_it_without_a_word(upstream: Upstream) -> None:
    async def stream_then_close(peer: Peer) -> None:
        assert await peer.request()
        await peer.send(HEAD + b"1\r\na\r\n0\r\n\r\n")
        await asyncio.sleep(0.005)  # the next request would be on its way already

    async with serving(stream_then_close) as server:
        for number in range(1, 4):
            assert await drain(await ask(upstream, server.target)) == b"a"
            assert server.accepted == number


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong",
        OK + b"garbage",
    ],
)
async def test_what_follows_an_answer_is_never_taken_for_the_next(upstream: Upstream, answer: bytes) -> None:
    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer)
        await peer.closed()

    async with serving(handle) as server:
        for _ in range(2):
            assert await drain(await ask(upstream, server.target)) == b"ok"
        assert server.accepted == 2


async def test_a_server_that_speaks_on_an_idle_connection_loses_it(upstream: Upstream) -> None:
    idle = asyncio.Event()

    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await idle.wait()
        await peer.send(OK)
        await peer.closed()

    async with serving(handle) as server:
        assert await drain(await ask(upstream, server.target)) == b"ok"
        idle.set()
        await until(lambda: upstream.connections == 0)


async def test_a_kept_connection_that_was_closed_meanwhile_is_replaced_before_a_byte_is_written(
    upstream: Upstream,
) -> None:
    """The close is in the kernel, the event loop has not seen it: the request goes to a fresh connection at once."""
    listener = socket.create_server(("127.0.0.1", 0))
    target = Target("127.0.0.1", listener.getsockname()[1])
    requests = []

    def answer_one() -> None:
        peer, _ = listener.accept()
        requests.append(peer.recv(65536))
        peer.sendall(OK)
        peer.close()

    for _ in range(3):
        asking = asyncio.ensure_future(ask(upstream, target))
        answer = asyncio.get_running_loop().run_in_executor(None, answer_one)
        assert await drain(await asking) == b"ok"
        # From here the loop is not entered before the next request takes the connection.
        assert answer.done() or not await answer
    listener.close()
    assert len(requests) == 3


async def test_idle_connections_are_let_go_before_the_other_side_does() -> None:
    client = Upstream(connect_timeout=30, limits=Limits(idle_connection=0.3))
    async with serving(answering(OK, OK)) as server:
        assert await drain(await ask(client, server.target)) == b"ok"
        assert client.connections == 1
        await until(lambda: client.connections == 0, seconds=10)
    assert Limits().idle_connection <= 4.0
    await client.close()


async def test_a_request_that_is_given_up_as_its_connection_comes_to_be_leaves_none_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Upstream(connect_timeout=30)
    task: asyncio.Task[Response] | None = None
    opened = _Pool.opened

    def at_that_moment(pool: _Pool, connection: Connection) -> None:
        opened(pool, connection)
        assert task is not None
        task.cancel()

    monkeypatch.setattr(_Pool, "opened", at_that_moment)
    async with serving(answering(OK)) as server:
        task = asyncio.ensure_future(ask(client, server.target))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.connections == 0
        async with asyncio.timeout(30):
            await client.close()
