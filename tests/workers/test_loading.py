"""workers.loading: a load on one node, against a server that answers as slowly as it is told.

A load lasts for a time, and a busy machine may stand still for some of it: here its askers end when they have asked enough.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from cluster.domain.bench import found, next_load
from llmgw_site.lib.errors import Refused
from tests.processes import free_port, wait_for
from workers.loading import load
from workers.node_calls import Way

AGES = 60.0


class Enough(Exception):
    """Ends an asker."""


class Server:
    """Chats of `tokens` tokens, `slots` at a time, each token after `pause` seconds, the first of them when `together` requests have
    come; after `enough` nobody asks more. Who finds no slot waits for one, or is told so. Who leaves leaves his slot at once, as
    with engines."""

    def __init__(self) -> None:
        self.slots, self.pause, self.tokens, self.status = 4, 0.01, 8, 200
        self.together = self.enough = 1
        self.waits = True
        self.most = self.now = self.given = 0
        self.seen: list[bytes] = []
        self.free: asyncio.Semaphore | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        message = await receive()
        self.seen.append(message.get("body", b""))
        if self.free is None:
            self.free = asyncio.Semaphore(self.slots)
        if self.status != 200 or (self.free.locked() and not self.waits):
            await asyncio.sleep(self.pause if self.now and self.status != 200 else 0)  # the first is told at once
            self.now += self.status != 200
            await send({"type": "http.response.start", "status": max(self.status, 500), "headers": []})
            await send({"type": "http.response.body", "body": b'{"error":{"message":"no"}}'})
            return
        self.now += 1
        self.most = max(self.most, self.now)
        gone = asyncio.ensure_future(receive())
        try:
            async with self.free:
                while len(self.seen) < self.together and not gone.done():
                    await asyncio.sleep(0.005)
                await send({"type": "http.response.start", "status": 200, "headers": []})
                for _ in range(self.tokens):
                    await asyncio.wait({gone}, timeout=self.pause)
                    if gone.done():
                        return
                    line = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
                    self.given += 1
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
        if body and len(app.seen) >= app.enough:
            raise Enough
        return Way(f"http://127.0.0.1:{port}", {"content-type": "application/json"}, True, {})

    yield app, signed
    running.should_exit = running.force_exit = True
    thread.join(30)


def test_so_many_requests_are_under_way_and_their_tokens_counted(server: tuple[Server, Any]) -> None:
    app, signed = server
    app.together, app.enough, began = 4, 12, time.monotonic()
    got = load(signed, model="m", at_once=4, replicas=1, seconds=AGES)
    took = time.monotonic() - began
    assert (app.most, got.at_once, got.failed) == (4, 4, 0)
    assert got.requests == len(app.seen) >= 12
    assert app.given == got.requests * app.tokens
    assert app.given / took - 0.01 <= got.tps <= 420  # 4 slots of 100 tokens a second, less what a busy machine costs
    assert 0 < got.first_s < took
    assert len(set(app.seen)) == len(app.seen), "every question is another"


def test_what_waits_for_a_slot_is_seen_in_the_first_token(server: tuple[Server, Any]) -> None:
    app, signed = server
    app.slots, app.together, app.enough = 1, 6, 6
    got = load(signed, model="m", at_once=6, replicas=1, seconds=AGES)
    assert got.first_s > 5 * app.tokens * app.pause * 0.9  # five went before the last one


def test_the_load_that_nobody_is_refused_at_is_found(server: tuple[Server, Any]) -> None:
    app, signed = server
    app.slots, app.waits = 4, False
    levels: list[Any] = []
    while (at := next_load(levels, objective=AGES, most=16)) is not None:
        wait_for(lambda: app.now == 0, what="the load before to be over")
        app.seen.clear()
        app.together = app.enough = at
        levels.append(load(signed, model="m", at_once=at, replicas=1, seconds=AGES))
    assert [item.at_once for item in levels] == [1, 2, 4, 8, 6, 5]
    assert found(levels, objective=AGES).at_once == 4


def test_several_replicas_are_loaded_together_and_told_each(server: tuple[Server, Any]) -> None:
    app, signed = server
    app.together, app.enough, began = 4, 4, time.monotonic()
    got = load(signed, model="m", at_once=2, replicas=2, seconds=AGES)
    took = time.monotonic() - began
    assert (app.most, got.at_once, app.given) == (4, 2, 4 * app.tokens)
    assert app.given / took / 2 - 0.01 <= got.tps < 220


def test_who_answers_nothing_is_no_measurement(server: tuple[Server, Any]) -> None:
    """Not even where others still wait for an answer at the end."""
    app, signed = server
    app.status, app.pause, app.enough = 500, 30.0, 1000
    with pytest.raises(Refused) as refused:
        load(signed, model="m", at_once=2, replicas=1, seconds=2.0)
    assert refused.value.code == "bench_failed"
    assert '"message":"no"' in refused.value.message
