"""Gateways in one event loop: real applications, and in place of sockets a network that fails on command.

`FakeUpstream` stands where a gateway has its HTTP client. It hands a request to the other gateway's node listener, or to
an engine, and brings back the answer, as far as the fault of that place lets it. Every request has a `uid` in its body, so
that the network can tell who was asked and who accepted.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from routing.gateway.lifespan import Gateway
from routing.gateway.polling import PATH as POLL
from routing.gateway.upstream import Broken, Headers, NotReached, Target, TooSlow

CONNECT = 10.0
EVENT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


class Connection:
    """One request and its answer: events in a queue, filled by whoever answers."""

    def __init__(self, place: Place, *, uid: str = "", cut_after: int | None = None, slow: float = 0.0) -> None:
        self.uid = uid
        self.closed = asyncio.Event()  # by whoever asked, or by a fault
        self.status = 0
        self.headers: Headers = []
        self._events: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._place = place
        self._cut_after = cut_after
        self._slow = slow
        self._head = asyncio.Event()
        self._idle = 0.0
        self._over = False
        place.connections[self] = None

    # --- whoever answers

    async def head(self, status: int, headers: Headers) -> None:
        await self._step()
        if not self._over:
            self.status, self.headers = status, headers
            self._head.set()

    async def piece(self, data: bytes) -> None:
        await self._step()
        if not self._over:
            self._events.put_nowait(data)

    def end(self) -> None:
        if not self._over:
            self._finish(None)

    def cut(self) -> None:
        """The connection breaks."""
        if not self._over:
            self._finish(Broken("cut", headers_received=self._head.is_set()))

    def _finish(self, last: Exception | None) -> None:
        self._over = True
        self._events.put_nowait(last)
        self._head.set()
        self.closed.set()
        self._place.connections.pop(self, None)

    async def _step(self) -> None:
        if self._cut_after is not None:
            if self._cut_after <= 0:
                self.cut()
            self._cut_after -= 1
        if self._slow and not self._over:
            await asyncio.sleep(self._slow)

    # --- whoever asked; the face of routing.gateway.response.Response

    async def opened(self, first_byte_timeout: float, idle_timeout: float) -> Connection:
        self._idle = idle_timeout
        try:
            async with asyncio.timeout(first_byte_timeout):
                await self._head.wait()
        except TimeoutError:
            self.abort()
            raise TooSlow("first_byte", first_byte_timeout) from None
        except asyncio.CancelledError:
            self.abort()
            raise
        if not self.status:
            raise Broken("cut", headers_received=False)
        return self

    async def read(self) -> bytes:
        try:
            async with asyncio.timeout(self._idle):
                event = await self._events.get()
        except TimeoutError:
            self.abort()
            raise TooSlow("idle", self._idle) from None
        except asyncio.CancelledError:
            self.abort()
            raise
        if isinstance(event, bytes):
            return event
        self._events.put_nowait(event)
        if event is not None:
            raise event
        return b""

    def abort(self) -> None:
        if not self._over:
            self._finish(None)


@dataclass(eq=False)
class Place:
    """A node's listener, or an engine. `fault`: "", `refuse`, `blackhole` (no connection), `mute` (accepts, says nothing)."""

    name: str
    fault: str = ""
    cut_after: int | None = None  # events of an answer to a chat before its connection breaks
    slow: float = 0.0  # seconds before each event
    error: int = 0  # an engine's status in place of an answer
    gateway: Gateway | None = None
    connections: dict[Connection, None] = field(default_factory=dict)  # in their order
    running: int = 0  # an engine's requests

    def kill(self) -> set[str]:
        """The process ends: nobody listens, and what is open breaks. The requests that it had accepted."""
        self.fault = "refuse"
        lost = list(self.connections)
        for connection in lost:
            connection.cut()
        return {connection.uid for connection in lost}


@dataclass
class Asked:
    """What became of one client's request inside. Counted by hop: `handed`, `forwarded`, `engine`."""

    attempts: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    places: set[str] = field(default_factory=set)  # that accepted it
    missed: set[str] = field(default_factory=set)  # that could not be reached


class Network:
    """All places by host name. `on_attempt` looks at each chat that a node is about to send to another."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.places: dict[str, Place] = {}
        self.asked: dict[str, Asked] = {}
        self.log: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.on_attempt: Callable[[str, Place, str, str], None] = lambda source, place, uid, model: None
        self.on_missed: Callable[[str, Place], None] = lambda source, place: None
        self.on_answered: Callable[[str, Place, float], None] = lambda source, place, began: None

    def say(self, text: str) -> None:
        self.log.append(f"{asyncio.get_running_loop().time():8.2f} {text}")

    def spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class FakeUpstream:
    """The HTTP client of the gateway `source`."""

    def __init__(self, network: Network, source: str) -> None:
        self._network = network
        self._source = source

    async def close(self) -> None:
        pass

    async def request(
        self,
        target: Target,
        *,
        method: bytes,
        path: bytes,
        headers: Headers,
        body: bytes = b"",
        first_byte_timeout: float,
        idle_timeout: float,
        **_: Any,
    ) -> Connection:
        network, source = self._network, self._source
        place = network.places[target.host]
        asked, uid, hop = None, "", "poll"
        if path != POLL.encode():
            told = orjson.loads(body)
            uid, model = told["uid"], told["model"]
            hop = next((value.decode() for name, value in headers if name == b"x-llmgw-hop"), "engine")
            asked = network.asked.setdefault(uid, Asked())
            asked.attempts[hop] += 1
            network.on_attempt(source, place, uid, model)
        if place.fault in ("refuse", "blackhole"):
            refused = place.fault == "refuse"
            await asyncio.sleep(0.001 if refused else CONNECT)
            if asked is not None:
                asked.missed.add(place.name)
                network.say(f"{source} misses {place.name} with {uid}")
                network.on_missed(source, place)
            raise NotReached("refused") if refused else TooSlow("connect", CONNECT)
        if asked is not None:
            asked.accepted[hop] += 1
            asked.places.add(place.name)
            network.say(f"{source} -> {place.name} {hop} {uid}")
        began = asyncio.get_running_loop().time()
        connection = Connection(place)
        if asked is not None:
            connection = Connection(place, uid=uid, cut_after=place.cut_after, slow=place.slow)
        if place.fault != "mute":
            answer = self._node if place.gateway is not None else self._engine
            network.spawn(answer(place, connection, method, path, headers, body))
        found = await connection.opened(first_byte_timeout, idle_timeout)
        if asked is not None:
            network.on_answered(source, place, began)
        return found

    async def _node(
        self, place: Place, connection: Connection, method: bytes, path: bytes, headers: Headers, body: bytes
    ) -> None:
        assert place.gateway is not None
        await serve(place.gateway.node_app, connection, method, path, headers, body)

    async def _engine(
        self, place: Place, connection: Connection, method: bytes, path: bytes, headers: Headers, body: bytes
    ) -> None:
        """Runs until it is done or its client is gone."""
        place.running += 1
        work = asyncio.ensure_future(
            _compute(place, connection, self._network.dice, bool(orjson.loads(body).get("stream")))
        )
        gone = asyncio.ensure_future(connection.closed.wait())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            place.running -= 1
            work.cancel()
            gone.cancel()
            connection.cut()


async def _compute(place: Place, connection: Connection, dice: random.Random, stream: bool) -> None:
    await asyncio.sleep(dice.uniform(0.01, 2.0))
    if place.error:
        await connection.head(place.error, [(b"content-type", b"application/json")])
        await connection.piece(b'{"error":{"message":"no","type":"server_error","code":"broken"}}')
    elif stream:
        await connection.head(200, [(b"content-type", b"text/event-stream")])
        for _ in range(dice.randint(1, 6)):
            await connection.piece(EVENT)
            await asyncio.sleep(dice.uniform(0.0, 0.5))
        await connection.piece(DONE)
    else:
        answer = b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}'
        await connection.head(200, [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))])
        await connection.piece(answer)
    connection.end()


async def serve(app: Any, connection: Connection, method: bytes, path: bytes, headers: Headers, body: bytes) -> None:
    """One request to an ASGI application, as a server would bring it: an answer without an end is a broken connection."""
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        await connection.closed.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            await connection.head(message["status"], message["headers"])
            return
        if message.get("body"):
            await connection.piece(message["body"])
        if not message.get("more_body"):
            connection.end()

    head = [(name.lower(), value) for name, value in headers]
    if body:
        head.append((b"content-length", b"%d" % len(body)))
    scope = {
        "type": "http", "method": method.decode(), "path": path.decode(), "raw_path": path, "query_string": b"",
        "scheme": "http", "headers": head, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "state": {},
    }  # fmt: skip
    try:
        await app(scope, receive, send)
    finally:
        connection.cut()
