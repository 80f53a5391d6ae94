"""routing.gateway.direct.answer_whole: one write for an answer that is at hand, past uvicorn's own `send`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from routing.gateway.direct import answer_whole, cycle_of
from tests.routing.gateway.listening import configured, listening
from tests.routing.gateway.scripted import connected


class App:
    """Answers with the size of what it read of the body, in one write where that may be; keeps whether it was."""

    def __init__(
        self,
        *,
        status: int = 200,
        extra: tuple[bytes, bytes] | None = None,
        wrapped: bool = False,
        reads: bool = True,
    ) -> None:
        self.whole: list[bool] = []
        self.status, self.extra, self.wrapped, self.reads = status, extra, wrapped, reads

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, self.reads
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        body = b"%d" % size if self.status == 200 else b""
        headers = [(b"content-length", b"%d" % len(body)), *([self.extra] if self.extra else [])]

        async def passed(message: Any) -> None:
            await send(message)

        cycle = cycle_of(scope)
        given = passed if self.wrapped else send
        self.whole.append(answer_whole(scope, given, self.status, headers, body))
        assert self.whole[-1] == cycle.response_started == cycle.response_complete
        if not self.whole[-1]:
            await send({"type": "http.response.start", "status": self.status, "headers": headers})
            await send({"type": "http.response.body", "body": body})


def post(size: int, more: bytes = b"") -> bytes:
    return b"POST / HTTP/1.1\r\nhost: x\r\n%bcontent-length: %d\r\n\r\n%b" % (more, size, b"x" * size)


async def test_answers_follow_each_other_on_one_connection(tmp_path: Path) -> None:
    app = App()
    async with listening(app, configured(tmp_path)) as port, connected(port) as client:
        for size in (0, 3, 100_000):
            await client.send(post(size))
            status, headers, body = await client.response()
            assert (status, body) == (200, b"%d" % size)
            assert "date" in headers
            assert headers["content-length"] == str(len(body))
        assert app.whole == [True, True, True]


async def test_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    app = App()
    async with listening(app, configured(tmp_path)) as port, connected(port) as client:
        await client.send(b"".join(post(size) for size in (1, 22, 333, 0)))
        assert [(await client.response())[2] for _ in range(4)] == [b"1", b"22", b"333", b"0"]
        assert app.whole == [True] * 4


async def test_a_body_that_asks_whether_it_may_come_is_let_come_once(tmp_path: Path) -> None:
    app = App()
    async with listening(app, configured(tmp_path)) as port, connected(port) as client:
        await client.send(post(4, b"expect: 100-continue\r\n")[:-4])
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"xxxx")
        assert (await client.response())[2] == b"4"
        await client.send(post(2))
        assert (await client.response())[2] == b"2"
        assert app.whole == [True, True]


async def test_an_answer_before_the_body_leaves_what_follows_of_it_and_the_next_request_in_step(tmp_path: Path) -> None:
    app, body = App(reads=False), post(200_000)
    async with listening(app, configured(tmp_path)) as port, connected(port) as client:
        await client.send(body[:-50_000])  # more than is read ahead of the application
        assert (await client.response())[2] == b"0"
        await client.send(body[-50_000:] + post(3))
        assert (await client.response())[2] == b"0"
        assert app.whole == [True, True]


@pytest.mark.parametrize(
    "request_", [post(5, b"connection: close\r\n"), post(5).replace(b"HTTP/1.1", b"HTTP/1.0")], ids=["close", "1.0"]
)
async def test_the_last_answer_of_a_connection_closes_it(tmp_path: Path, request_: bytes) -> None:
    app = App()
    async with listening(app, configured(tmp_path)) as port, connected(port) as client:
        await client.send(request_)
        answer = await client.reader.read()
        assert answer.endswith(b"\r\n\r\n5")
        assert b"connection: close" in answer
        assert app.whole == [False]


@pytest.mark.parametrize(
    ("app", "request_"),
    [
        (App(wrapped=True), post(7)),
        (App(status=204), post(7)),
        (App(status=304), post(7)),
        (App(), b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n"),
    ],
    ids=["somebody changes what is sent", "204", "304", "HEAD"],
)
async def test_what_is_more_than_head_and_body_goes_the_usual_way(tmp_path: Path, app: App, request_: bytes) -> None:
    async with listening(app, configured(tmp_path)) as port, connected(port) as client:
        await client.send(request_)
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % app.status)
        assert app.whole == [False]


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\r", b"a\0b"])
async def test_a_header_that_would_be_two_is_not_sent(tmp_path: Path, value: bytes) -> None:
    app = App(extra=(b"x-engine", value))
    async with listening(app, configured(tmp_path)) as port, connected(port) as client:
        await client.send(post(1))
        assert await client.reader.read() == b""
        assert app.whole == [False]


def test_another_server_has_no_cycle() -> None:
    plain: dict[str, Any] = {"method": "POST"}
    assert not answer_whole(plain, print, 200, [], b"")
    assert plain == {"method": "POST"}
