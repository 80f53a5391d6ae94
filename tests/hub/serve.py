"""Runs a test hub in a thread of its own, on two loopback addresses: one for the API, one as the host of large files."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from tests.hub.app import Hub

API, FILES = "127.0.0.1", "127.0.0.2"


@contextmanager
def running(hub: Hub | None = None) -> Iterator[Hub]:
    """A hub that answers until the block ends."""
    hub = hub or Hub()
    sockets = []
    for host in (API, FILES):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, 0))
        sockets.append(listener)
    hub.base, hub.files = (
        f"http://{host}:{item.getsockname()[1]}" for host, item in zip((API, FILES), sockets, strict=True)
    )
    config = uvicorn.Config(hub, log_level="critical", access_log=False, timeout_graceful_shutdown=1, ws="none")
    server = uvicorn.Server(config)
    ready = threading.Event()

    async def startup(sockets: list[socket.socket] | None = None) -> None:
        await original(sockets)
        ready.set()

    original, server.startup = server.startup, startup  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run, kwargs={"sockets": sockets}, daemon=True)
    thread.start()
    try:
        if not ready.wait(20):
            raise TimeoutError("the test hub did not start")
        yield hub
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(10)
        for item in sockets:
            item.close()
