"""Requests and websockets that go to `web` over its unix socket: a real uvicorn there, a real listener here."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from llmgw_site.lib.config import Config
from routing.gateway import web_proxy
from routing.gateway.upstream import Upstream
from routing.gateway.web_proxy import CLIENT, NODE, WebProxy
from tests.routing.gateway.listening import configured, listening
from tests.routing.gateway.scripted import connected, until


class _Quiet(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@asynccontextmanager
async def web(config: Config, app: Any) -> AsyncIterator[None]:
    """`app` on the unix socket where `web` is."""
    config.run.mkdir(exist_ok=True)
    server = _Quiet(
        uvicorn.Config(
            app, uds=str(config.web_socket), loop="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1
        )
    )
    task = asyncio.ensure_future(server.serve())
    await until(lambda: server.started)
    try:
        yield
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def proxied(config: Config, listener: str = CLIENT) -> AsyncIterator[int]:
    """The port of a listener that hands everything to `web`."""
    upstream = Upstream(connect_timeout=30)
    async with listening(WebProxy(config, upstream, listener=listener), config) as port:
        yield port
    await upstream.close()


class Echo:
    """Tells what `web` was sent, keeps what it saw."""

    def __init__(self) -> None:
        self.scopes: list[Any] = []
        self.gone = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["type"] == "websocket":
            await self.talk(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = [(b"content-type", b"text/plain"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
        if scope["path"] == "/empty":
            await send({"type": "http.response.start", "status": 304, "headers": [(b"content-length", b"7")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        if scope["path"] == "/slow":
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass
            self.gone.set()
            return
        await send({"type": "http.response.body", "body": b"<" + body + b">"})

    async def talk(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if scope["path"] == "/ws/closed":
            await send({"type": "websocket.close", "code": 4001})
            return
        await send({"type": "websocket.accept", "subprotocol": "two" if "two" in scope["subprotocols"] else None})
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                self.gone.set()
                return
            if message.get("text") == "end":
                await send({"type": "websocket.close", "code": 4002, "reason": "asked for"})
                self.gone.set()
                return
            await send({**message, "type": "websocket.send"})

    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.scopes[-1]["headers"]}


async def test_a_request_goes_to_web_and_its_answer_comes_back(tmp_path: Path) -> None:
    config, app = configured(tmp_path), Echo()
    async with web(config, app), proxied(config) as port, connected(port) as client:
        await client.send(b"POST /admin/x%20y/?q=1&r=%2F HTTP/1.1\r\nhost: a.example\r\ncontent-length: 3\r\n\r\nabc")
        head = (await client.reader.readuntil(b"\r\n\r\n")).lower()
        assert await client.reader.readexactly(15) == b"5\r\n<abc>\r\n0\r\n\r\n"
        scope = app.scopes[-1]
        assert (scope["raw_path"], scope["query_string"]) == (b"/admin/x%20y/", b"q=1&r=%2F")
        assert head.startswith(b"http/1.1 201 ")
        assert head.count(b"set-cookie:") == 2
        assert head.count(b"\r\ndate:") == 1
        assert b"server:" not in head


async def test_f54_web_sees_the_original_host_and_only_our_forwarding_headers(tmp_path: Path) -> None:
    config, app = configured(tmp_path), Echo()
    sent = [
        b"host: console.example:8800",
        b"x-forwarded-for: 6.6.6.6",
        b"x-forwarded-proto: https",
        b"x-forwarded-host: evil.example",
        b"x-forwarded-prefix: /evil",
        b"forwarded: for=6.6.6.6",
        b"x-llmgw-listener: node",
        b"x-llmgw-node: node_1",
        b"x_llmgw_listener: node",
        b"x-llmgw_listener: node",
        b"connection: keep-alive, x-mine",
        b"x-mine: 1",
        b"te: trailers",
        b"cookie: s=1",
        b"origin: http://console.example:8800",
    ]
    async with web(config, app), proxied(config) as port, connected(port) as client:
        await client.send(b"GET / HTTP/1.1\r\n" + b"".join(line + b"\r\n" for line in sent) + b"\r\n")
        assert (await client.response())[0] == 201
    assert app.headers() == {
        "host": "console.example:8800",
        "cookie": "s=1",
        "origin": "http://console.example:8800",
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-proto": "http",
        "x-forwarded-host": "console.example:8800",
        "x-llmgw-listener": "client",
    }


async def test_the_operators_tls_proxy_is_believed_for_the_public_address_only(tmp_path: Path) -> None:
    config, app = configured(tmp_path, PUBLIC_URL="https://llm.example"), Echo()
    async with web(config, app), proxied(config) as port, connected(port) as client:
        for host, scheme in ((b"llm.example", "https"), (b"other.example", "http")):
            await client.send(b"GET / HTTP/1.1\r\nhost: %b\r\n\r\n" % host)
            await client.response()
            assert app.headers()["x-forwarded-proto"] == scheme


@pytest.mark.parametrize(("listener", "told"), [(CLIENT, "203.0.113.1"), (NODE, "127.0.0.1")])
async def test_whom_a_trusted_proxy_heard_is_who_asks(tmp_path: Path, listener: str, told: str) -> None:
    """Tries to sign in are counted by address: behind the operator's proxy everybody would have the proxy's."""
    config, app = configured(tmp_path, TRUSTED_PROXIES="127.0.0.1"), Echo()
    async with web(config, app), proxied(config, listener) as port, connected(port) as client:
        await client.send(b"GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 6.6.6.6, 203.0.113.1\r\n\r\n")
        await client.response()
        assert app.headers()["x-forwarded-for"] == told


async def test_on_the_node_listener_the_signature_passes_and_the_listener_is_named(tmp_path: Path) -> None:
    config, app = configured(tmp_path), Echo()
    async with web(config, app), proxied(config, NODE) as port, connected(port) as client:
        await client.send(
            b"GET /api/v1/agent/x HTTP/1.1\r\nhost: n\r\nx-llmgw-node: a\r\nx-llmgw-listener: client\r\n\r\n"
        )
        await client.response()
        assert app.headers()["x-llmgw-node"] == "a"
        assert app.headers()["x-llmgw-listener"] == "node"
        assert app.headers()["host"] == "web"  # whatever the node calls this machine, the console's names are others


@pytest.mark.parametrize("path", ["/api/v1/agent/heartbeat", "/api/v1/agent", "/api/v1/%61gent/heartbeat"])
async def test_agent_paths_are_not_there_on_the_client_listener(tmp_path: Path, path: str) -> None:
    config, app = configured(tmp_path), Echo()
    async with web(config, app), proxied(config) as port, connected(port) as client:
        await client.send(b"GET %b HTTP/1.1\r\nhost: n\r\n\r\n" % path.encode())
        status, _, body = await client.response()
        assert (status, json.loads(body)["error"]["code"]) == (404, "not_found")
        assert not app.scopes


async def test_a_large_body_streams_through_and_a_body_without_length_gets_one(tmp_path: Path) -> None:
    config, app = configured(tmp_path), Echo()
    async with web(config, app), proxied(config) as port, connected(port) as client:
        big = b"x" * 3_000_000
        await client.send(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % len(big))
        await client.send(big)
        assert (await client.response())[2] == b"<" + big + b">"
        await client.send(b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await asyncio.sleep(0.05)
        await client.send(b"2\r\nde\r\n0\r\n\r\n")
        assert (await client.response())[2] == b"<abcde>"
        assert app.headers()["content-length"] == "5"


async def test_a_body_over_the_bound_is_refused_whether_it_names_its_length_or_not(tmp_path: Path) -> None:
    config, app = configured(tmp_path, MAX_BODY=100_000), Echo()
    async with web(config, app), proxied(config) as port:
        for head, body in (
            (b"content-length: 200000", b""),
            (b"transfer-encoding: chunked", b"30d40\r\n" + b"x" * 200_000 + b"\r\n"),
        ):
            async with connected(port) as client:
                await client.send(b"POST / HTTP/1.1\r\nhost: h\r\n%b\r\n\r\n%b" % (head, body))
                status, _, answer = await client.response()
                assert (status, json.loads(answer)["error"]["code"]) == (413, "body_too_large")
        assert not app.scopes


async def test_little_is_held_of_a_body_that_does_not_name_its_length(tmp_path: Path) -> None:
    config, app = configured(tmp_path), Echo()
    async with web(config, app), proxied(config) as port, connected(port) as client:
        size = 2 * 1024 * 1024
        await client.send(b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n" % size)
        client.writer.write(b"x" * size + b"\r\n0\r\n\r\n")
        status, _, answer = await client.response()
        assert (status, json.loads(answer)["error"]["code"]) == (413, "body_too_large")
        assert not app.scopes


async def test_head_and_304_have_no_body(tmp_path: Path) -> None:
    config, app = configured(tmp_path), Echo()
    async with web(config, app), proxied(config) as port, connected(port) as client:
        for request, status in ((b"HEAD /", b"201"), (b"GET /empty", b"304"), (b"GET /", b"201")):
            await client.send(request + b" HTTP/1.1\r\nhost: h\r\n\r\n")
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert head.split()[1] == status
        assert await client.reader.readexactly(5) == b"2\r\n<>"


async def test_f27_a_client_that_leaves_ends_the_work_of_web(tmp_path: Path) -> None:
    config, app = configured(tmp_path), Echo()
    async with web(config, app), proxied(config) as port:
        async with connected(port) as client:
            await client.send(b"GET /slow HTTP/1.1\r\nhost: h\r\n\r\n")
            await client.reader.readuntil(b"begun")
        await until(app.gone.is_set)
        assert len(app.scopes) == 1


@pytest.mark.parametrize("how", ["no socket", "nobody listens"])
async def test_with_web_down_apis_get_json_and_people_a_page(tmp_path: Path, how: str) -> None:
    config = configured(tmp_path)
    if how == "nobody listens":
        async with web(config, Echo()):
            pass
    async with proxied(config) as port, connected(port) as client:
        await client.send(b"GET /api/v1/models HTTP/1.1\r\nhost: h\r\n\r\n")
        status, headers, body = await client.response()
        assert (status, json.loads(body)["error"]["code"]) == (503, "web_unavailable")
        assert headers["retry-after"] == "2"
        await client.send(b"GET /admin/ HTTP/1.1\r\nhost: h\r\n\r\n")
        status, headers, body = await client.response()
        assert status == 503
        assert headers["retry-after"] == "2"
        assert headers["content-type"].startswith("text/html")
        assert b"chats go on" in body.lower()
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://127.0.0.1:{port}/ws/jobs", proxy=None)
        assert refused.value.response.status_code == 503


@pytest.mark.parametrize(
    ("silent", "status", "code"),
    [(False, 502, "web_broken"), (True, 504, "web_too_slow")],
    ids=["breaks off", "silent"],
)
async def test_web_that_breaks_off_or_is_silent_for_too_long_is_not_asked_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: bool, status: int, code: str
) -> None:
    if silent:
        monkeypatch.setattr(web_proxy, "_FIRST_BYTE", 0.2)
    config = configured(tmp_path)
    config.run.mkdir()
    asked = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1
        if silent:
            await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(handle, config.web_socket)
    async with proxied(config) as port, connected(port) as client:
        await client.send(b"POST /api/v1/models HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n")
        got, _, body = await client.response()
        assert (got, json.loads(body)["error"]["code"]) == (status, code)
        assert asked == 1
    server.close()


async def test_a_websocket_is_relayed_with_cookies_origin_and_subprotocol(tmp_path: Path) -> None:
    config, app = configured(tmp_path), Echo()
    async with web(config, app), proxied(config) as port:
        url = f"ws://127.0.0.1:{port}/ws/jobs?a=1"
        async with connect(
            url,
            proxy=None,
            origin="http://c.example",  # type: ignore[arg-type]
            subprotocols=["one", "two"],  # type: ignore[list-item]
            additional_headers={"Cookie": "s=1", "X-LLMGW-Node": "n"},
        ) as socket:
            assert socket.subprotocol == "two"
            for message in ("text", b"\x00bytes", "", "x" * 500_000):
                await socket.send(message)
                assert await socket.recv() == message
        async with asyncio.timeout(30):
            await app.gone.wait()
        seen = app.headers()
        assert (app.scopes[-1]["raw_path"], app.scopes[-1]["query_string"]) == (b"/ws/jobs", b"a=1")
        assert seen["cookie"] == "s=1"
        assert seen["origin"] == "http://c.example"
        assert seen["host"] == f"127.0.0.1:{port}"
        assert seen["x-llmgw-listener"] == "client"
        assert "x-llmgw-node" not in seen


@pytest.mark.parametrize("host", [b"h/internal?x=", b"user:pw@h", b"h?", b"h#", b"", b"h:1:2"])
async def test_a_host_header_cannot_change_where_a_websocket_goes(tmp_path: Path, host: bytes) -> None:
    config, app = configured(tmp_path), Echo()
    async with web(config, app), proxied(config) as port, connected(port) as client:
        await client.send(
            b"GET /ws/jobs HTTP/1.1\r\nhost: %b\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" % host
        )
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert head.split()[1] == b"400"
        assert not app.scopes


async def test_a_websocket_that_web_ends_or_refuses_ends_so_for_the_client(tmp_path: Path) -> None:
    config, app = configured(tmp_path), Echo()
    async with web(config, app), proxied(config) as port:
        async with connect(f"ws://127.0.0.1:{port}/ws/x", proxy=None) as socket:
            await socket.send("end")
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4002, "asked for")
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://127.0.0.1:{port}/ws/closed", proxy=None)
        assert refused.value.response.status_code == 403


async def test_a_websocket_client_that_does_not_read_slows_web(tmp_path: Path) -> None:
    sent = 0

    async def flood(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await receive()
        await send({"type": "websocket.accept"})
        for _ in range(2000):
            await send({"type": "websocket.send", "bytes": b"x" * 65536})
            sent += 65536
        await send({"type": "websocket.close"})

    config = configured(tmp_path)
    async with (
        web(config, flood),
        proxied(config) as port,
        connect(f"ws://127.0.0.1:{port}/ws/x", proxy=None, max_queue=1, ping_interval=None) as socket,
    ):
        await asyncio.sleep(1.0)
        assert sent < 40 * 1024 * 1024  # bounded queues and the kernel's buffers
        got = 0
        async for message in socket:
            got += len(message)
        assert got == 2000 * 65536


async def test_a_web_that_does_not_read_slows_the_websocket_client_and_little_is_held(tmp_path: Path) -> None:
    config = configured(tmp_path)
    done = asyncio.Event()

    async def stalled(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await done.wait()

    sent = 0
    async with (
        web(config, stalled),
        proxied(config) as port,
        connect(f"ws://127.0.0.1:{port}/ws/x", compression=None, close_timeout=0.1) as client,
    ):
        with contextlib.suppress(TimeoutError):
            while sent < 64 << 20:
                await asyncio.wait_for(client.send(b"x" * 65536), 1.0)
                sent += 65536
        done.set()
    assert sent < 16 << 20  # the kernel's buffers of four sockets, and a message or two in each program
