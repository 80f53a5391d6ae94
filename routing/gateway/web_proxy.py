"""Hands requests and websockets to `web` over its unix socket, streaming both ways.

`web` sees the original Host (`web` on the node listener, whose name is no business of the console's), and `x-forwarded-for`,
`-proto`, `-host` and `x-llmgw-listener` as set here: whatever a client sends of these is dropped (but whom a proxy of
LLMGW_TRUSTED_PROXIES heard), as are all `x-llmgw-*` on the client listener (nodes use them among themselves) and
names with an underscore, which Django would read as if they had a hyphen.
When `web` is down only its own pages are: 503 with Retry-After, JSON under /api, else a small page.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import HTTP_STATUS, Kind, Refused
from llmgw_site.lib.logs import event
from routing.domain import forwarded
from routing.gateway.answers import send_refusal, send_whole
from routing.gateway.upstream import Headers, Target, TooSlow, Upstream, UpstreamError
from routing.gateway.web_socket import relay

log = logging.getLogger(__name__)

CLIENT, NODE = "client", "node"
AGENT_PATHS = "/api/v1/agent"
"""Answered on the node listener only."""

_UNSIZED = 1024 * 1024
"""Bytes of a body without a length, which is held here until it is whole, for anybody: no key has been checked yet."""
_FIRST_BYTE, _IDLE = 120.0, 300.0  # seconds; pages that take longer are jobs
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""RFC 9110 §7.6.1: they speak of one connection."""
_SET_HERE = frozenset((b"host", b"content-length", b"expect", b"forwarded", b"x-real-ip"))
_DOWN_PAGE = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="3"><title>llmgw</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:20vh auto;padding:0 1rem}</style></head>
<body><h1>The console is starting or not running</h1>
<p>Chats go on: the OpenAI endpoint under <code>/v1/</code> does not need it. This page tries again every 3 seconds.</p>
</body></html>
"""


class _ClientGoneError(Exception):
    """The client left before its request was complete."""


class _TooMuchError(Exception):
    """A body went over the bound, given in bytes."""


class WebProxy:
    """ASGI application for what `web` answers on one listener (CLIENT or NODE); `max_body` is in bytes."""

    def __init__(self, config: Config, upstream: Upstream, *, listener: str, max_body: int | None = None) -> None:
        self._upstream = upstream
        self._listener = listener
        self._max_body = max_body or config.max_body
        self._trusted = config.trusted_proxies if listener == CLIENT else ()
        self._target = Target("web", 80, uds=str(config.web_socket))
        public = urlsplit(config.public_url)
        self._public_host = public.netloc.encode().lower()
        self._public_scheme = public.scheme.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        hidden = self._listener == CLIENT and (scope["path"] + "/").startswith(AGENT_PATHS + "/")
        if scope["type"] == "websocket":
            await relay(self._target.uds, scope, self._headers(scope), receive, send)
        elif hidden:
            message = f"There is no {scope['path']} here: nodes use the node listener, port 8880 unless set."
            await send_refusal(send, Refused(Kind.NOT_FOUND, "not_found", message))
        else:
            await self._http(scope, receive, send)

    def _headers(self, scope: Any) -> Headers:
        """What `web` is sent: the client's headers without those that are not its business, and ours."""
        kept, host, named, heard = [], b"", frozenset[bytes](), list[str]()
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"connection":
                named = frozenset(part.strip().lower() for part in value.split(b","))
            elif name == b"x-forwarded-for":
                heard.append(value.decode("latin-1"))
        for name, value in scope["headers"]:
            ours = name.startswith((b"x-forwarded-", b"x-llmgw-listener")) or b"_" in name
            internal = self._listener == CLIENT and name.startswith(b"x-llmgw-")
            if not (ours or internal or name in _HOP_BY_HOP or name in _SET_HERE or name in named):
                kept.append((name, value))
        scheme = b"https" if scope["scheme"] in ("https", "wss") else b"http"
        if self._public_host and host.lower() == self._public_host:
            scheme = self._public_scheme  # a TLS proxy of the operator's stands before us
        peer = scope["client"][0] if scope.get("client") else "unknown"
        kept += [
            (b"x-forwarded-for", forwarded.client(peer, heard, self._trusted).encode()),
            (b"x-forwarded-proto", scheme),
            (b"x-forwarded-host", host),
            (b"x-llmgw-listener", self._listener.encode()),
        ]
        return kept

    async def _http(self, scope: Any, receive: Any, send: Any) -> None:
        body_read = asyncio.Event()
        pump = asyncio.ensure_future(self._exchange(scope, receive, send, body_read))
        gone = asyncio.ensure_future(_client_gone(receive, body_read))
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pump, gone):
                task.cancel()  # a client that is gone cancels what `web` does for it
            await asyncio.gather(pump, gone, return_exceptions=True)
        if not pump.cancelled() and (error := pump.exception()) is not None:
            raise error

    async def _exchange(self, scope: Any, receive: Any, send: Any, body_read: asyncio.Event) -> None:
        path = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        host = next((value for name, value in scope["headers"] if name == b"host"), b"localhost")
        try:
            body, length = await self._body(scope, receive, body_read)
            response = await self._upstream.request(
                self._target,
                method=scope["method"].encode(),
                path=path,
                headers=self._headers(scope),
                body=body,
                length=length,
                host=b"web" if self._listener == NODE else host,
                first_byte_timeout=_FIRST_BYTE,
                idle_timeout=_IDLE,
            )
        except _ClientGoneError:
            return
        except _TooMuchError as error:
            message = f"The request body is over the bound of {error} bytes: send less, and name its length."
            await send_refusal(send, Refused(Kind.TOO_LARGE, "body_too_large", message), close=True)
            return
        except UpstreamError as error:
            await self._failed(scope, send, error)
            return
        body_read.set()
        no_length = response.status in (204, 304)  # uvicorn would wait for the body that a length speaks of
        headers = [
            (name, value)
            for name, value in response.headers
            if name not in _HOP_BY_HOP
            and name not in (b"date", b"server")
            and not (no_length and name == b"content-length")
        ]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        try:
            while piece := await response.read():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except UpstreamError as error:
            # Without its end the client's connection is closed by uvicorn: the client sees that it is cut.
            event(log, "web_answer_cut", path=scope["path"], reason=str(error), level=logging.WARNING)
            return
        finally:
            response.abort()  # whatever ended the sending; harmless after the answer's end
        await send({"type": "http.response.body", "body": b""})

    async def _body(
        self, scope: Any, receive: Any, body_read: asyncio.Event
    ) -> tuple[bytes | AsyncIterator[bytes], int | None]:
        """The request body, whole if it has come already or has no length (Django wants one), else as it comes."""
        first = await receive()
        if first["type"] != "http.request":
            raise _ClientGoneError
        if not first.get("more_body"):
            body_read.set()
            return first["body"], None
        length = next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)
        if length is None:
            bound = min(self._max_body, _UNSIZED)
            return b"".join([piece async for piece in _pieces(first["body"], receive, body_read, bound)]), None
        if length > self._max_body:
            raise _TooMuchError(self._max_body)
        return _pieces(first["body"], receive, body_read, self._max_body), length

    async def _failed(self, scope: Any, send: Any, error: UpstreamError) -> None:
        """`web` gave no answer: it is down, too slow, or broke off."""
        event(log, "web_failed", path=scope["path"], reason=str(error), level=logging.WARNING)
        refused = _refusal(error)
        if scope["path"].startswith("/api/"):
            await send_refusal(send, refused)
        else:
            headers = [(b"retry-after", b"2"), (b"cache-control", b"no-store")]
            await send_whole(send, HTTP_STATUS[refused.kind], b"text/html; charset=utf-8", _DOWN_PAGE, headers)


def _refusal(error: UpstreamError) -> Refused:
    """1. nothing reached `web`; 2. it was too slow; 3. it broke off."""
    if not error.reached:  # 1
        message = "The admin server is starting or not running: try again in a few seconds. Chats go on."
        return Refused(Kind.UNAVAILABLE, "web_unavailable", message, retry_after=2)
    if isinstance(error, TooSlow):  # 2
        message = f"The admin server did not answer within {error.seconds:g} s; the request may have been carried out."
        return Refused(Kind.TIMEOUT, "web_too_slow", message)
    message = "The admin server broke off; the request may have been carried out: look before sending it again."  # 3
    return Refused(Kind.UPSTREAM, "web_broken", message)


async def _pieces(first: bytes, receive: Any, body_read: asyncio.Event, bound: int) -> AsyncIterator[bytes]:
    message: dict[str, Any] = {"body": first, "more_body": True}
    total = 0
    while True:
        piece = message.get("body", b"")
        total += len(piece)
        if total > bound:
            raise _TooMuchError(bound)
        if piece:
            yield piece
        if not message.get("more_body"):
            body_read.set()
            return
        message = await receive()
        if message["type"] != "http.request":
            raise _ClientGoneError


async def _client_gone(receive: Any, body_read: asyncio.Event) -> None:
    """Ends when the client does; `receive` is the body's until that is read."""
    await body_read.wait()
    while (await receive())["type"] != "http.disconnect":
        pass
