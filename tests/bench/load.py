"""The load generator: cheap enough to share a core with the stub. One object a connection, one request at a time."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from dataclasses import dataclass, field

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_ROLE = b'{"role":"user","content":"%b"}'
_BODY = b'{"model":"bench","messages":[' + _ROLE + b'],"max_tokens":%d,"seed":%d,"stream":%b}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """Where requests go and what they carry."""

    host: str
    port: int
    key: str

    def request(self, *, chunks: int = 0, pause_ms: int = 0) -> bytes:
        """A request whose body has 1 KB; with `chunks`, one for a stream."""
        stream = b"true" if chunks else b"false"
        text = b"x" * (1024 - len(_BODY % (b"", chunks or 64, pause_ms, stream)))
        body = _BODY % (text, chunks or 64, pause_ms, stream)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self.host}:{self.port}\r\naccept: application/json\r\n"
            f"accept-encoding: gzip, deflate\r\nuser-agent: bench/1\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer {self.key}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


@dataclass(slots=True)
class Tally:
    """What came back."""

    answers: int = 0
    events: int = 0
    reads: int = 0
    errors: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)


class Client(asyncio.Protocol):
    """A kept connection; `ask` sends a request and `on_done` is called at its answer's end."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def ask(self, request: bytes, on_done: _Done) -> None:
        self._data = b""
        self._need = 0  # bytes of a whole answer; -1: chunked
        self._on_done = on_done
        self._waiting = True
        self._asked = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        tally = self._tally
        if self._need >= 0:
            self._data = data = self._data + data
            if not self._need:
                head = data.find(b"\r\n\r\n")
                if head < 0:
                    return
                if not data.startswith(b"HTTP/1.1 200"):
                    tally.errors.append(data[:300].decode("latin-1"))
                length = _LENGTH.search(data, 0, head)
                self._need = head + 4 + int(length[1]) if length else -1
            if self._need > 0:
                if len(data) >= self._need:
                    tally.latencies.append(time.perf_counter() - self._asked)
                    self._end()
                return
        tally.reads += 1
        tally.events += data.count(b"data: {")
        if data.endswith(b"0\r\n\r\n"):
            self._end()

    def _end(self) -> None:
        self._tally.answers += 1
        self._waiting = False
        self._on_done(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting:
            self._tally.errors.append(f"connection lost: {exc}")
            self._waiting = False
            self._on_done(self)

    def close(self) -> None:
        self._transport.abort()


class _Done:
    """Called with the client whose answer has ended."""

    def __call__(self, client: Client) -> None:
        raise NotImplementedError


class _Paced(_Done):
    def __init__(self, idle: deque[Client]) -> None:
        self.idle = idle

    def __call__(self, client: Client) -> None:
        self.idle.append(client)


class _Closed(_Done):
    """Asks again at once until its end."""

    def __init__(self, request: bytes, until: float, left: int) -> None:
        self.request, self.until, self.left = request, until, left
        self.over = asyncio.get_running_loop().create_future()

    def __call__(self, client: Client) -> None:
        if time.perf_counter() < self.until:
            client.ask(self.request, self)
            return
        self.left -= 1
        if not self.left:
            self.over.set_result(None)


class _Once(_Done):
    def __init__(self, left: int) -> None:
        self.left = left
        self.over = asyncio.get_running_loop().create_future()

    def __call__(self, client: Client) -> None:
        self.left -= 1
        if not self.left:
            self.over.set_result(None)


async def connect(aim: Aim, count: int, tally: Tally) -> list[Client]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(lambda: Client(tally), aim.host, aim.port))[1] for _ in range(count)]


async def paced(aim: Aim, *, rate: float, seconds: float, connections: int) -> Tally:
    """Non-streamed requests at a fixed rate, each on an idle connection."""
    tally = Tally()
    clients = await connect(aim, connections, tally)
    idle = deque(clients)
    done = _Paced(idle)
    request = aim.request()
    start = time.perf_counter()
    for number in range(int(rate * seconds)):
        wait = start + number / rate - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        behind = time.perf_counter() + 5
        while not idle and time.perf_counter() < behind:
            await asyncio.sleep(0.001)  # a busy machine stalls now and then
        if not idle:
            tally.errors.append("no idle connection for 5 s: the contender falls behind")
            break
        idle.popleft().ask(request, done)
    async with asyncio.timeout(10):
        while len(idle) < connections:
            await asyncio.sleep(0.01)
    _close(clients)
    return tally


async def saturate(aim: Aim, *, seconds: float, connections: int) -> tuple[Tally, float]:
    """As many requests as go through; with the seconds it took."""
    tally = Tally()
    clients = await connect(aim, connections, tally)
    start = time.perf_counter()
    done = _Closed(aim.request(), start + seconds, connections)
    for client in clients:
        client.ask(done.request, done)
    await asyncio.wait_for(done.over, seconds + 30)
    took = time.perf_counter() - start
    _close(clients)
    return tally, took


async def streams(aim: Aim, *, count: int, chunks: int, pause_ms: int) -> Tally:
    """`count` streams at once, begun over one pause so that they do not tick together."""
    tally = Tally()
    clients = await connect(aim, count, tally)
    done = _Once(count)
    request = aim.request(chunks=chunks, pause_ms=pause_ms)
    for client in clients:
        client.ask(request, done)
        await asyncio.sleep(pause_ms / 1000 / count)
    await asyncio.wait_for(done.over, 60 + chunks * pause_ms / 1000 * 3)
    _close(clients)
    return tally


def _close(clients: list[Client]) -> None:
    for client in clients:
        client.close()
