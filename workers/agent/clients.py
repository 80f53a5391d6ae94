"""HTTP clients for controllers: a plain one, and for `https://` addresses ones that both sides verify by certificate."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import httpx

from cluster.domain.joining import tls_name
from workers.agent.tls import Tls


class Clients:
    """`tls` None: `https://` controllers cannot be called. Node ids of addresses are learned from the module map."""

    def __init__(self, plain: httpx.AsyncClient, tls: Tls | None = None) -> None:
        self._plain, self._tls = plain, tls
        self._secure: dict[bool, tuple[ssl.SSLContext, httpx.AsyncClient]] = {}
        self.node_ids: Mapping[str, str] = {}
        """Node id by base URL."""

    def of(self, url: str) -> tuple[httpx.AsyncClient, dict[str, Any]]:
        """The client for this base URL, and what its request has to carry. Raises OSError without our TLS files."""
        if not url.startswith("https:"):
            return self._plain, {}
        context, name = self.security(url)
        known = self._secure.get(bool(name))
        if known is None or known[0] is not context:
            client = httpx.AsyncClient(verify=context, trust_env=False, follow_redirects=False)
            known = self._secure[bool(name)] = context, client
        return known[1], {"sni_hostname": name} if name else {}

    def security(self, url: str) -> tuple[ssl.SSLContext, str]:
        """What verifies the node at this `https://` URL, and the name its certificate must bear; "": any of our CA's."""
        if self._tls is None:
            raise FileNotFoundError("this node has no certificate yet")
        node_id = self.node_ids.get(url)
        return self._tls.context(named=node_id is not None), tls_name(node_id) if node_id else ""

    async def close(self) -> None:
        for _, client in self._secure.values():
            await client.aclose()
