"""The node listener answers nodes, by signature, and nobody else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cluster.domain.signing import HEADERS
from llmgw_site.lib.config import Config
from routing.gateway import lifespan
from tests.routing.gateway.listening import configured, listening
from tests.routing.gateway.scripted import connected
from tests.routing.gateway.test_web_proxy import Echo, web

LINES = [b"%b: 1\r\n" % name.encode() for name in HEADERS]
SIGNED = b"".join(LINES)


async def ask(port: int, request: bytes) -> tuple[int, str]:
    async with connected(port) as client:
        await client.send(request)
        status, _, body = await client.response()
        return status, json.loads(body)["error"]["code"] if status >= 400 else body.decode()


@asynccontextmanager
async def node_listener(config: Config) -> AsyncIterator[int]:
    """The port of a node listener; the gateway behind it has not been started."""
    gateway = lifespan.build(config)
    async with listening(gateway.node_app, config) as port:
        yield port
    await gateway.upstream.close()


async def test_only_signed_calls_to_agent_paths_and_joining_reach_web(tmp_path: Path) -> None:
    config, app = configured(tmp_path), Echo()
    async with web(config, app), node_listener(config) as port:
        post = b"POST %b HTTP/1.1\r\nhost: n\r\ncontent-length: 2\r\n%b\r\nhi"
        key = b"authorization: Bearer sk-llmgw-x\r\n"
        unsigned = (401, "node_signature_required")
        for path in (b"/v1/chat/completions", b"/v1/models", b"/api/v1/agent/heartbeat", b"/api/v1/node/models", b"/x"):
            assert await ask(port, post % (path, key)) == unsigned
            assert await ask(port, post % (path, b"".join(LINES[:-1]))) == unsigned
            if not path.startswith(b"/api/v1/agent"):  # signed by nobody that this node knows
                assert (await ask(port, post % (path, SIGNED)))[0] == 401
        assert not app.scopes
        assert await ask(port, post % (b"/api/v1/agent/heartbeat", SIGNED)) == (201, "<hi>")
        assert await ask(port, post % (b"/api/v1/agent/join", b"")) == (201, "<hi>")
        assert await ask(port, post % (b"/api/v1/agent/joint", b"")) == unsigned
        assert await ask(port, b"GET /healthz HTTP/1.1\r\nhost: n\r\n\r\n") == (200, '{"status":"ok"}')
        big = b"POST /api/v1/agent/usage HTTP/1.1\r\ncontent-length: 90000000\r\n%b\r\n%b" % (SIGNED, b"x" * 10)
        assert await ask(port, big) == (413, "body_too_large")


async def test_the_agents_websocket_goes_to_web_only_with_a_signature(tmp_path: Path) -> None:
    config, app = configured(tmp_path), Echo()
    async with web(config, app), node_listener(config) as port:
        get = (
            b"GET %b HTTP/1.1\r\nhost: n\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n%b\r\n"
        )
        for path, headers in ((b"/ws/agent", b""), (b"/ws/console", SIGNED), (b"/ws/agent/x", SIGNED)):
            async with connected(port) as client:
                await client.send(get % (path, headers))
                assert b" 403 " in await client.reader.readline()
        assert not app.scopes
        async with connected(port) as client:
            await client.send(get % (b"/ws/agent", SIGNED))
            assert b" 101 " in await client.reader.readline()
        assert [scope["path"] for scope in app.scopes] == ["/ws/agent"]
