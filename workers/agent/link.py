"""To the controllers: signed calls, answers believed only when they are signed for this very call.

Several controllers are tried in order, beginning with the one that answered last: those of the settings or the join, and
those that the module map names. A broken, unsigned or wrongly signed answer is as good as none: it changes nothing.
Cluster time is learned from answers and carried on by a clock that nobody sets, so neither skew nor a jump does harm.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from cluster.domain import signing
from cluster.wire import (
    CertificateAnswer,
    CertificateRequest,
    Heartbeat,
    UsageBatch,
    Wanted,
    WireError,
    from_dict,
    to_dict,
)
from workers.agent.clients import Clients
from workers.agent.identity import Identity

HEARTBEAT, SNAPSHOT, USAGE = "/api/v1/agent/heartbeat", "/api/v1/agent/snapshot", "/api/v1/agent/usage"
CERTIFICATE, MANIFEST = "/api/v1/agent/certificate", "/api/v1/agent/manifest"
LARGEST_ANSWER = 256 << 20
TIMEOUT = httpx.Timeout(10.0, connect=2.0)


class LinkError(Exception):
    """No controller gave an answer that can be believed; the text says what each did."""


class NodeRemoved(Exception):
    """The controllers say, signed for this very call, that this node is out of the cluster."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    body: bytes
    asked_at: float  # by the agent's clock


@dataclass(frozen=True, kw_only=True)
class Received:
    """Ids of usage records: committed now (those of an earlier call included), and refused as unreadable."""

    stored: frozenset[str]
    refused: frozenset[str] = frozenset()


class Link:
    """One agent's calls. `clock` gives seconds that run evenly, Unix time at the agent's start."""

    def __init__(
        self,
        urls: tuple[str, ...],
        identity: Identity,
        *,
        boot_id: str,
        clock: Callable[[], float],
        clients: Clients,
    ) -> None:
        self._own = tuple(url.rstrip("/") for url in urls)
        self._urls = list(self._own)
        self._node, self._key = identity.node_id, identity.key
        self._boot, self._clock, self.clients = boot_id, clock, clients
        self._counter = itertools.count(1)
        self.offset = 0.0  # cluster time less `clock`

    @property
    def cluster_time(self) -> float:
        return self._clock() + self.offset

    @property
    def urls(self) -> tuple[str, ...]:
        """The controllers, the one that answered last first."""
        return tuple(self._urls)

    def learn(self, controllers: Iterable[tuple[str, str]]) -> None:
        """Take over what the map says of controllers, as (base URL, node id); what is in use keeps its place."""
        named = {url.rstrip("/"): node_id for url, node_id in controllers if url}
        self.clients.node_ids = named
        wanted = dict.fromkeys([*self._own, *named])
        self._urls = [url for url in self._urls if url in wanted]
        self._urls += [url for url in wanted if url not in self._urls]

    def doubt(self, url: str) -> None:
        """This controller has fallen silent: try the others first."""
        if url in self._urls:
            self._urls.remove(url)
            self._urls.append(url)

    def headers(self, method: str, path: str, body: bytes = b"") -> dict[str, str]:
        """What makes a call ours."""
        return signing.sign(
            self._key, method=method, path=path, node=self._node, now=self.cluster_time, boot=self._boot,
            counter=next(self._counter), body=body,
        )  # fmt: skip

    async def heartbeat(self, message: Heartbeat) -> Wanted:
        """Report, and learn what is wanted. Raises LinkError."""
        answer = await self._call("POST", HEARTBEAT, orjson.dumps(to_dict(message)))
        wanted: Wanted = self._read(Wanted, answer)
        self.offset = wanted.server_time - (answer.asked_at + self._clock()) / 2
        return wanted

    async def snapshot(self, have: str) -> bytes | None:
        """The snapshot as the controllers have it now; None: the one at hand is the newest. Raises LinkError."""
        query = httpx.QueryParams({"have": have})
        answer = await self._call("GET", f"{SNAPSHOT}?{query}", b"")
        return None if answer.status == 304 else answer.body

    async def usage(self, records: tuple[dict[str, Any], ...]) -> Received:
        """Hand over closed records; which are committed now, and which never will be. Raises LinkError."""
        batch = UsageBatch(node_id=self._node, records=records)
        answer = await self._call("POST", USAGE, orjson.dumps(to_dict(batch)))
        found = self._read(_Usage, answer)
        return Received(
            stored=frozenset(found.stored),
            refused=frozenset(item.record_id for item in found.refused if item.record_id),
        )

    async def certificate(self, csr: str) -> CertificateAnswer:
        """This node's next certificate. Raises LinkError."""
        answer = await self._call("POST", CERTIFICATE, orjson.dumps(to_dict(CertificateRequest(csr=csr))))
        found: CertificateAnswer = self._read(CertificateAnswer, answer)
        return found

    async def manifest(self, version: str) -> Any:
        """What a version of weights consists of, as JSON values. Raises LinkError."""
        answer = await self._call("GET", f"{MANIFEST}?{httpx.QueryParams({'version': version})}", b"")
        try:
            return orjson.loads(answer.body)
        except orjson.JSONDecodeError as error:
            raise LinkError(f"the controller's answer cannot be read: {error}") from None

    def _read(self, kind: type[Any], answer: Answer) -> Any:
        try:
            return from_dict(kind, orjson.loads(answer.body))
        except (orjson.JSONDecodeError, WireError) as error:
            raise LinkError(f"the controller's answer cannot be read: {error}") from None

    async def _call(self, method: str, path: str, body: bytes) -> Answer:
        """One call to the first controller that answers it properly."""
        problems = []
        for url in list(self._urls):
            try:
                answer = await self._call_one(url, method, path, body)
            except (httpx.HTTPError, httpx.InvalidURL, OSError, LinkError) as error:
                problems.append(f"{url}: {error or type(error).__name__}")
                continue
            if url in self._urls and url != self._urls[0]:
                self._urls.remove(url)
                self._urls.insert(0, url)
            return answer
        raise LinkError("; ".join(problems))

    async def _call_one(self, url: str, method: str, path: str, body: bytes) -> Answer:
        headers = self.headers(method, path, body)
        nonce = headers[signing.SIGNATURE]
        if method == "POST":
            headers["content-type"] = "application/json"
        client, more = self.clients.of(url)
        asked_at = self._clock()  # time spent on controllers that did not answer is no part of this one's
        async with client.stream(
            method, url + path, headers=headers, content=body, timeout=TIMEOUT, extensions=more
        ) as response:
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > LARGEST_ANSWER:
                    raise LinkError("the answer is too large")
        answer = Answer(status=response.status_code, body=bytes(content), asked_at=asked_at)
        signature = response.headers.get(signing.SIGNATURE, "")
        believed = signing.verify_answer(self._key, signature, nonce=nonce, status=answer.status, body=answer.body)
        if answer.status not in (200, 304):
            said = _reason(answer.body)
            if believed and said == "node_removed":
                raise NodeRemoved(f"{url} says that this node was removed from the cluster")
            self._learn_time(answer.body if believed else b"")
            raise LinkError(f"answered {answer.status}{' ' + said if said else ''}")
        if not believed:
            raise LinkError("the answer is not signed by our controllers; check LLMGW_CONTROLLERS")
        return answer

    def _learn_time(self, body: bytes) -> None:
        """A signed refusal may tell the cluster's time: after it, a node whose clock is far off gets through."""
        try:
            time = orjson.loads(body)["server_time"]
        except (orjson.JSONDecodeError, LookupError, TypeError):
            return
        if isinstance(time, (int, float)):
            self.offset = time - self._clock()


@dataclass(frozen=True, kw_only=True)
class _Refused:
    record_id: str = ""


@dataclass(frozen=True, kw_only=True)
class _Usage:
    stored: tuple[str, ...] = ()
    refused: tuple[_Refused, ...] = ()


def _reason(body: bytes) -> str:
    """Code of an error answer, for the log; nothing else of it is believed."""
    try:
        code = orjson.loads(body)["error"]["code"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return ""
    return str(code)[:80]
