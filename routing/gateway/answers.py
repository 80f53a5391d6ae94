"""Whole answers that the gateway gives by itself, as ASGI messages or as bytes for a connection that ends."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from llmgw_site.lib.errors import Refused
from routing.domain.endpoints import Shape
from routing.gateway.errors import render

Headers = list[tuple[bytes, bytes]]


async def send_refusal(send: Any, refused: Refused, *, close: bool = False) -> None:
    """Answer with the OpenAI error object; `close` ends the connection after it."""
    status, headers, body = render(refused)
    await _send(send, status, [*headers, (b"connection", b"close")] if close else headers, body)


async def refuse_socket(send: Any, refused: Refused) -> None:
    """The same in place of a websocket's handshake."""
    status, headers, body = render(refused)
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


async def send_whole(send: Any, status: int, content_type: bytes, body: bytes, headers: Headers | None = None) -> None:
    """Answer with `body`."""
    head = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *(headers or [])]
    await _send(send, status, head, body)


async def _send(send: Any, status: int, headers: Headers, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def last_answer(refused: Refused, request_id: str, shape: Shape = Shape.OPENAI) -> bytes:
    """The refusal as the bytes of a connection's last answer; `request_id` is what its log line says."""
    status, headers, body = render(refused, shape)
    lines = b"".join(b"%b: %b\r\n" % header for header in [*headers, (b"x-request-id", request_id.encode())])
    return b"%b%bconnection: close\r\n\r\n%b" % (STATUS_LINE[status], lines, body)
