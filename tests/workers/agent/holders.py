"""Nodes that hold weights: the node listeners of real gateways over real sockets, with faults between; and a node that asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from cluster.wire import FetchSource
from routing.gateway import lifespan
from tests.routing.gateway.certs import Authority
from tests.routing.gateway.listening import listening
from tests.routing.gateway.nodes import Cluster, Node
from tests.routing.gateway.stored import VERSION, put
from workers.agent.identity import Identity
from workers.agent.node_map import NodeMap
from workers.agent.sources import NodeCalls
from workers.agent.tls import Tls


class Holder:
    """A node that gives weights. Faults are off until a test sets them; `sent`: bytes of files, `asked`: their ranges."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.app: Any = None
        self.tls: Any = None
        self.status = 0
        self.stalls = False
        self.cut_after: int | None = None
        self.wrong = False
        self.lie = ""
        self.pause = 0.0
        self.asked: list[str] = []
        self.sent = 0
        self.under_way = 0

    @property
    def source(self) -> FetchSource:
        return FetchSource(node_id=self.node.node_id, address=self.node.address)

    @property
    def store(self) -> Path:
        return self.node.config.store

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """The gateway's node listener; with a fault, or where bytes are counted one by one, not by the kernel."""
        self.asked.append(next((value.decode() for name, value in scope["headers"] if name == b"range"), ""))
        while self.stalls:
            await asyncio.sleep(0.01)
        if self.status:
            await send({"type": "http.response.start", "status": self.status, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        cycle = scope.pop("llmgw.cycle")()
        given, gives = 0, False

        async def counted(message: Any) -> None:
            nonlocal given, gives
            if cycle.disconnected:  # the server would take it and throw it away
                raise asyncio.CancelledError
            body = message.get("body", b"")
            gives = message["status"] < 300 if "status" in message else gives
            if self.cut_after is not None and given + len(body) > self.cut_after:
                body, message = body[: self.cut_after - given], {**message, "more_body": True}
            if self.wrong and body:
                message = {**message, "body": bytes(body[:-1]) + bytes([body[-1] ^ 1])}
            elif body:
                message = {**message, "body": body}
            if self.lie and gives:
                message = lying(message, self.lie)
            given += len(body)
            self.sent += len(body) if gives else 0
            await send(message)
            if self.cut_after is not None and given >= self.cut_after:
                await asyncio.sleep(0.05)  # what was sent arrives
                cycle.transport.abort()
                raise asyncio.CancelledError
            began = time.monotonic()
            while body and (left := began + self.pause - time.monotonic()) > 0:  # a test may end it
                await asyncio.sleep(min(left, 0.02))

        self.under_way += 1
        try:
            await self.app(scope, receive, counted)
        except asyncio.CancelledError:
            if self.cut_after is None and not cycle.disconnected:
                raise
        finally:
            self.under_way -= 1

    async def idle(self) -> None:
        """Nobody is being sent anything."""
        while self.under_way:
            await asyncio.sleep(0.01)


def lying(message: Any, lie: str) -> Any:
    """A part of an answer that says something else of a file than what it is, or of its bytes brings none."""
    if "headers" not in message:
        return {**message, "body": b""} if lie == "empty" else message
    headers = dict(message["headers"])
    if lie == "length":
        headers[b"content-length"] = b"%d" % (int(headers[b"content-length"]) - 1)
    elif lie == "total":
        headers[b"content-range"] = headers[b"content-range"].partition(b"/")[0] + b"/99"
    elif lie == "encoding":
        headers[b"content-encoding"] = b"gzip"
    else:
        del headers[b"content-length"]
    return {**message, "headers": list(headers.items())}


class Town:
    """A cluster's nodes: `hold` adds one that has weights, `asker` is the one that wants them."""

    def __init__(self, folder: Path, stack: AsyncExitStack, scheme: str = "http") -> None:
        self.cluster, self._stack, self.scheme = Cluster(folder), stack, scheme
        self.authority = Authority()
        self.asker = self.cluster.add("asker", "inference")
        self._gateways: list[lifespan.Gateway] = []
        if scheme == "https":
            self.authority.give(self.asker.config.tls_folder, self.asker.node_id)

    async def hold(
        self, name: str, content: Mapping[str, bytes], *, version: str = VERSION, authority: Authority | None = None
    ) -> Holder:
        node = self.cluster.add(name, "data")
        holder = Holder(node)
        put(node.config.store, content, version=version)
        if self.scheme == "https":
            (authority or self.authority).give(node.config.tls_folder, node.node_id)
        self.cluster.publish()
        gateway = lifespan.build(node.config)
        gateway.members.look()
        self._gateways.append(gateway)
        self._stack.push_async_callback(gateway.upstream.close)
        self._stack.callback(gateway.weights.close)
        holder.app = gateway.node_app
        tls = gateway.members.certificates.server if self.scheme == "https" else None
        port = await self._stack.enter_async_context(listening(holder, node.config, tls=tls))
        node.address = f"{self.scheme}://127.0.0.1:{port}"
        self.publish()
        return holder

    def publish(self) -> None:
        """The map as it is now, to all."""
        self.cluster.publish()
        for gateway in self._gateways:
            gateway.members.look()

    def calls(self) -> NodeCalls:
        """The asker's."""
        config = self.asker.config
        node_map = NodeMap(config.map_file, time.time)
        return NodeCalls(Identity.read(config.node_file), node_map=node_map, tls=Tls(config.tls_folder), now=time.time)


@asynccontextmanager
async def town(folder: Path, scheme: str = "http") -> AsyncIterator[Town]:
    async with AsyncExitStack() as stack:
        yield Town(folder, stack, scheme)
