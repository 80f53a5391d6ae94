"""Small whole answers that the gateway gives by itself where no request to a model is at stake."""

from __future__ import annotations

from typing import Any

import orjson

ASGISend = Any  # uvicorn's send: a coroutine function of one message


def envelope(status: int, code: str, message: str) -> bytes:
    """The OpenAI error object."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return orjson.dumps({"error": {"message": message, "type": kind, "code": code, "param": None}})


async def send_error(
    send: ASGISend, status: int, code: str, message: str, *, retry_after: int | None = None, close: bool = False
) -> None:
    """Answer with an OpenAI error object; `close` ends the connection after it."""
    headers = [(b"retry-after", b"%d" % retry_after)] if retry_after is not None else []
    if close:
        headers.append((b"connection", b"close"))
    await send_whole(send, status, b"application/json", envelope(status, code, message), headers)


async def send_whole(
    send: ASGISend, status: int, content_type: bytes, body: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    """Answer with `body`."""
    head = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
