"""The websocket to a controller: silence is death, what cannot be read is skipped, a refusal is no reason to hammer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from cluster.domain import signing
from cluster.wire import Nudge
from workers.agent import nudges
from workers.agent.clients import Clients
from workers.agent.identity import Identity
from workers.agent.link import Link
from workers.agent.nudges import Nudges

IDENTITY = Identity(node_id="node_1", private_key="11" * 32, controller_public_key=signing.public_hex("22" * 32))
WELCOME = '{"v": 1, "reason": "connected", "removed": [], "echoes": true}'


class Ears:
    def __init__(self) -> None:
        self.connections, self.heard = 0, []  # type: ignore[var-annotated]

    def connected(self) -> None:
        self.connections += 1

    def nudged(self, nudge: Nudge) -> None:
        self.heard.append(nudge)


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def listening(*urls: str) -> AsyncIterator[tuple[Link, Ears]]:
    ears = Ears()
    async with httpx.AsyncClient() as client:
        link = Link(urls, IDENTITY, boot_id="b", clock=lambda: 1000.0, clients=Clients(client))
        task = asyncio.ensure_future(Nudges(link, ears).run())
        try:
            yield link, ears
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_signed_handshake_then_each_nudge_is_heard_and_nonsense_is_skipped() -> None:
    key = signing.pairwise_key("22" * 32, signing.public_hex("11" * 32))
    verdicts: list[str | None] = []

    async def handle(connection: ServerConnection) -> None:
        assert connection.request is not None
        call = signing.read({name.lower(): value for name, value in connection.request.headers.items()})
        assert call is not None
        path = connection.request.path
        verdicts.append(signing.verify(key, call, method="GET", path=path, body=b"", now=1000.0))
        for text in ("{", "[]", '{"removed": 7}', '{"v": 1, "reason": "map", "removed": ["node_2"], "new": 1}'):
            await connection.send(text)
        await connection.wait_closed()

    async with serve(handle, "127.0.0.1", 0) as server, listening(url(server)) as (_, ears):
        await until(lambda: ears.heard)
    assert verdicts == [None]
    assert (ears.connections, ears.heard) == (1, [Nudge(reason="map", removed=("node_2",))])


async def test_a_controller_that_falls_silent_is_doubted_and_the_next_one_is_tried_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nudges, "PING_EVERY", 0.2)
    monkeypatch.setattr(nudges, "PONG_WITHIN", 0.2)
    done = asyncio.Event()

    async def handle(connection: ServerConnection) -> None:
        connection.transport.pause_reading()  # type: ignore[attr-defined] # as a stopped process: no pong comes back
        await done.wait()

    async def fine(connection: ServerConnection) -> None:
        await connection.wait_closed()

    async with serve(handle, "127.0.0.1", 0, close_timeout=0.1) as dead, serve(fine, "127.0.0.1", 0) as alive:
        async with listening(url(dead), url(alive)) as (link, ears):
            await until(lambda: ears.connections == 2)
            assert link.urls == (url(alive), url(dead))
        done.set()
        for connection in dead.connections:
            connection.transport.abort()


async def test_controllers_that_accept_and_close_at_once_are_asked_after_growing_pauses() -> None:
    """Such as `web` whose Valkey is away: hundreds of handshakes a second from each node would help nobody."""
    accepted: list[float] = []

    async def close(connection: ServerConnection) -> None:
        accepted.append(asyncio.get_running_loop().time())

    async with (
        serve(close, "127.0.0.1", 0) as one,
        serve(close, "127.0.0.1", 0) as other,
        listening(url(one), url(other)) as (_, ears),
    ):
        await until(lambda: len(accepted) >= 6)
    assert accepted[5] - accepted[0] >= 0.7
    assert ears.heard == []


async def test_a_web_that_falls_silent_behind_a_gateway_that_lives_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nudges, "PING_EVERY", 0.1)
    monkeypatch.setattr(nudges, "PONG_WITHIN", 60.0)
    asked: list[Any] = []

    async def stalls(connection: ServerConnection) -> None:
        """Its end of the websocket answers pings all the time; nobody behind it does after the third."""
        await connection.send(WELCOME)
        async for message in connection:
            asked.append(orjson.loads(message)["ping"])
            if len(asked) == 3:
                monkeypatch.setattr(nudges, "PONG_WITHIN", 0.3)
            if len(asked) <= 3:
                await connection.send(message)

    async def fine(connection: ServerConnection) -> None:
        await connection.send(WELCOME)
        async for message in connection:
            await connection.send(message)

    async with (
        serve(stalls, "127.0.0.1", 0) as dead,
        serve(fine, "127.0.0.1", 0) as alive,
        listening(url(dead), url(alive)) as (link, ears),
    ):
        await until(lambda: ears.connections == 2)
        assert asked == [1, 2, 3, 4]
        assert link.urls == (url(alive), url(dead))
        assert ears.heard == []


async def test_a_controller_of_before_echoes_is_asked_for_none_and_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nudges, "PING_EVERY", 0.1)
    monkeypatch.setattr(nudges, "PONG_WITHIN", 60.0)
    asked: list[Any] = []
    silence = asyncio.Event()

    async def older(connection: ServerConnection) -> None:
        for _ in range(3):
            await connection.send('{"v": 1, "reason": "map", "removed": []}')
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.6):  # in which who echoes would be asked
                asked.append(await connection.recv())
        silence.set()
        await connection.wait_closed()

    async with serve(older, "127.0.0.1", 0) as server, listening(url(server)) as (_, ears):
        await until(silence.is_set)
        assert (ears.connections, len(ears.heard), asked) == (1, 3, [])


async def test_one_that_refuses_is_passed_over_and_asked_again_only_after_growing_pauses() -> None:
    asked: list[float] = []

    def refuse(connection: ServerConnection, request: Request) -> Response:
        asked.append(asyncio.get_running_loop().time())
        return connection.respond(404, "no such path")

    async def never(connection: ServerConnection) -> None:
        raise AssertionError("it was refused")

    async with (
        serve(never, "127.0.0.1", 0, process_request=refuse) as server,
        listening(url(server), "http://127.0.0.1:9") as (_, ears),
    ):
        await until(lambda: len(asked) >= 3)
    assert ears.connections == 0
    assert asked[2] - asked[0] >= 0.7
