"""A controller as gateways meet it when they ask for a model: it verifies each call and signs what it answers."""

from __future__ import annotations

from typing import Any

import orjson

from cluster.domain import signing
from routing.gateway.activation import PATH
from tests.routing.gateway.hops import Many
from tests.routing.gateway.nodes import CONTROLLER_KEY
from tests.routing.gateway.scripted import Peer


class Controller:
    """`says` is what it answers: a state, or all of the answer; `orders` are what it was asked."""

    def __init__(self, town: Many, *, key: str = CONTROLLER_KEY) -> None:
        self.says: dict[str, Any] = {"state": "waiting"}
        self.status = 200
        self.orders: list[dict[str, Any]] = []
        self.attempt = 7.0
        self._town = town
        self._key = key

    def say(self, state: str, **fields: Any) -> None:
        self.says = {"state": state, **fields}

    async def __call__(self, peer: Peer) -> None:
        while request := await peer.request():
            head, _, body = request.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            call = signing.read(headers)
            assert call is not None
            assert lines[0] == f"POST {PATH} HTTP/1.1"
            node = next(item for item in self._town.cluster.nodes.values() if item.node_id == call.node)
            public = signing.public_hex(node.private_key)
            true = signing.pairwise_key(CONTROLLER_KEY, public)
            wrong = signing.verify(true, call, method="POST", path=PATH, body=body, now=call.time)
            assert wrong is None, wrong
            self.orders.append(orjson.loads(body))
            answer = orjson.dumps({"v": 1, "attempt": self.attempt, **self.says})
            signature = signing.sign_answer(
                signing.pairwise_key(self._key, public), nonce=call.signature, status=self.status, body=answer
            )
            await peer.send(
                b"HTTP/1.1 %d OK\r\ncontent-length: %d\r\n%s: %s\r\n\r\n%s"
                % (self.status, len(answer), signing.SIGNATURE.encode(), signature.encode(), answer)
            )
