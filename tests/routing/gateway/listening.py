"""A listener of the gateway around any ASGI application, in the test's own event loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from llmgw_site.lib.config import Config, load
from routing.gateway.serve import Listener, server_for


def configured(data: Path, **variables: Any) -> Config:
    """Settings with the data folder `data`; `variables` without their LLMGW_ prefix."""
    return load({"LLMGW_DATA": str(data), **{f"LLMGW_{name}": str(value) for name, value in variables.items()}})


@asynccontextmanager
async def listening(
    app: Any, config: Config, *, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[int]:
    """The port on which `app` is served as a listener of the gateway serves it."""
    handle = Listener("client", "127.0.0.1", port, "LLMGW_PORT").bind()
    server = server_for(config, app, tls=tls)
    task = asyncio.ensure_future(server.serve([handle]))
    await server.accepts.wait()
    try:
        yield handle.getsockname()[1]
    finally:
        server.config.timeout_graceful_shutdown = 1
        server.should_exit = True
        await task
