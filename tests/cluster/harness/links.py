"""The way to each node: a TCP proxy on the address that the node advertises, which can misbehave as networks do.

All proxies of a cluster live on one event loop in a thread of its own; the methods of `Link` may be called from any
other thread and have taken effect when they return.

    open        bytes pass
    refuse      nobody listens: the connection is refused, and those that stood before are reset
    silent      the connection is never made: the kernel drops the SYN, the caller waits for its connect timeout;
                those that stood before hang
    blackhole   the connection is made, nothing passes either way, also on connections that stood before
    mute        requests pass, answers do not
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

Mode = Literal["open", "refuse", "silent", "blackhole", "mute"]
Address = tuple[str, int]
PIECE = 65536
_REQUEST = re.compile(rb"\nx-request-id: *([^\r\n]+)", re.IGNORECASE)
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends a reset."""


@dataclass(eq=False)
class Pair:
    """A connection to a node and the one that goes on from it."""

    outer: asyncio.StreamWriter
    inner: asyncio.StreamWriter
    source: str | None = None  # name of the node that calls; None: not looked up yet
    tail: bytes = field(default=b"", repr=False)
    broken: bool = False
    weights: bool = False  # files of weights were asked for on it

    @property
    def port(self) -> int:
        """The caller's own port."""
        return int(self.outer.get_extra_info("peername")[1])

    def reset(self) -> None:
        self.broken = True
        for writer in (self.outer, self.inner):
            handle = writer.get_extra_info("socket")
            if handle is not None and not writer.transport.is_closing():
                handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


class Links:
    """The event loop of the proxies. `owner` names the node that holds a local port of this machine."""

    def __init__(self, owner: Callable[[int], str] = lambda port: "") -> None:
        self.owner = owner
        self.links: dict[str, Link] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def add(self, name: str, *, outer: Address, inner: Address) -> Link:
        link = self.links[name] = Link(self, name, outer, inner)
        link.set("open")
        return link

    def run(self, work: Any) -> Any:
        """Run a coroutine on the loop; its result."""
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(60)

    def partition(self, name: str) -> None:
        """Nothing reaches this node and nothing comes from it; what was under way hangs."""
        self.links[name].set("silent")
        for other in self.links.values():
            if other.name != name:
                other.shun(name)

    def mend(self) -> None:
        """All open, no source shunned, full speed. Connections that hung go on where they were."""
        for link in self.links.values():
            link.mend()

    def close(self) -> None:
        for link in self.links.values():
            link.set("refuse")
            link.reset()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class Link:
    """The proxy before one node. `reached` counts, for each request id, how often a request with it was passed on; `given` the
    bytes of answers on connections that fetch weights."""

    def __init__(self, links: Links, name: str, outer: Address, inner: Address) -> None:
        self.name, self.outer, self.inner = name, outer, inner
        self.mode: Mode = "refuse"
        self.rate = 0.0  # bytes per second of answers; 0: no bound
        self.delay = 0.0  # seconds that each piece of an answer waits
        self.reached: Counter[str] = Counter()
        self.given = 0
        self._links = links
        self._pairs: set[Pair] = set()
        self._shunned: set[str] = set()
        self._server: asyncio.Server | None = None
        self._full: list[socket.socket] = []
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://{self.outer[0]}:{self.outer[1]}"

    @property
    def connections(self) -> int:
        return len(self._pairs)

    # --- what tests do to it

    def set(self, mode: Mode, *, keep: bool = False) -> None:
        """`keep`: connections that stand go on, as of a server that ends in peace."""
        self._links.run(self._set(mode))
        if mode == "refuse" and not keep:
            self.reset()

    def slow(self, *, rate: float = 0.0, delay: float = 0.0) -> None:
        """Answers pass at `rate` bytes a second, each piece `delay` seconds late."""
        self._links.run(self._slow(rate, delay))

    def reset(self) -> int:
        """Break every connection by a reset; how many there were."""
        return int(self._links.run(self._reset()))

    def shun(self, source: str) -> None:
        """Nothing of this node's passes, neither on new connections nor on those that stand."""
        self._links.run(self._shun(source))

    def mend(self) -> None:
        self._links.run(self._mend())

    # --- on the loop

    async def _set(self, mode: Mode) -> None:
        listening = self.mode in ("open", "blackhole", "mute")
        listen = mode in ("open", "blackhole", "mute")
        for handle in self._full:
            handle.close()
        self._full.clear()
        if listening and not listen:
            assert self._server is not None
            self._server.close()
            self._server = None
        elif listen and not listening:
            self._server = await asyncio.start_server(self._accept, sock=self._bound(1024))
        self.mode = mode
        if mode == "silent":
            self._fill()
        self._wake()

    def _bound(self, backlog: int) -> socket.socket:
        handle = socket.socket()
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        handle.bind(self.outer)
        handle.listen(backlog)
        handle.setblocking(False)
        return handle

    def _fill(self) -> None:
        """A queue of one that is never emptied: from the second connection on the kernel drops the SYN."""
        self._full.append(self._bound(0))
        for _ in range(2):
            handle = socket.socket()
            handle.setblocking(False)
            handle.connect_ex(self.outer)
            self._full.append(handle)

    async def _slow(self, rate: float, delay: float) -> None:
        self.rate, self.delay = rate, delay
        self._wake()

    async def _reset(self) -> int:
        pairs = list(self._pairs)
        for pair in pairs:
            pair.reset()
        self._wake()
        return len(pairs)

    async def _shun(self, source: str) -> None:
        self._shunned.add(source)
        for pair in self._pairs:
            self._look_up(pair)
        self._wake()

    async def _mend(self) -> None:
        self._shunned.clear()
        self.rate = self.delay = 0.0
        await self._set("open")

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _look_up(self, pair: Pair) -> None:
        if pair.source is None:
            pair.source = self._links.owner(pair.port)

    def _blocked(self, pair: Pair, *, answer: bool) -> bool:
        if self.mode in ("blackhole", "silent") or (answer and self.mode == "mute"):
            return True
        return bool(self._shunned) and (pair.source or "") in self._shunned

    async def _clear(self, pair: Pair, *, answer: bool) -> None:
        """Wait until bytes may pass. Raises ConnectionResetError where the connection was broken meanwhile."""
        while self._blocked(pair, answer=answer) and not pair.broken:
            await self._changed.wait()
        if pair.broken:
            raise ConnectionResetError

    async def _accept(self, reader: asyncio.StreamReader, outer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            inner_reader, inner = await asyncio.open_connection(*self.inner)
        except OSError:  # the node's process is gone: as if it had been there and died
            outer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            outer.transport.abort()
            self._tasks.discard(task)
            return
        pair = Pair(outer, inner)
        if self._shunned:
            self._look_up(pair)
        self._pairs.add(pair)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(pair, reader, inner, answer=False))
                both.create_task(self._pump(pair, inner_reader, outer, answer=True))
        except* OSError:
            pair.reset()
        finally:
            self._pairs.discard(pair)
            self._tasks.discard(task)
            outer.close()
            inner.close()

    async def _pump(
        self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answer: bool
    ) -> None:
        while data := await reader.read(PIECE):
            size = max(1, int(self.rate / 10)) if answer and self.rate else PIECE
            for start in range(0, len(data), size):
                piece = data[start : start + size]
                if answer and self.delay:
                    await asyncio.sleep(self.delay)
                if answer and self.rate:
                    await asyncio.sleep(len(piece) / self.rate)
                await self._clear(pair, answer=answer)
                if not answer:
                    self._count(pair, piece)
                elif pair.weights:
                    self.given += len(piece)
                writer.write(piece)
                await writer.drain()
        await self._clear(pair, answer=answer)
        if writer.can_write_eof() and not writer.transport.is_closing():
            writer.write_eof()

    def _count(self, pair: Pair, piece: bytes) -> None:
        """Note the request ids in what goes to the node. Heads may be cut in two: the last line is kept for the next."""
        seen = pair.tail + piece
        pair.weights = pair.weights or b"/node/weights/" in seen
        end = seen.rfind(b"\n")
        for found in _REQUEST.findall(seen[:end]):
            self.reached[found.decode()] += 1
        pair.tail = seen[end:][-512:] if end >= 0 else seen[-512:]
