"""What belongs to which request on a connection of the listeners: bodies, trailers, offers of other protocols, clients that leave."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.routing.gateway.listening import configured, listening
from tests.routing.gateway.scripted import connected, until
from tests.routing.gateway.test_protocol import GET, App, code


@pytest.mark.parametrize("behind", [b"", GET, GET * 2, b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nab"])
async def test_a_client_that_leaves_is_noticed_whatever_it_sent_behind_its_request(
    tmp_path: Path, behind: bytes
) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    async with listening(app, configured(tmp_path)) as port:
        async with connected(port) as client:
            await client.send(GET + behind)
            await asyncio.wait_for(asked.wait(), 30)
        await asyncio.wait_for(gone.wait(), 30)


OFFER = b"POST / HTTP/1.1\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
BY_LENGTH = b"content-length: %d\r\n\r\n%b"
IN_CHUNKS = b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"


@pytest.mark.parametrize("framed", [BY_LENGTH, IN_CHUNKS], ids=["length", "chunks"])
@pytest.mark.parametrize("apart", [False, True])
async def test_the_body_of_a_request_that_offers_another_protocol_is_its_body(
    tmp_path: Path, framed: bytes, apart: bool
) -> None:
    """And no request of its own: a proxy before us takes it for a body, and would give the answer to somebody else."""
    app, body = App(), GET * 3
    request = OFFER + framed % (len(body), body)
    head = request.index(b"\r\n\r\n") + 4
    async with listening(app, configured(tmp_path)) as port, connected(port) as client:
        if apart:
            await client.send(request[:head])
            await until(lambda: app.asked == 1)
            await client.send(request[head:] + request[: head - 3])
            await client.send(request[head - 3 :] + GET)
        else:
            await client.send(request * 2 + GET)
        bodies = [(await client.response())[2] for _ in range(3)]
        assert bodies == [b"%d" % len(body), b"%d" % len(body), b"0"]
    assert app.asked == 3


async def test_a_request_to_connect_through_us_is_refused_whatever_it_offers(tmp_path: Path) -> None:
    async with listening(App(), configured(tmp_path)) as port, connected(port) as client:
        await client.send(b"CONNECT x:1 HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
        assert code(await client.response()) == (400, "invalid_http")


WEBSOCKET = (
    b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)


async def test_a_websocket_is_opened_on_a_connection_that_was_used_before(tmp_path: Path) -> None:
    app = App()

    async def either(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await app(scope, receive, send)
            return
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close"})

    async with listening(either, configured(tmp_path)) as port, connected(port) as client:
        await client.send(GET)
        assert (await client.response())[0] == 200
        await client.send(WEBSOCKET)
        assert b" 101 " in await client.reader.readline()


async def test_no_websocket_is_opened_before_an_answer_is_over(tmp_path: Path) -> None:
    app = App()
    app.go.clear()
    async with listening(app, configured(tmp_path)) as port, connected(port) as client:
        await client.send(GET + WEBSOCKET)
        await until(lambda: app.asked == 1)
        app.go.set()
        assert (await client.response())[2] == b"0"
        assert await client.reader.read() == b""
    assert app.asked == 1


CHUNKED = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"


async def test_trailers_are_no_headers(tmp_path: Path) -> None:
    app = App()
    seen: list[list[tuple[bytes, bytes]]] = []

    async def look(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        seen.append(scope["headers"])

    async with listening(look, configured(tmp_path)) as port, connected(port) as client:
        await client.send(CHUNKED + b"0\r\nauthorization: Bearer x\r\n")
        await until(lambda: app.asked == 1)
        await client.send(b"x-more: y\r\n\r\n")
        assert (await client.response())[2] == b"3"
        await client.send(GET)
        assert (await client.response())[2] == b"0"
    assert seen == [[(b"transfer-encoding", b"chunked")], [(b"host", b"x")]]


@pytest.mark.parametrize(
    ("begin", "more"),
    [(b"0\r\n", b"x: yyyyyyyy\r\n" * 80), (b"0\r\nx: ", b"y" * 1000), (b"1;x=", b"y" * 1000)],
    ids=["trailers", "one trailer", "chunk extension"],
)
async def test_what_comes_beside_a_body_is_bounded(tmp_path: Path, begin: bytes, more: bytes) -> None:
    app = App()
    async with listening(app, configured(tmp_path, MAX_HEADER_BYTES=4096)) as port, connected(port) as client:
        await client.send(CHUNKED + begin)
        await until(lambda: app.asked == 1)
        for _ in range(6):
            await client.send(more)
            await asyncio.sleep(0.002)
        assert code(await client.response()) == (431, "headers_too_large")
    await until(lambda: app.gone == 1)


async def test_a_body_in_many_small_chunks_is_read_whatever_they_come_to(tmp_path: Path) -> None:
    async with listening(App(), configured(tmp_path, MAX_HEADER_BYTES=1024)) as port, connected(port) as client:
        await client.send(CHUNKED)
        for _ in range(20):
            await client.send(b"1;x=y\r\na\r\n" * 100)
        await client.send(b"0\r\n\r\n")
        assert (await client.response())[2] == b"2003"
