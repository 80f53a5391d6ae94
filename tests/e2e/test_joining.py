"""A machine joins a running llmgw over its node listener, is nudged over a websocket, and is taken out."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from cluster.domain import joining, signing
from cluster.wire import Heartbeat, JoinAnswer, JoinRequest, Nudge, Wanted, from_dict, to_dict
from tests.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.live("stack")]
JOIN, BEAT, SOCKET = "/api/v1/agent/join", "/api/v1/agent/heartbeat", "/ws/agent"


class Joined:
    """A machine that came with a token."""

    def __init__(self, stack: Stack, name: str) -> None:
        self._url = f"http://127.0.0.1:{stack.node_port}"
        self.private = secrets.token_hex(32)
        token = joining.parse_token(stack.api().post("join-tokens", {"uses": 1})["token"])
        csr = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        pem = csr.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(
            serialization.Encoding.PEM
        )
        asked = JoinRequest(
            token_id=token.token_id,
            name=name,
            public_key=signing.public_hex(self.private),
            csr=pem.decode(),
            address="http://127.0.0.1:1",
            nonce=secrets.token_hex(16),
        )
        asked = replace(asked, proof=joining.proof(token.secret, asked))
        answer = self.post(JOIN, orjson.dumps(to_dict(asked)), {})
        assert answer.status_code == 200, answer.text
        self.answer = from_dict(JoinAnswer, answer.json())
        assert joining.proves(joining.answer_proof(token.secret, asked, self.answer), self.answer.proof)
        self.node_id = self.answer.node_id
        self._key = signing.pairwise_key(self.private, token.controller_public_key)
        self._counter = itertools.count(1)

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
        headers = {"content-type": "application/json", **headers}
        return httpx.post(self._url + path, content=body, headers=headers, trust_env=False, verify=False, timeout=30)

    def headers(self, method: str, path: str, body: bytes) -> dict[str, str]:
        return signing.sign(
            self._key, method=method, path=path, node=self.node_id, now=time.time(), boot="b",
            counter=next(self._counter), body=body,
        )  # fmt: skip

    def beat(self, **fields: Any) -> httpx.Response:
        message = Heartbeat(node_id=self.node_id, boot_id="b", sent_at=time.time(), **fields)
        body = orjson.dumps(to_dict(message))
        return self.post(BEAT, body, self.headers("POST", BEAT, body))

    def listen(self) -> Any:
        url = self._url.replace("http", "ws") + SOCKET
        return connect(url, additional_headers=self.headers("GET", SOCKET, b""), proxy=None, open_timeout=30)


async def until(socket: Any, reason: str, *, removed: str = "") -> Nudge:
    """The first nudge with this reason; others may come before."""
    async with asyncio.timeout(60):
        while True:
            nudge = from_dict(Nudge, orjson.loads(await socket.recv()))
            if nudge.reason == reason and (not removed or removed in nudge.removed):
                return nudge


def test_a_machine_joins_is_nudged_and_is_taken_out(stack: Stack) -> None:
    machine = Joined(stack, "newcomer")
    try:
        assert [controller.address for controller in machine.answer.controllers] == [
            f"http://127.0.0.1:{stack.node_port}"
        ]
        answer = machine.beat()
        wanted = from_dict(Wanted, answer.json())
        assert wanted.map is not None
        assert wanted.map.node(machine.node_id) is not None
        asyncio.run(_listen(stack, machine))
    finally:
        if any(node["name"] == "newcomer" for node in stack.api().all("nodes")):
            stack.api().delete("nodes/newcomer")
    refused = machine.beat()
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "node_removed")


async def _listen(stack: Stack, machine: Joined) -> None:
    api = stack.api()
    async with machine.listen() as socket:
        key = await asyncio.to_thread(api.post, "keys", {"name": "nudge"})
        await until(socket, "snapshot")
        await asyncio.to_thread(api.delete, f"keys/{key['id']}")
        await until(socket, "snapshot")
        await asyncio.to_thread(api.delete, "nodes/newcomer")
        await until(socket, "map", removed=machine.node_id)
        await asyncio.wait_for(socket.wait_closed(), 60)
    assert socket.close_code == 4401


def test_f18_a_websocket_that_no_node_signed_is_refused(stack: Stack) -> None:
    async def attempt(headers: dict[str, str]) -> None:
        url = f"ws://127.0.0.1:{stack.node_port}{SOCKET}"
        async with connect(url, additional_headers=headers, proxy=None, open_timeout=30):
            pytest.fail("it was let in")

    forged = signing.sign(
        b"x" * 32, method="GET", path=SOCKET, node="node_x", now=time.time(), boot="b", counter=1, body=b""
    )
    for headers in ({}, forged):
        with pytest.raises(InvalidStatus) as refused:
            asyncio.run(attempt(headers))
        assert refused.value.response.status_code == 403
