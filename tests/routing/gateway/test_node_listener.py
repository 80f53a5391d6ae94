"""The node listener answers nodes, by signature headers, and nobody else."""

from __future__ import annotations

import json
from pathlib import Path

from cluster.domain.signing import HEADERS
from routing.gateway.node_listener import NodeListener
from routing.gateway.upstream import Upstream
from routing.gateway.web_proxy import NODE, WebProxy
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


async def test_only_signed_calls_to_agent_paths_reach_web(tmp_path: Path) -> None:
    config, app = configured(tmp_path), Echo()
    upstream = Upstream(connect_timeout=2)
    node = NodeListener(WebProxy(config, upstream, listener=NODE, max_body=1000))
    async with web(config, app), listening(node, config) as port:
        post = b"POST %b HTTP/1.1\r\nhost: n\r\ncontent-length: 2\r\n%b\r\nhi"
        key = b"authorization: Bearer sk-llmgw-x\r\n"
        unsigned = (401, "node_signature_required")
        assert await ask(port, post % (b"/v1/chat/completions", key)) == unsigned
        assert await ask(port, post % (b"/api/v1/agent/heartbeat", key)) == unsigned
        assert await ask(port, post % (b"/api/v1/agent/heartbeat", b"".join(LINES[:-1]))) == unsigned
        assert await ask(port, post % (b"/api/v1/models", SIGNED)) == (404, "not_found")
        assert await ask(port, post % (b"/v1/chat/completions", SIGNED)) == (404, "not_found")
        assert not app.scopes
        assert await ask(port, post % (b"/api/v1/agent/heartbeat", SIGNED)) == (201, "<hi>")
        assert await ask(port, b"GET /healthz HTTP/1.1\r\nhost: n\r\n\r\n") == (200, '{"status":"ok"}')
        big = b"POST /api/v1/agent/usage HTTP/1.1\r\ncontent-length: 2000\r\n%b\r\n%b" % (SIGNED, b"x" * 10)
        assert await ask(port, big) == (413, "body_too_large")
    await upstream.close()
