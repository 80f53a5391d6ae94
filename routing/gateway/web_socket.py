"""Relays one websocket between a client and `web`, message by message, with bounded queues both ways.

Both libraries stop reading their socket while the other side does not take what came, so a slow reader slows the sender.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Origin, Subprotocol

from llmgw_site.lib.logs import event
from routing.gateway.response import Headers

log = logging.getLogger(__name__)

MAX_MESSAGE = 1024 * 1024
"""Bytes of one message, either way."""
_QUEUE = 16  # messages
_OPEN_TIMEOUT = 10.0
_HOST = re.compile(r"[A-Za-z0-9._-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")
"""A Host header becomes part of an address: one with a slash, a question mark or an @ would change the rest of it."""
_OF_THE_HANDSHAKE = (b"sec-websocket-", b"origin", b"user-agent")


async def relay(socket: str | None, scope: Any, headers: Headers, receive: Any, send: Any) -> None:
    """Connect to `web` at the unix socket, tell the client how that went, then relay until one side ends."""
    await receive()  # websocket.connect
    given = {name: value.decode("latin-1") for name, value in scope["headers"]}
    if not _HOST.fullmatch(given.get(b"host", "localhost")):
        await _refuse(send, 400, b"The Host header is no host.")
        return
    path = scope["raw_path"].decode("ascii") + (
        f"?{scope['query_string'].decode('ascii')}" if scope["query_string"] else ""
    )
    extra = [(n.decode(), v.decode("latin-1")) for n, v in headers if not n.startswith(_OF_THE_HANDSHAKE)]
    try:
        web = await unix_connect(
            socket,
            f"ws://{given.get(b'host', 'localhost')}{path}",
            origin=Origin(given[b"origin"]) if b"origin" in given else None,
            subprotocols=[Subprotocol(name) for name in scope["subprotocols"]] or None,
            additional_headers=extra,
            user_agent_header=given.get(b"user-agent"),
            compression=None,  # it is the same machine
            max_size=MAX_MESSAGE,
            max_queue=_QUEUE,
            open_timeout=_OPEN_TIMEOUT,
            ping_interval=None,  # the client's own listener pings; two would only add noise
            proxy=None,
        )
    except InvalidStatus as refusal:
        await _refuse(send, refusal.response.status_code, bytes(refusal.response.body or b""))
        return
    except (OSError, WebSocketException, ValueError) as error:
        event(log, "web_failed", path=scope["path"], reason=str(error), level=logging.WARNING)
        await _refuse(send, 503, b"The console is starting or not running.")
        return
    try:
        cookies = [(b"set-cookie", value.encode("latin-1")) for value in _cookies(web)]
        await send({"type": "websocket.accept", "subprotocol": web.subprotocol, "headers": cookies})
        up = asyncio.ensure_future(_to_web(receive, web))
        down = asyncio.ensure_future(_to_client(web, send))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
    finally:
        await web.close()


def _cookies(web: ClientConnection) -> list[str]:
    return web.response.headers.get_all("set-cookie") if web.response is not None else []


async def _to_web(receive: Any, web: ClientConnection) -> None:
    while True:
        message = await receive()
        if message["type"] != "websocket.receive":
            code = message.get("code") or 1000
            await web.close(code if code in range(1000, 1004) or code in range(1007, 5000) else 1001)
            return
        text = message.get("text")
        try:
            await web.send(text if text is not None else message["bytes"])
        except ConnectionClosed:
            return


async def _to_client(web: ClientConnection, send: Any) -> None:
    try:
        async for message in web:
            await send({"type": "websocket.send", "text" if isinstance(message, str) else "bytes": message})
    except ConnectionClosed:
        pass
    code = web.close_code or 1011
    await send(
        {
            "type": "websocket.close",
            "code": 1011 if code in (1005, 1006, 1015) else code,
            "reason": web.close_reason or "",
        }
    )


async def _refuse(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    if status == 503:
        headers.append((b"retry-after", b"2"))
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
