"""One request to a byte server, for the tests of the HTTP/1.1 client."""

from __future__ import annotations

from typing import Any

from routing.gateway.upstream import Response, Target, Upstream
from tests.routing.gateway.scripted import Peer

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def ask(client: Upstream, target: Target, **given: Any) -> Response:
    arguments: dict[str, Any] = {
        "method": b"POST",
        "path": b"/v1/x",
        "headers": [],
        "body": b"{}",
        "first_byte_timeout": 60.0,
        "idle_timeout": 60.0,
    }
    return await client.request(target, **(arguments | given))


async def drain(response: Response) -> bytes:
    out = b""
    while piece := await response.read():
        out += piece
    return out


def answering(*answers: bytes) -> Any:
    """A handler that answers each request of a connection with the next of `answers`, then closes."""

    async def handle(peer: Peer) -> None:
        for answer in answers:
            if not await peer.request():
                return
            await peer.send(answer)

    return handle
