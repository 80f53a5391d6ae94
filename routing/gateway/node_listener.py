"""What the node listener answers: calls of nodes, by signature (cluster/domain/signing.py), and nobody else's.

    /healthz                          anybody
    POST /api/v1/agent/join           anybody: a join token proves itself to `web`
    /api/v1/agent/*, ws /ws/agent     here the signature's presence is asked for; `web` verifies it with the controllers' key
    POST /v1/*, /tokenize, ...        verified here; the body too, once it is there
    GET /api/v1/node/models           verified here
    GET /node/weights/{version}/{path}  verified here

Where the call came by TLS, the caller's certificate must be the named node's, for all but the first two.
"""

from __future__ import annotations

from typing import Any

import orjson

from cluster.domain import signing
from cluster.wire import to_dict
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import MIB
from routing.domain.endpoints import PATHS
from routing.domain.way import FORWARDED, HANDED
from routing.gateway.answers import send_refusal, send_whole
from routing.gateway.app import App
from routing.gateway.callers import Caller, refusal
from routing.gateway.certificates import PeerCertificate
from routing.gateway.membership import Members
from routing.gateway.peers import Peers
from routing.gateway.polling import PATH as MODELS
from routing.gateway.protocol import PEER
from routing.gateway.web_proxy import AGENT_PATHS
from routing.gateway.weights import PREFIX as WEIGHTS
from routing.gateway.weights import NodeWeights

MAX_BODY = 8 * MIB
"""Bytes of one call to `web`: a heartbeat of many replicas with log tails, or 500 usage records."""
JOIN = AGENT_PATHS + "/join"
AGENT_SOCKET = "/ws/agent"
_NEEDED = frozenset(name.encode() for name in signing.HEADERS)
_NODE = signing.NODE.encode()


class NodeListener:
    """ASGI application; `web` is the WebProxy that is told listener="node" and max_body=MAX_BODY."""

    def __init__(self, web: Any, app: App, members: Members, peers: Peers, weights: NodeWeights) -> None:
        self._weights = weights
        self._web = web
        self._app = app
        self._members = members
        self._peers = peers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._answer(scope, receive, send)
        except Refused as refused:
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008})
            else:
                await send_refusal(send, refused, close=True)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """1. what needs no signature; 2. none: 401, whatever the path; 3. to `web`; 4. verified here; 5. 404."""
        path, http = scope["path"], scope["type"] == "http"
        if http and path == "/healthz":  # 1
            await send_whole(send, 200, b"application/json", b'{"status":"ok"}')
            return
        if http and path == JOIN:
            await self._web(scope, receive, send)
            return
        if not _NEEDED.issubset(name for name, _ in scope["headers"]):  # 2
            raise refusal("", "node_signature_required")
        if path.startswith(AGENT_PATHS + "/") if http else path == AGENT_SOCKET:  # 3
            if scope["scheme"] in ("https", "wss"):
                claimed = next(value for name, value in scope["headers"] if name == _NODE)
                self._members.check_certificate(_certificate(scope), claimed.decode("latin-1"))
            await self._web(scope, receive, send)
            return
        caller = self._verify(scope)  # 4
        if http and (path.startswith("/v1/") or path == "/v1" or path in PATHS):
            if caller.marks.hop not in (HANDED, FORWARDED):
                text = "A request that is passed on says how: x-llmgw-hop is handed or forwarded."
                raise Refused(Kind.INVALID, "bad_message", text)
            await self._app.passed_on(scope, receive, send, caller)
        elif http and path == MODELS and scope["method"] == "GET":
            caller.check(b"")
            await send_whole(send, 200, b"application/json", orjson.dumps(to_dict(self._peers.offers())))
        elif http and path.startswith(WEIGHTS):
            caller.check(b"")
            known = self._members.nodes.get(caller.node_id)
            await self._weights(scope, send, (caller.node_id, known.name if known else ""))
        else:  # 5
            raise Refused(Kind.NOT_FOUND, "not_found", f"There is no {path[:200]} on the node listener.")

    def _verify(self, scope: Any) -> Caller:
        query = scope["query_string"].decode("latin-1")
        return self._members.verify(
            scope["headers"],
            method=scope.get("method", "GET"),
            path=scope["raw_path"].decode("latin-1") + (f"?{query}" if query else ""),
            certificate=_certificate(scope),
            tls=scope["scheme"] in ("https", "wss"),
        )


def _certificate(scope: Any) -> PeerCertificate | None:
    found: PeerCertificate | None = scope["state"].get(PEER) if "state" in scope else None
    return found
