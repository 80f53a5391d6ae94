"""Small signed calls to other nodes: one question, one answer that is read whole."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from cluster.domain import signing
from cluster.domain.modules import MapNode
from llmgw_site.lib.units import MIB
from routing.gateway.membership import Members
from routing.gateway.upstream import Broken, Headers, Response, TooSlow, Upstream

MOST = 4 * MIB
"""Bytes of an answer that are read."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: Headers
    body: bytes


class Remote:
    """Asks nodes on behalf of this one."""

    def __init__(self, members: Members, upstream: Upstream) -> None:
        self._members = members
        self._upstream = upstream

    async def ask(self, node: MapNode, *, method: str, path: str, body: bytes = b"", timeout: float) -> Answer:
        """One call; `timeout` in seconds bounds all of it. Raises UpstreamError (TooSlow when the time is over)."""
        headers = self._members.sign(node, method=method, path=path, body=body)
        return await self._call(node, headers, method=method, path=path, body=body, timeout=timeout)

    def controllers(self) -> list[MapNode]:
        """Nodes that run the controller, the one to ask first in front."""
        return self._members.controllers()

    async def order(self, node: MapNode, *, path: str, body: bytes, timeout: float) -> Answer:
        """A POST to a controller. Raises UpstreamError: Broken too where the answer is not the controllers' to this call."""
        headers = self._members.sign(node, method="POST", path=path, body=body, controllers=True)
        nonce = _header(headers, signing.SIGNATURE)
        answer = await self._call(node, headers, method="POST", path=path, body=body, timeout=timeout)
        signature = _header(answer.headers, signing.SIGNATURE)
        if not self._members.proves(signature, nonce=nonce, status=answer.status, body=answer.body):
            raise Broken(f"status {answer.status}, not signed by the controllers", headers_received=True)
        return answer

    async def _call(
        self, node: MapNode, headers: Headers, *, method: str, path: str, body: bytes, timeout: float
    ) -> Answer:
        if body:
            headers.append((b"content-type", b"application/json"))
        try:
            async with asyncio.timeout(timeout):
                response = await self._upstream.request(
                    self._members.target(node),
                    method=method.encode(),
                    path=path.encode(),
                    headers=headers,
                    body=body,
                    first_byte_timeout=timeout,
                    idle_timeout=timeout,
                )
                answered = await whole(response, MOST)
        except TimeoutError:
            raise TooSlow("idle", timeout) from None
        return Answer(status=response.status, headers=response.headers, body=answered)


def _header(headers: Headers, name: str) -> str:
    return next((value.decode("latin-1") for key, value in headers if key == name.encode()), "")


async def whole(response: Response, most: int) -> bytes:
    """A body read to its end. Raises UpstreamError: Broken over `most` bytes."""
    parts: list[bytes] = []
    size = 0
    try:
        while piece := await response.read():
            parts.append(piece)
            size += len(piece)
            if size > most:
                raise Broken("the answer is too large", headers_received=True)
    finally:
        response.abort()
    return b"".join(parts)
