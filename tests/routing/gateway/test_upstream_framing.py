"""The HTTP/1.1 client: where an answer ends, and what is no answer."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.gateway.upstream import Broken, Upstream
from tests.routing.gateway.scripted import Peer, serving, until
from tests.routing.gateway.upstreams import HEAD, OK, answering, ask, drain


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (HEAD + b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\ntrailer: t\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 10\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK, b"ok"),
    ],
)
async def test_every_framing_of_an_answer_is_read_to_its_end(upstream: Upstream, answer: bytes, body: bytes) -> None:
    async with serving(answering(answer)) as server:
        assert await drain(await ask(upstream, server.target)) == body


async def test_the_answer_to_head_has_no_body_though_it_names_a_length(upstream: Upstream) -> None:
    async with serving(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n")) as server:
        response = await ask(upstream, server.target, method=b"HEAD", body=b"")
        assert await response.read() == b""
        assert (b"content-length", b"10") in response.headers


async def test_header_names_are_lower_case_and_repeated_ones_are_kept(upstream: Upstream) -> None:
    answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(answer)) as server:
        response = await ask(upstream, server.target)
        assert response.headers == [(b"set-cookie", b"a"), (b"set-cookie", b"b"), (b"content-length", b"0")]


@pytest.mark.parametrize("step", [1, 2, 3, 7])
async def test_an_answer_that_trickles_in_is_the_same_answer(upstream: Upstream, step: int) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Long-Name: v\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"

    async def handle(peer: Peer) -> None:
        await peer.request()
        for at in range(0, len(answer), step):
            await peer.send(answer[at : at + step])
            await asyncio.sleep(0)

    async with serving(handle) as server:
        response = await ask(upstream, server.target)
        assert await drain(response) == b"hello!"
        assert (b"x-long-name", b"v") in response.headers


@given(pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=8), cuts=st.sets(st.integers(1, 400), max_size=12))
@settings(max_examples=60, deadline=None)
def test_a_chunked_body_is_the_same_however_the_socket_cuts_it(pieces: list[bytes], cuts: set[int]) -> None:
    wire = HEAD + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    edges = [0, *sorted(cut for cut in cuts if cut < len(wire)), len(wire)]

    async def run() -> None:
        async def handle(peer: Peer) -> None:
            await peer.request()
            for start, end in pairwise(edges):
                await peer.send(wire[start:end])
                await asyncio.sleep(0)
            await peer.closed()

        client = Upstream(connect_timeout=30)
        async with serving(handle) as server:
            assert await drain(await ask(client, server.target)) == b"".join(pieces)
        await client.close()

    uvloop.run(run())


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", HEAD + b"3\r\nabc\r\n", HEAD + b"3\r\nabc\r\n0\r\n"]
)
async def test_a_body_that_is_cut_gives_what_came_and_then_the_error(upstream: Upstream, answer: bytes) -> None:
    async with serving(answering(answer)) as server:
        response = await ask(upstream, server.target)
        assert await response.read() == b"abc"
        with pytest.raises(Broken) as broken:
            await drain(response)
        assert broken.value.headers_received


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nx: " + b"v" * 100_000 + b"\r\n\r\n",
        b"".join(b"HTTP/1.1 103 Early\r\nlink: %d\r\n\r\n" % n for n in range(4000)),
    ],
)
async def test_an_answer_that_is_no_http_or_has_no_bound_is_broken(upstream: Upstream, answer: bytes) -> None:
    async with serving(answering(answer)) as server:
        with pytest.raises(Broken):
            await ask(upstream, server.target)
        await until(lambda: upstream.connections == 0)


async def test_trailers_are_bounded(upstream: Upstream) -> None:
    answer = HEAD + b"1\r\na\r\n0\r\n" + b"".join(b"t%d: %b\r\n" % (n, b"v" * 100) for n in range(2000)) + b"\r\n"
    async with serving(answering(answer)) as server:
        response = await ask(upstream, server.target)
        with pytest.raises(Broken):
            await drain(response)
