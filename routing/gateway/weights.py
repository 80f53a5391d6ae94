"""`GET /node/weights/{version}/{path}`: a file of a whole version, for other nodes. Who calls was verified before.

Ranges as RFC 9110 has them, one at a time. A path is answered where the version's manifest names it, so none leads out.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from catalog.domain.manifests import ManifestFile
from catalog.mirror.store import Store
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused
from routing.domain.ranges import asked
from routing.gateway.answers import send_whole
from routing.gateway.sendfile import Files

PREFIX = "/node/weights/"
_TYPE = (b"content-type", b"application/octet-stream")


class NodeWeights:
    """Answers from this node's store. `close` after the last answer."""

    def __init__(self, config: Config) -> None:
        self._store = Store(config.store)
        self._files = Files(config.write_timeout)
        self._clients = frozenset(config.weights_clients)

    def close(self) -> None:
        self._files.close()

    async def __call__(self, scope: Any, send: Any, caller: Collection[str]) -> None:
        """Raises Refused before the answer begins: 403 `weights_not_for_node`, 404 `weights_not_here`, 405 `method_not_allowed`.

        `caller`: id and name of the node that calls, as its identity proves.
        """
        if self._clients and not self._clients & set(caller):
            text = f"this node gives weights to {', '.join(sorted(self._clients))[:200]} only (LLMGW_WEIGHTS_CLIENTS)"
            raise Refused(Kind.FORBIDDEN, "weights_not_for_node", text)
        if scope["method"] not in ("GET", "HEAD"):
            text = f"Weights are read with GET, not {scope['method'][:20]}."
            raise Refused(Kind.INVALID, "method_not_allowed", text)
        version, _, path = scope["path"].removeprefix(PREFIX).partition("/")
        handle, file = await self._files.run(_open, self._store, version, path)
        try:
            await self._answer(scope, send, handle, file)
        finally:
            os.close(handle)

    async def _answer(self, scope: Any, send: Any, handle: int, file: ManifestFile) -> None:
        """1. nothing of the range is there: 416; 2. a part: 206; 3. the whole file: 200."""
        given = {name: value.decode("latin-1") for name, value in scope["headers"] if name in (b"range", b"if-range")}
        tag = f'"{file.sha256 or file.blob}"'
        header = given.get(b"range", "") if given.get(b"if-range", tag) == tag else ""
        part = asked(header, file.size)
        if part is None:  # 1
            more = [(b"content-range", b"bytes */%d" % file.size)]
            await send_whole(send, 416, b"application/octet-stream", b"", more)
            return
        headers = [_TYPE, (b"content-length", b"%d" % (part.end - part.start)), (b"etag", tag.encode())]
        headers.append((b"accept-ranges", b"bytes"))
        if part.part:  # 2
            headers.append((b"content-range", b"bytes %d-%d/%d" % (part.start, part.end - 1, file.size)))
        await send({"type": "http.response.start", "status": 206 if part.part else 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._files.send(scope, send, handle, part.start, part.end)


def _open(store: Store, version: str, path: str) -> tuple[int, ManifestFile]:
    """The open file, and what it is. Raises Refused `weights_not_here`."""
    with store.opened(version, path) as (handle, file):
        if os.fstat(handle).st_size != file.size:
            text = f"{path[:200]} of {version[:60]} is damaged on this node: fetch it elsewhere"
            raise Refused(Kind.NOT_FOUND, "weights_not_here", text)
        kept = os.dup(handle)
    os.posix_fadvise(kept, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    return kept, file
