"""`llmgw gateway`: three listeners in one process and on one event loop.

The sockets are bound before anything is built, so that a taken port is the first thing one hears of. At SIGTERM or
SIGINT the listeners close, running requests have GRACE seconds to end, and what is left is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import uvicorn
import uvloop

from llmgw_site.lib import logs
from llmgw_site.lib.clock import SystemClock
from llmgw_site.lib.config import Config
from llmgw_site.lib.unblocked import Unblocked
from routing.gateway.hop import ADDED_BODY, ADDED_HEAD
from routing.gateway.ledger import SpoolHeldError
from routing.gateway.protocol import protocol_class
from routing.gateway.web_socket import MAX_MESSAGE

log = logging.getLogger(__name__)

GRACE = 8
"""Seconds that running requests have at the end; `llmgw up` allows 10 for everything."""
LAST_WORDS = 1.0
"""Seconds that whoever reads the log has at the very end for what is left of it."""
_BACKLOG = 2048


class PortTakenError(Exception):
    """A listener's address cannot be bound; the text names it and the variables to set."""


@dataclass(frozen=True)
class Listener:
    """One address and the variables it is set by."""

    name: str
    host: str
    port: int
    variable: str

    def bind(self) -> socket.socket:
        """The bound socket. Raises PortTakenError."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        handle = socket.socket(family, socket.SOCK_STREAM)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            handle.bind((self.host, self.port))
            handle.listen(_BACKLOG)  # now, so that two gateways at once cannot both go on
        except OSError as error:
            handle.close()
            what = "is taken by another program" if error.errno == errno.EADDRINUSE else f"cannot be bound: {error}"
            host_variable = self.variable.replace("PORT", "HOST")
            raise PortTakenError(
                f"the {self.name} listener's address {self.host}:{self.port} {what}; "
                f"set {self.variable} (or {host_variable}) to a free one"
            ) from None
        handle.setblocking(False)
        return handle


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to us and says when it accepts."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepts = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepts.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listeners(config: Config) -> tuple[Listener, Listener, Listener]:
    """Client, node and metrics."""
    return (
        Listener("client", config.host, config.port, "LLMGW_PORT"),
        Listener("node", config.node_host, config.node_port, "LLMGW_NODE_PORT"),
        Listener("metrics", config.metrics_host, config.metrics_port, "LLMGW_METRICS_PORT"),
    )


def for_nodes(config: Config) -> Config:
    """The node listener's bounds: what an edge has let in passes, with what it adds to it."""
    return replace(config, max_header_bytes=config.max_header_bytes + ADDED_HEAD, max_body=config.max_body + ADDED_BODY)


def server_for(config: Config, app: Any, *, tls: ssl.SSLContext | None = None) -> _Server:
    """A uvicorn server for one listener, with our bounds."""
    return _Server(
        uvicorn.Config(
            app,
            loop="none",
            interface="asgi3",
            http=protocol_class(config),
            ws="websockets-sansio",
            ws_max_size=MAX_MESSAGE,
            ws_per_message_deflate=False,  # small messages of the console; memory for each connection otherwise
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            ssl_context_factory=(lambda *_: tls) if tls is not None else None,
            timeout_graceful_shutdown=GRACE,
        )
    )


async def run(
    config: Config, *, ready: Callable[[], None] | None = None, gateway: Any = None, out: Unblocked | None = None
) -> None:
    """Serve until SIGTERM or SIGINT, or until cancelled; `ready` is called once all three listeners accept.

    `gateway` is the `routing.gateway.lifespan.Gateway` to serve (default: one built from `config`, whose access log goes to `out`).
    """
    sockets = []
    try:
        for listener in listeners(config):
            sockets.append(listener.bind())
        if gateway is None:
            clock = SystemClock()
            since = clock.monotonic()
            from routing.gateway import lifespan

            gateway = lifespan.build(config, clock=clock, since=since, out=out)
        await gateway.start()
        _calm_collector()
        try:
            await _serve(config, gateway, sockets, ready)
        finally:
            await gateway.stop()
    finally:
        for handle in sockets:
            handle.close()


def _calm_collector() -> None:
    """What is in memory now stays: the cyclic collector need not look at it again, nor come round every few requests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def _serve(config: Config, gateway: Any, sockets: list[socket.socket], ready: Callable[[], None] | None) -> None:
    loop = asyncio.get_running_loop()
    servers = [
        server_for(config, gateway.app),
        server_for(for_nodes(config), gateway.node_app, tls=gateway.node_tls),
        server_for(config, gateway.metrics_app),
    ]

    def stop() -> None:
        for server in servers:
            server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    tasks = [asyncio.ensure_future(server.serve([handle])) for server, handle in zip(servers, sockets, strict=True)]
    try:
        accept = asyncio.gather(*(server.accepts.wait() for server in servers))
        first: list[asyncio.Future[Any]] = [accept, *tasks]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if accept.done():
            logs.event(log, "gateway_ready", client=f"{config.host}:{config.port}", node_port=config.node_port)
            if ready is not None:
                ready()
        accept.cancel()
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        stop()  # one that ends by itself takes the others along: the supervisor starts all anew
        await asyncio.gather(*tasks)
        logs.event(log, "gateway_stopped")
    finally:
        stop()
        await asyncio.gather(*tasks, return_exceptions=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def main(config: Config) -> None:
    """The process `llmgw gateway`. Exits with 2 where an address cannot be bound, or another gateway has the data."""
    out = Unblocked()
    logs.setup(process="gateway", level=config.log_level, style=config.log_style, stream=out)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # its start and stop are told by us
    try:
        uvloop.run(run(config, out=out))
    except (PortTakenError, SpoolHeldError) as error:
        name = "port_taken" if isinstance(error, PortTakenError) else "spool_held"
        logs.event(log, name, level=logging.ERROR, message=str(error))
        print(f"llmgw gateway: {error}", file=sys.stderr)  # noqa: T201 - for whoever started it by hand
        sys.exit(2)
    finally:
        out.drain(LAST_WORDS)
