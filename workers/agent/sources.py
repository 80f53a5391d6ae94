"""Other nodes as the origin of weights: signed calls to their node listeners, one source after the other.

A source that refuses, is silent or breaks off is tried last for a while. Where nodes speak TLS, both sides are verified by
the cluster's CA, and the node itself by its name in the certificate.
"""

from __future__ import annotations

import itertools
import re
import secrets
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from urllib.parse import quote

import httpx
import orjson

from cluster.domain import signing
from cluster.domain.joining import tls_name
from cluster.wire import FetchSource
from llmgw_site.lib.deadlines import Deadline
from llmgw_site.lib.errors import Kind, Refused
from workers.agent.identity import Identity
from workers.agent.node_map import NodeMap
from workers.agent.tls import Tls

WEIGHTS = "/node/weights"
TIMEOUT = httpx.Timeout(10.0, connect=3.0, pool=60.0)
HEAD = 60.0
"""Seconds until the head of an answer is whole, or why it was refused is read: a byte now and then would be awaited for hours."""
COOL = 60.0
"""Seconds for which a source that failed is tried after the others."""
AGAIN = 2.0
"""Seconds until sources that all failed are worth another look."""
MOST_TOLD = 16 << 10
"""Bytes of a refusal that are read."""
_RANGE = re.compile(r"bytes ([0-9]{1,20})-([0-9]{1,20})/[0-9]{1,20}")


class NodeCalls:
    """What makes a GET to another node ours. `now`: cluster time. Threads may share it."""

    def __init__(self, identity: Identity, *, node_map: NodeMap, tls: Tls, now: Callable[[], float]) -> None:
        self._identity, self._map, self.tls, self._now = identity, node_map, tls, now
        self._boot = secrets.token_hex(8)
        self._counter = itertools.count(1)

    def headers(self, node_id: str, path: str) -> dict[str, str]:
        """Raises ValueError: this node has not heard of the other one."""
        known = self._map.map.node(node_id) if self._map.map else None
        if known is None:
            raise ValueError("it is not on this node's map")
        return signing.sign(
            signing.pairwise_key(self._identity.private_key, known.public_key), method="GET", path=path,
            node=self._identity.node_id, now=self._now(), boot=self._boot, counter=next(self._counter), body=b"",
        )  # fmt: skip


class FromNodes:
    """The files of a version that other nodes hold. Close it, or use it in a `with`. `take` may change the sources at any
    time; `using`: id of the node that gave something last; `doubted`: when which node failed, for whoever begins again."""

    def __init__(
        self, calls: NodeCalls, version: str, sources: Sequence[FetchSource], *, doubted: dict[str, float] | None = None
    ) -> None:
        self._calls, self._version, self._sources = calls, version, tuple(sources)
        self._doubted = {} if doubted is None else doubted
        self._gave: set[str] = set()
        self._lock = Lock()
        self._deadline = Deadline()
        self._plain = self._client()
        self._secure: tuple[ssl.SSLContext, httpx.Client] | None = None
        self._closing: list[httpx.Client] = [self._plain]
        self.using = ""

    def __enter__(self) -> FromNodes:
        return self

    def __exit__(self, *exception: object) -> None:
        for client in self._closing:
            client.close()

    def take(self, sources: Sequence[FetchSource]) -> None:
        """Ask these from now on."""
        self._sources = tuple(sources)

    def doubt_all(self) -> None:
        """What came was not what was published: whoever gave some of it is tried last."""
        with self._lock:
            self._doubted.update(dict.fromkeys(self._gave, time.monotonic()))

    @contextmanager
    def opened(self, path: str, *, start: int, end: int | None) -> Iterator[httpx.Response]:
        """Raises Refused `weights_no_source`, to be tried again, also where whoever reads the answer refuses it; httpx.HTTPError
        where it breaks off."""
        source, response = self._first(path, start, end)
        try:
            yield response
        except httpx.HTTPError:
            self._fail(source)
            raise
        except Refused as refused:
            self._fail(source)
            text = f"node {source.node_id} gives something else: {refused.message}"
            raise Refused(Kind.UPSTREAM, "weights_no_source", text, retry_after=AGAIN) from None
        finally:
            response.close()

    def _first(self, path: str, start: int, end: int | None) -> tuple[FetchSource, httpx.Response]:
        """The answer of the first source that gives these bytes."""
        failed = recent(self._doubted)
        problems = []
        for source in sorted(self._sources, key=lambda item: item.node_id in failed):
            try:
                with self._deadline.within(HEAD):
                    response = self._ask(source, path, start, end)
                    why = _wrong(response, start, end)
            except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
                why = str(error) or type(error).__name__
            else:
                if not why:
                    self.using = source.node_id
                    with self._lock:
                        self._gave.add(source.node_id)
                    return source, response
                response.close()
            self._fail(source)
            problems.append(f"{source.node_id}: {why[:200]}")
        told = "; ".join(problems) or "no node is named"
        text = f"no node gives {path} of {self._version} ({told}): it is tried again"
        raise Refused(Kind.UPSTREAM, "weights_no_source", text, retry_after=AGAIN)

    def _ask(self, source: FetchSource, path: str, start: int, end: int | None) -> httpx.Response:
        target = f"{WEIGHTS}/{self._version}/{quote(path)}"
        headers = self._calls.headers(source.node_id, target)
        if start or end is not None:
            headers["range"] = f"bytes={start}-{'' if end is None else end - 1}"
        address = source.address.rstrip("/")
        client, more = self._plain, {}
        if address.startswith("https:"):
            client, more = self._over_tls(), {"sni_hostname": tls_name(source.node_id)}
        request = client.build_request("GET", address + target, headers=headers, extensions=more)
        return client.send(request, stream=True)

    def _over_tls(self) -> httpx.Client:
        """The client for the certificate that this node has now. Raises OSError, ssl.SSLError without one."""
        with self._lock:
            context = self._calls.tls.context(named=True)
            if self._secure is None or self._secure[0] is not context:
                self._secure = context, self._client(context)
                self._closing.append(self._secure[1])
            return self._secure[1]

    def _client(self, verify: ssl.SSLContext | bool = True) -> httpx.Client:
        transport, headers = httpx.HTTPTransport(verify=verify, trust_env=False), {"Accept-Encoding": "identity"}
        self._deadline.carry(transport)
        return httpx.Client(
            transport=transport, trust_env=False, follow_redirects=False, timeout=TIMEOUT, headers=headers
        )

    def _fail(self, source: FetchSource) -> None:
        with self._lock:
            self._doubted[source.node_id] = time.monotonic()


def recent(doubted: Mapping[str, float]) -> tuple[str, ...]:
    """Ids of nodes that failed in the last COOL seconds."""
    now = time.monotonic()
    return tuple(node for node, at in list(doubted.items()) if now - at < COOL)


def _wrong(response: httpx.Response, start: int, end: int | None) -> str:
    """Why this answer is not what was asked for; "": it is."""
    if start == 0 and end is None:
        if response.status_code == 200:
            return ""
    elif response.status_code == 206:
        found = _RANGE.fullmatch(response.headers.get("content-range", ""))
        if found and int(found[1]) == start and (end is None or int(found[2]) == end - 1):
            return ""
        return f"it answered other bytes ({response.headers.get('content-range', '')[:60]!r})"
    return f"it answered {response.status_code} {_code(response)}".rstrip()


def _code(response: httpx.Response) -> str:
    told = bytearray()
    with suppress(httpx.HTTPError, orjson.JSONDecodeError, LookupError, TypeError):
        for piece in response.iter_raw():
            told += piece
            if len(told) > MOST_TOLD:
                return ""
        return str(orjson.loads(told)["error"]["code"])[:80]
    return ""
