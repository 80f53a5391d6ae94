"""Requests that the controllers themselves make at a node's listener, signed as every call between nodes is."""

from __future__ import annotations

import itertools
import secrets
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from django.conf import settings

from cluster import selectors
from cluster.domain import signing
from cluster.domain.joining import tls_name
from cluster.services import identity
from routing.domain.way import FORWARDED
from workers.agent.tls import Tls

_boot = secrets.token_hex(8)
_counter = itertools.count(1)


class Way(NamedTuple):
    """How httpx reaches a node: base URL, headers, what verifies it, and the name that its certificate must bear."""

    base_url: str
    headers: dict[str, str]
    verify: ssl.SSLContext | bool
    extensions: dict[str, Any]


def forwarded(node: Any, *, path: str, body: bytes) -> Way:
    """A POST that the node answers by itself, as if a router had chosen it. Nobody's key: it makes no usage record.

    `node`: a row of cluster.Node. Raises OSError, ssl.SSLError where the node wants TLS and this machine has no files.
    """
    return caller(node)(path, body)


def caller(node: Any) -> Callable[[str, bytes], Way]:
    """What signs one call after the other as `forwarded` does; only this asks the database, the calls themselves do not."""
    own = identity.ensure_identity()
    key = signing.pairwise_key(identity.private_key(own), node.public_key)
    began, then = selectors.database_now(), time.monotonic()
    context = Tls(settings.CONFIG.tls_folder).context(named=True) if node.address.startswith("https:") else None

    def signed(path: str, body: bytes) -> Way:
        headers = signing.sign(
            key, method="POST", path=path, node=signing.CONTROLLER, now=began + time.monotonic() - then, boot=_boot,
            counter=next(_counter), body=body, marks=(FORWARDED, "", "", ""),
        )  # fmt: skip
        headers |= {"x-llmgw-hop": FORWARDED, "content-type": "application/json"}
        if context is None:
            return Way(node.address, headers, True, {})
        return Way(node.address, headers, context, {"sni_hostname": tls_name(node.id)})

    return signed
