"""The bounds of the listeners, from the outside: real connections that send too much, too slowly, or do not read."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from routing.gateway.certificates import Certificates
from routing.gateway.protocol import PIPELINED
from tests.routing.gateway.certs import Authority
from tests.routing.gateway.listening import configured, listening
from tests.routing.gateway.scripted import connected, until

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class App:
    """Reads the body, answers with its length; counts what it was asked and whether clients left."""

    def __init__(self) -> None:
        self.asked = 0
        self.gone = 0
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone += 1
                return
            size += len(message["body"])
            if not message["more_body"]:
                break
        await self.go.wait()
        body = b"%d" % size
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


def code(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, str]:
    """Status and error code of a refusal, after checking that it is a whole OpenAI error object."""
    status, headers, body = answer
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "code", "param"}
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    return status, error["code"]


async def test_requests_follow_each_other_on_one_connection(tmp_path: Path) -> None:
    async with listening(App(), configured(tmp_path)) as port, connected(port) as client:
        for size in (0, 3, 100_000):
            await client.send(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (size, b"x" * size))
            assert (await client.response())[2] == b"%d" % size


async def test_f54_the_answer_has_one_date_and_no_server_header(tmp_path: Path) -> None:
    async with listening(App(), configured(tmp_path)) as port, connected(port) as client:
        await client.send(GET)
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert head.lower().count(b"\r\ndate:") == 1
        assert b"server:" not in head.lower()


async def test_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    async with listening(App(), configured(tmp_path)) as port, connected(port) as client:
        post = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b"
        await client.send(b"".join(post % (size, b"x" * size) for size in (1, 22, 333)) + GET)
        assert [(await client.response())[2] for _ in range(4)] == [b"1", b"22", b"333", b"0"]


async def test_requests_without_end_before_their_answers_are_not_taken_in(tmp_path: Path) -> None:
    app = App()
    app.go.clear()
    async with listening(app, configured(tmp_path)) as port, connected(port) as client:
        client.writer.write(GET * 20_000)
        await until(lambda: app.asked == 1)
        app.go.set()
        answers = (await client.read_all()).count(b"HTTP/1.1 200")
        assert answers <= 1 + PIPELINED
        assert app.asked <= 1 + PIPELINED  # the connection was closed after them


async def test_pipelined_requests_over_several_reads_are_all_answered(tmp_path: Path) -> None:
    app = App()
    app.go.clear()
    async with listening(app, configured(tmp_path)) as port, connected(port) as client:
        await client.send(GET * 3 + GET[:10])
        await until(lambda: app.asked == 1)
        app.go.set()
        await client.send(GET[10:] + b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n123")
        await client.send(b"456789")
        assert [(await client.response())[2] for _ in range(5)] == [b"0", b"0", b"0", b"0", b"9"]


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nx: " + b"v" * 5000,
        b"GET /" + b"p" * 5000,
        b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: v\r\n" % n for n in range(700)),
        b"GET / HTTP/1.1\r\nx: " + b"v" * 5000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: v\r\n" % n for n in range(700)) + b"\r\n",
    ],
)
@pytest.mark.parametrize("step", [100_000, 1000])
async def test_a_head_over_the_bound_is_refused(tmp_path: Path, head: bytes, step: int) -> None:
    app = App()
    async with listening(app, configured(tmp_path, MAX_HEADER_BYTES=4096)) as port, connected(port) as client:
        for at in range(0, len(head), step):
            await client.send(head[at : at + step])
            await asyncio.sleep(0.002)
        assert code(await client.response()) == (431, "headers_too_large")
        assert await client.reader.read() == b""
        assert app.asked == 0


async def test_a_body_in_the_same_read_does_not_count_as_head(tmp_path: Path) -> None:
    async with listening(App(), configured(tmp_path, MAX_HEADER_BYTES=1024)) as port, connected(port) as client:
        await client.send(b"POST / HTTP/1.1\r\ncontent-length: 9000\r\n\r\n" + b"x" * 9000)
        assert (await client.response())[2] == b"9000"


async def test_a_head_that_trickles_in_is_refused_after_its_time(tmp_path: Path) -> None:
    async with listening(App(), configured(tmp_path, HEADER_TIMEOUT="0.3")) as port, connected(port) as client:
        sent = 0

        async def trickle() -> None:
            nonlocal sent
            while True:
                client.writer.write(b"x")
                sent += 1
                await asyncio.sleep(0.02)

        await client.send(b"GET / HTTP/1.1\r\nx: ")
        task = asyncio.ensure_future(trickle())
        assert code(await client.response()) == (408, "headers_too_slow")
        task.cancel()
        assert sent < 400  # within the default of 10 s it were 500


async def test_a_body_that_pauses_is_refused_and_the_app_hears_that_the_client_is_gone(tmp_path: Path) -> None:
    app = App()
    async with listening(app, configured(tmp_path, BODY_TIMEOUT="0.3")) as port, connected(port) as client:
        await client.send(b"POST / HTTP/1.1\r\ncontent-length: 100\r\n\r\nabc")
        assert code(await client.response()) == (408, "body_too_slow")
        await until(lambda: app.gone == 1)


async def test_a_body_that_trickles_within_the_pause_is_read(tmp_path: Path) -> None:
    async with listening(App(), configured(tmp_path, BODY_TIMEOUT="0.3")) as port, connected(port) as client:
        await client.send(b"POST / HTTP/1.1\r\ncontent-length: 10\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0.05)
            await client.send(b"x")
        assert (await client.response())[2] == b"10"


async def test_a_length_over_the_bound_is_refused_before_the_body_is_read(tmp_path: Path) -> None:
    app = App()
    async with listening(app, configured(tmp_path, MAX_BODY=1000)) as port, connected(port) as client:
        await client.send(b"POST / HTTP/1.1\r\ncontent-length: 1001\r\n\r\n" + b"x" * 500)
        assert code(await client.response()) == (413, "body_too_large")
        assert app.asked == 0
        async with connected(port) as other:
            await other.send(b"POST / HTTP/1.1\r\ncontent-length: 1000\r\n\r\n" + b"x" * 1000)
            assert (await other.response())[2] == b"1000"


@pytest.mark.parametrize(
    "junk",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
        b"GET /\xff HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused(tmp_path: Path, junk: bytes) -> None:
    async with listening(App(), configured(tmp_path)) as port, connected(port) as client:
        await client.send(junk)
        assert code(await client.response()) == (400, "invalid_http")


async def test_a_broken_chunk_is_refused_and_the_app_hears_of_it(tmp_path: Path) -> None:
    app = App()
    async with listening(app, configured(tmp_path)) as port, connected(port) as client:
        await client.send(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await until(lambda: app.asked == 1)
        await client.send(b"zz\r\n")
        assert code(await client.response()) == (400, "invalid_http")
        await until(lambda: app.gone == 1)


async def test_a_bad_second_request_does_not_tear_up_the_first_answer(tmp_path: Path) -> None:
    app = App()
    app.go.clear()
    async with listening(app, configured(tmp_path)) as port, connected(port) as client:
        await client.send(GET + b"rubbish\r\n\r\n")
        await until(lambda: app.asked == 1)
        await client.send(b"more rubbish")
        app.go.set()
        status, _, body = await client.response()
        assert (status, body) == (200, b"0")
        assert await client.reader.read() == b""


async def test_bytes_between_requests_do_not_break_the_connection(tmp_path: Path) -> None:
    async with listening(App(), configured(tmp_path)) as port, connected(port) as client:
        await client.send(b"\r\n")
        await client.send(b"\r\n" + GET)
        assert (await client.response())[0] == 200


@pytest.mark.parametrize("first", [b"", GET])
async def test_an_idle_connection_is_closed(tmp_path: Path, first: bytes) -> None:
    async with listening(App(), configured(tmp_path, KEEPALIVE_TIMEOUT="0.2")) as port, connected(port) as client:
        if first:
            await client.send(first)
            await client.response()
        async with asyncio.timeout(30):  # the default is 75
            assert await client.reader.read() == b""


class Stall(asyncio.Protocol):
    """Sends, and holds the loop up while it reads: it looks at its timers next, and not at what has come meanwhile."""

    def __init__(self, client: socket.socket, data: bytes, seconds: float) -> None:
        self._client, self._data, self._seconds = client, data, seconds

    def data_received(self, data: bytes) -> None:
        self._client.sendall(self._data)
        time.sleep(self._seconds)


@pytest.mark.parametrize("secure", [False, True])
async def test_a_request_that_came_in_time_to_a_loop_that_was_late_is_answered(tmp_path: Path, secure: bool) -> None:
    """When the loop goes on, the idle time is over, and the request lies in the socket's buffer."""
    Authority().give(tmp_path, "node_a")
    certificates = Certificates(tmp_path)
    certificates.look()
    config, tls = configured(tmp_path, KEEPALIVE_TIMEOUT="1"), certificates.server if secure else None
    async with listening(App(), config, tls=tls) as port:
        client = await asyncio.to_thread(_connect, port, tmp_path if secure else None)
        stall = await asyncio.get_running_loop().create_server(lambda: Stall(client, GET, 1.2), "127.0.0.1", 0)
        with client, socket.create_connection(stall.sockets[0].getsockname()) as trigger:
            client.sendall(GET)
            assert await asyncio.to_thread(_status, client) == 200
            for _ in range(2):
                trigger.sendall(b"now")
                assert await asyncio.to_thread(_status, client) == 200
            assert await asyncio.to_thread(client.recv, 1) == b""  # it is idle as any other
        stall.close()


@pytest.mark.parametrize("at", [5, 60], ids=["head", "body"])
async def test_a_head_or_body_that_came_in_time_to_a_loop_that_was_late_is_read(tmp_path: Path, at: int) -> None:
    config = configured(tmp_path, HEADER_TIMEOUT="0.3", BODY_TIMEOUT="0.3")
    request = b"POST / HTTP/1.1\r\ncontent-length: 100\r\n\r\n" + b"x" * 100
    async with listening(App(), config) as port:
        client = await asyncio.to_thread(_connect, port, None)
        stall = await asyncio.get_running_loop().create_server(lambda: Stall(client, request[at:], 0.5), "127.0.0.1", 0)
        with client, socket.create_connection(stall.sockets[0].getsockname()) as trigger:
            client.sendall(request[:at])
            await asyncio.sleep(0.01)  # its time runs
            trigger.sendall(b"now")
            assert await asyncio.to_thread(_status, client) == 200
        stall.close()


def _connect(port: int, folder: Path | None) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    if folder is None:
        return client
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.check_hostname = False
    return context.wrap_socket(client)


def _status(client: socket.socket) -> int:
    """Of the next answer, which is read to its end."""
    answer = http.client.HTTPResponse(client)
    answer.begin()
    answer.read()
    return answer.status


async def test_an_answer_may_take_longer_than_every_bound(tmp_path: Path) -> None:
    app = App()
    app.go.clear()
    bounds = {"KEEPALIVE_TIMEOUT": "0.1", "HEADER_TIMEOUT": "0.1", "BODY_TIMEOUT": "0.1", "WRITE_TIMEOUT": "0.1"}
    async with listening(app, configured(tmp_path, **bounds)) as port, connected(port) as client:
        await client.send(b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc")
        await asyncio.sleep(0.5)
        app.go.set()
        assert (await client.response())[2] == b"3"


async def test_connections_over_the_bound_are_refused_and_come_in_when_others_leave(tmp_path: Path) -> None:
    async with listening(App(), configured(tmp_path, MAX_CONNECTIONS=2)) as port:
        async with connected(port) as one, connected(port) as two:
            for client in (one, two):
                await client.send(GET)
                assert (await client.response())[0] == 200
            async with connected(port) as three:
                answer = await three.response()
                assert code(answer) == (503, "too_many_connections")
                assert "retry-after" in answer[1]
                assert answer[1]["x-request-id"].startswith("req_")

        assert await _comes_in(port)


async def _comes_in(port: int) -> bool:
    """Whether a connection does, once others have left."""
    for _ in range(300):
        async with connected(port) as client:
            await client.send(GET)
            if b" 200 " in await client.reader.readline():
                return True
        await asyncio.sleep(0.02)
    return False


class Flood:
    """Streams for ever."""

    def __init__(self) -> None:
        self.sent = 0
        self.ended = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

        async def leaves() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        gone = asyncio.ensure_future(leaves())
        while not gone.done():
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            self.sent += 65536
            await asyncio.sleep(0)
        self.ended.set()


async def test_a_client_that_does_not_read_is_dropped_after_the_write_timeout(tmp_path: Path) -> None:
    app = Flood()
    async with listening(app, configured(tmp_path, WRITE_TIMEOUT="0.4")) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(GET)
            async with asyncio.timeout(30):  # the default is 60
                await app.ended.wait()
    assert app.sent < 32 * 1024 * 1024  # what the kernel's buffers take


async def test_a_client_that_reads_slowly_but_steadily_is_kept(tmp_path: Path) -> None:
    app = Flood()
    loop = asyncio.get_running_loop()
    async with listening(app, configured(tmp_path, WRITE_TIMEOUT="0.3")) as port:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)  # so that reading shows at the sender
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", port))
            await loop.sock_sendall(client, GET)
            for _ in range(25):
                for _ in range(4):
                    assert await loop.sock_recv(client, 64 * 1024)
                await asyncio.sleep(0.05)
            assert not app.ended.is_set()


async def test_a_long_last_answer_nobody_reads_does_not_hold_the_connection(tmp_path: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b"x" * 30_000_000})

    config = configured(tmp_path, WRITE_TIMEOUT="0.3", MAX_CONNECTIONS=1)
    async with listening(app, config) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(GET)
            assert await _comes_in(port)


async def test_a_body_after_the_answer_is_bounded(tmp_path: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async with listening(app, configured(tmp_path, MAX_BODY=1_000_000)) as port, connected(port) as client:
        await client.send(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
        assert (await client.response())[0] == 404

        async def send_on() -> None:
            for _ in range(200):
                await client.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                await asyncio.sleep(0.001)

        with pytest.raises(ConnectionError):
            await send_on()
