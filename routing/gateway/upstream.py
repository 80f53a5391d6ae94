"""The data path's HTTP/1.1 client: `Upstream.request` gives a `Response` as soon as its head has come.

Keeps idle connections per target and lets go of them before the other side would. A request is written once: where a
kept connection turns out to be closed before a byte of it was written, another is taken; after that byte, whatever
happens is an error that says whether the request may have run (`UpstreamError.reached`).

    NotReached                no connection: may be tried elsewhere
    TooSlow(stage="connect")  the same, after `connect_timeout`
    TooSlow, Broken           accepted, then silent or broken: never sent again

A task that is cancelled in `request` or `Response.read` drops its connection at once, so an engine stops its work. `SENT` in
its CancelledError says that the request had been written.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Callable, Container
from typing import NamedTuple

from routing.gateway.certificates import PeerCertificate
from routing.gateway.connection import Connection, Limits
from routing.gateway.response import Broken, Headers, NotReached, Response, TooSlow, UpstreamError

__all__ = ["Broken", "Headers", "Limits", "NotReached", "Response", "Target", "TooSlow", "Upstream", "UpstreamError"]

_SMALL = 64 * 1024  # a body up to this size is copied behind its head: one buffer, one write
_BODILESS = (b"GET", b"HEAD", b"DELETE", b"OPTIONS")
SENT = "sent"
"""See above."""


class Target(NamedTuple):
    """Where a request goes: a host and port, with TLS if `tls` is given, or the unix socket `uds`.

    With TLS: `server_name` is the name that the certificate must have (default: the host's), `refused` holds
    certificates that are not accepted although they verify.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    uds: str | None = None
    server_name: str | None = None
    refused: Container[PeerCertificate] | None = None

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


class _Pool:
    """The connections to one target; the idle ones in the order of their release."""

    __slots__ = ("_limits", "_sweep_later", "connecting", "host", "idle", "open", "target")

    def __init__(self, target: Target, limits: Limits, sweep_later: Callable[[], None]) -> None:
        self.target = target
        self.host = target.authority.encode("idna" if not target.authority.isascii() else "ascii")
        self.idle: list[Connection] = []
        self.open: set[Connection] = set()
        self.connecting = 0
        self._limits = limits
        self._sweep_later = sweep_later

    def take(self, now: float) -> Connection | None:
        """The youngest idle connection that is rested and can be used; those that cannot are closed on the way."""
        for place in range(len(self.idle) - 1, -1, -1):
            connection = self.idle[place]
            if connection.rested_at > now:
                continue
            del self.idle[place]
            if connection.fit(now):
                return connection
            connection.close()
        return None

    def drop(self, oldest: float) -> None:
        """Close what has been idle since `oldest` or longer."""
        while self.idle and self.idle[0].idle_since <= oldest:
            self.idle.pop(0).close()

    def opened(self, connection: Connection) -> None:
        self.open.add(connection)

    def released(self, connection: Connection) -> None:
        if len(self.idle) < self._limits.idle_connections:
            self.idle.append(connection)
            self._sweep_later()
        else:
            connection.close()

    def lost(self, connection: Connection) -> None:
        self.open.discard(connection)
        if connection in self.idle:
            self.idle.remove(connection)


class Upstream:
    """One per event loop; every target shares its bounds."""

    def __init__(self, *, connect_timeout: float, limits: Limits | None = None) -> None:
        self._connect_timeout = connect_timeout
        self._limits = limits or Limits()
        self._pools: dict[Target, _Pool] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    async def request(
        self,
        target: Target,
        *,
        method: bytes,
        path: bytes,
        headers: Headers,
        body: bytes | AsyncIterator[bytes] = b"",
        first_byte_timeout: float,
        idle_timeout: float,
        length: int | None = None,
        host: bytes | None = None,
        silence: float = math.inf,
        interim: Callable[[Headers], object] | None = None,
    ) -> Response:
        """Send one request and wait for the head of its answer.

        `path` is the raw request target. `headers` are sent as they are, after Host and the framing, which are set
        here: Host from the target unless `host` is given, Content-Length from the body or from `length` for a
        streamed one, else chunked. An answer that comes before a streamed body's end stops the sending.

        `first_byte_timeout` runs from the request's end to the answer's first body byte (a head alone says nothing of
        the work), `idle_timeout` between two reads of the socket after it; any byte counts as life, and time in which
        our own reader is the slow one does not count. `silence` bounds the time between two reads before the answer's head,
        of who sends interim answers (1xx) while a request waits; `interim` is told their headers. Raises UpstreamError; ValueError for a line break in a header.
        """
        pool = self._pools.get(target)
        if pool is None:
            pool = self._pools[target] = self._pool(target)
        whole = body if isinstance(body, bytes) else None
        head = _head(method, path, host or pool.host, headers, len(whole) if whole is not None else length)
        connection = pool.take(asyncio.get_running_loop().time()) or await self._connect(pool)
        response = connection.begin(first_byte_timeout, idle_timeout, no_body=method == b"HEAD", silence=silence)
        response.interim = interim
        if whole is not None:
            if len(whole) <= _SMALL:
                connection.write(head + whole)
            else:
                connection.write(head)
                connection.write(whole)
        else:
            connection.write(head)
            assert not isinstance(body, bytes)
            await _stream(connection, response, body, chunked=length is None)
        try:
            while not response.status and not response._done:
                await response._wait()
        except asyncio.CancelledError as error:
            error.args = (SENT,)
            raise
        if not response.status:
            assert response._error is not None
            raise response._error
        return response

    @property
    def connections(self) -> int:
        """Open connections, idle ones included."""
        return sum(len(pool.open) for pool in self._pools.values())

    async def close(self) -> None:
        """Drop every connection; answers that are being read end as Broken."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        while any(pool.open or pool.connecting for pool in self._pools.values()):
            for pool in self._pools.values():
                for connection in list(pool.open):  # those too that came to be meanwhile
                    connection.close()
            await asyncio.sleep(0.01)  # a round of the loop or two, until each socket is closed

    def _pool(self, target: Target) -> _Pool:
        try:
            return _Pool(target, self._limits, self._sweep_later)
        except UnicodeError as error:
            raise NotReached(f"{target.authority} is no host name: {error}") from None

    async def _connect(self, pool: _Pool) -> Connection:
        if self._closed:
            raise NotReached("the gateway is stopping")
        loop = asyncio.get_running_loop()
        target = pool.target
        made: list[Connection] = []

        def make() -> Connection:
            made.append(Connection(loop, self._limits, pool))
            return made[-1]

        pool.connecting += 1
        try:
            async with asyncio.timeout(self._connect_timeout):
                if target.uds is not None:
                    _, connection = await loop.create_unix_connection(make, target.uds, ssl=target.tls)
                else:
                    name = target.server_name if target.tls is not None else None
                    _, connection = await loop.create_connection(
                        make, target.host, target.port, ssl=target.tls, server_hostname=name
                    )
        except BaseException as error:
            for half in made:  # uvloop closes a connect that is given up as it succeeds without a word to its protocol
                pool.lost(half)
            if isinstance(error, TimeoutError):
                raise TooSlow("connect", self._connect_timeout) from None
            if isinstance(error, (OSError, ValueError)):  # the latter for what is no host name
                raise NotReached(f"{target.uds or target.authority} cannot be reached: {error}") from error
            raise
        finally:
            pool.connecting -= 1
        if target.refused is not None and connection.certificate in target.refused:
            connection.close()
            raise NotReached(f"{target.authority} showed a certificate that was revoked")
        return connection

    def _sweep_later(self) -> None:
        if self._sweeper is None and not self._closed:
            self._sweeper = asyncio.get_running_loop().call_later(1.0, self._sweep)

    def _sweep(self) -> None:
        """Close what has been idle for too long; comes back each second while something is idle."""
        self._sweeper = None
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._limits.idle_connection
        for target, pool in list(self._pools.items()):
            pool.drop(oldest)
            if not pool.open and not pool.connecting:
                del self._pools[target]  # targets come and go; the next request makes it again
        if any(pool.idle for pool in self._pools.values()):
            self._sweep_later()


def _head(method: bytes, path: bytes, host: bytes, headers: Headers, length: int | None) -> bytes:
    framing = b""
    if length is None:
        framing = b"transfer-encoding: chunked\r\n"
    elif length or method not in _BODILESS:
        framing = b"content-length: %d\r\n" % length
    fields = b"".join([b"%b: %b\r\n" % item for item in headers])
    head = b"%b %b HTTP/1.1\r\nhost: %b\r\n%b%b\r\n" % (method, path, host, framing, fields)
    lines = 3 + bool(framing) + len(headers)
    if head.count(b"\n") != lines or head.count(b"\r") != lines:
        raise ValueError("a line break in a request line or header")
    return head


async def _stream(connection: Connection, response: Response, body: AsyncIterator[bytes], *, chunked: bool) -> None:
    """Send a streamed body until its end, or until the answer comes or fails. Its own exceptions come through."""
    sender = asyncio.ensure_future(connection.send(body, chunked=chunked))
    answer = asyncio.ensure_future(response._wait())
    try:
        await asyncio.wait({sender, answer}, return_when=asyncio.FIRST_COMPLETED)
        if sender.done() and not sender.cancelled() and (error := sender.exception()) is not None:
            raise error
        if not answer.done():
            await answer
    except BaseException:
        response.abort()
        raise
    finally:
        for task in (sender, answer):
            if not task.done():
                task.cancel()
        await asyncio.gather(sender, answer, return_exceptions=True)
