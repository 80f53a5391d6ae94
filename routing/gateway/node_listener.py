"""What the node listener answers: `/healthz`, and `/api/v1/agent/*` for callers that sign (cluster/domain/signing.py).

Here only the presence of the signature is asked for; whoever answers verifies it (`web`, with the controllers' key).
"""

from __future__ import annotations

from typing import Any

from cluster.domain.signing import HEADERS
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import MIB
from routing.gateway.answers import send_refusal, send_whole
from routing.gateway.web_proxy import AGENT_PATHS

MAX_BODY = 8 * MIB
"""Bytes of one call: a heartbeat of many replicas with log tails, or 500 usage records."""
_NEEDED = frozenset(name.encode() for name in HEADERS)


class NodeListener:
    """ASGI application; `web` is the WebProxy that is told listener="node" and max_body=MAX_BODY."""

    def __init__(self, web: Any) -> None:
        self._web = web

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """1. a websocket is refused; 2. health; 3. 401 without a signature, whatever the path; 4. 404; 5. to `web`."""
        if scope["type"] == "websocket":  # 1
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        elif scope["path"] == "/healthz":  # 2
            await send_whole(send, 200, b"application/json", b'{"status":"ok"}')
        elif not _NEEDED.issubset(name for name, _ in scope["headers"]):  # 3
            message = "Only nodes call here, with a signature: clients use the client listener with their API key."
            await send_refusal(send, Refused(Kind.UNAUTHORIZED, "node_signature_required", message), close=True)
        elif not scope["path"].startswith(AGENT_PATHS + "/"):  # 4
            message = f"There is no {scope['path']} on the node listener."
            await send_refusal(send, Refused(Kind.NOT_FOUND, "not_found", message), close=True)
        else:  # 5
            await self._web(scope, receive, send)
