"""llmgw_site.asgi: which pages may open a websocket."""

from __future__ import annotations

from typing import Any

import pytest
from channels.testing import WebsocketCommunicator

from llmgw_site.asgi import SameOrigin


async def accepts(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})


@pytest.mark.parametrize(
    ("origin", "let_in"),
    [
        (b"http://console.example:8800", True),
        (b"HTTP://Console.Example:8800", True),
        (None, True),  # a program, no browser
        (b"http://console.example:9999", False),
        (b"http://console.example", False),
        (b"http://evil.example", False),
        (b"http://console.example:8800.evil.example", False),
        (b"http://console.example:8800@evil.example", False),
        (b"null", False),
        (b"", False),
    ],
)
async def test_only_a_page_of_the_same_host_and_port_opens_a_websocket(origin: bytes | None, let_in: bool) -> None:
    headers = [(b"host", b"console.example:8800")] + ([] if origin is None else [(b"origin", origin)])
    socket = WebsocketCommunicator(SameOrigin(accepts), "/ws/jobs", headers=headers)
    connected, _ = await socket.connect()
    assert connected is let_in
    await socket.disconnect()
