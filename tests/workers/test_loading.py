"""workers.loading: a load on one node, against a server that answers as slowly as it is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from cluster.domain.bench import found, next_load
from llmgw_site.lib.errors import Refused
from tests.processes import free_port, wait_for
from workers.loading import load
from workers.node_calls import Way


class Server:
    """Chats of `tokens` tokens, `slots` at a time, each token after `pause` seconds. Who leaves leaves his slot at once, as
    with engines: else the end of one load would be in the way of the next."""

    def __init__(self) -> None:
        self.slots, self.pause, self.tokens, self.status = 4, 0.01, 8, 200
        self.most = self.now = 0
        self.seen: list[bytes] = []
        self.free: asyncio.Semaphore | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        message = await receive()
        self.seen.append(message.get("body", b""))
        if self.free is None:
            self.free = asyncio.Semaphore(self.slots)
        if self.status != 200:
            await asyncio.sleep(self.pause if self.now else 0)  # the first is told at once
            self.now += 1
            await send({"type": "http.response.start", "status": self.status, "headers": []})
            await send({"type": "http.response.body", "body": b'{"error":{"message":"no"}}'})
            return
        self.now += 1
        self.most = max(self.most, self.now)
        gone = asyncio.ensure_future(receive())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            async with self.free:
                for _ in range(self.tokens):
                    await asyncio.wait({gone}, timeout=self.pause)
                    if gone.done():
                        return
                    line = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
                    await send({"type": "http.response.body", "body": line, "more_body": True})
            await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
        finally:
            gone.cancel()
            self.now -= 1


@pytest.fixture
def server() -> Iterator[tuple[Server, Any]]:
    app, port = Server(), free_port()
    running = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    wait_for(lambda: running.started, what="the server to listen")

    def signed(path: str, body: bytes) -> Way:
        return Way(f"http://127.0.0.1:{port}", {"content-type": "application/json"}, True, {})

    yield app, signed
    running.should_exit = running.force_exit = True
    thread.join(5)


def test_so_many_requests_are_under_way_and_their_tokens_counted(server: tuple[Server, Any]) -> None:
    app, signed = server
    got = load(signed, model="m", at_once=4, replicas=1, seconds=1.0)
    assert app.most == 4
    assert (got.at_once, got.failed) == (4, 0)
    assert got.requests >= 20
    assert 100 < got.tps <= 420  # 4 slots of 100 tokens a second, less what a busy machine costs
    assert got.first_s < 0.5
    assert len(set(app.seen)) == len(app.seen), "every question is another"


def test_what_waits_for_a_slot_is_seen_in_the_first_token(server: tuple[Server, Any]) -> None:
    app, signed = server
    app.slots, app.pause = 1, 0.02
    one = load(signed, model="m", at_once=1, replicas=1, seconds=1.0)
    many = load(signed, model="m", at_once=6, replicas=1, seconds=1.5)
    assert many.first_s > 3 * one.first_s


def test_the_load_that_holds_is_found(server: tuple[Server, Any]) -> None:
    app, signed = server
    app.slots, app.pause, app.tokens = 4, 0.05, 20  # a request takes a second, so who waits for a slot waits long
    levels: list[Any] = []
    while (at := next_load(levels, objective=0.6, most=16)) is not None:
        levels.append(load(signed, model="m", at_once=at, replicas=1, seconds=1.5))
    assert 3 <= found(levels, objective=0.6).at_once <= 6


def test_several_replicas_are_loaded_together_and_told_each(server: tuple[Server, Any]) -> None:
    app, signed = server
    got = load(signed, model="m", at_once=2, replicas=2, seconds=0.8)
    assert (app.most, got.at_once) == (4, 2)
    assert got.tps < 220


def test_who_answers_nothing_is_no_measurement(server: tuple[Server, Any]) -> None:
    """Not even where others still wait for an answer at the end."""
    app, signed = server
    app.status, app.pause = 500, 30.0
    with pytest.raises(Refused) as refused:
        load(signed, model="m", at_once=2, replicas=1, seconds=0.5)
    assert refused.value.code == "bench_failed"
    assert '"message":"no"' in refused.value.message
