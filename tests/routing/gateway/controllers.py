"""A controller as gateways meet it: it verifies each call and signs what it answers."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from cluster.domain import signing
from cluster.domain.leasing import LimitsAsk
from cluster.services import limits
from cluster.wire import from_dict, to_dict
from llmgw_site.lib.errors import HTTP_STATUS, Refused
from routing.gateway import limiter
from routing.gateway.activation import PATH
from tests.routing.gateway.hops import Many
from tests.routing.gateway.nodes import CONTROLLER_KEY
from tests.routing.gateway.scripted import Peer


class Controller:
    """Asked for a model. `says` is what it answers: a state, or all of the answer; `orders` are what it was asked."""

    def __init__(self, town: Many, *, key: str = CONTROLLER_KEY) -> None:
        self.says: dict[str, Any] = {"state": "waiting"}
        self.status = 200
        self.orders: list[dict[str, Any]] = []
        self.attempt = 7.0
        self._town = town
        self._key = key

    def say(self, state: str, **fields: Any) -> None:
        self.says = {"state": state, **fields}

    path = PATH

    async def answer(self, node_id: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of an answer to this order."""
        return self.status, orjson.dumps({"v": 1, "attempt": self.attempt, **self.says})

    async def __call__(self, peer: Peer) -> None:
        while request := await peer.request():
            head, _, body = request.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            call = signing.read(headers)
            assert call is not None
            assert lines[0] == f"POST {self.path} HTTP/1.1"
            node = next(item for item in self._town.cluster.nodes.values() if item.node_id == call.node)
            public = signing.public_hex(node.private_key)
            true = signing.pairwise_key(CONTROLLER_KEY, public)
            wrong = signing.verify(true, call, method="POST", path=self.path, body=body, now=call.time)
            assert wrong is None, wrong
            self.orders.append(orjson.loads(body))
            status, answer = await self.answer(node.node_id, body)
            signature = signing.sign_answer(
                signing.pairwise_key(self._key, public), nonce=call.signature, status=status, body=answer
            )
            await peer.send(
                b"HTTP/1.1 %d OK\r\ncontent-length: %d\r\n%s: %s\r\n\r\n%s"
                % (status, len(answer), signing.SIGNATURE.encode(), signature.encode(), answer)
            )


class Counting(Controller):
    """Asked for limits: it counts as controllers do, in the Valkey of the settings. Not `up`: it answers 503."""

    path = limiter.PATH
    up = True

    async def answer(self, node_id: str, body: bytes) -> tuple[int, bytes]:
        if not self.up:
            return 503, b"{}"
        question = from_dict(LimitsAsk, orjson.loads(body))
        try:
            answer = await asyncio.to_thread(limits.lease, question, node_id=node_id)
        except Refused as refused:
            return HTTP_STATUS[refused.kind], orjson.dumps({"error": {"code": refused.code}})
        return 200, orjson.dumps(to_dict(answer))
