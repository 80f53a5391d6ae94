"""Requests that the controllers themselves make at a node's listener, signed as every call between nodes is."""

from __future__ import annotations

import itertools
import secrets
import ssl
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
    own = identity.ensure_identity()
    key = signing.pairwise_key(identity.private_key(own), node.public_key)
    marks = (FORWARDED, "", "", "")
    headers = signing.sign(
        key, method="POST", path=path, node=signing.CONTROLLER, now=selectors.database_now(), boot=_boot,
        counter=next(_counter), body=body, marks=marks,
    )  # fmt: skip
    headers |= {"x-llmgw-hop": FORWARDED, "content-type": "application/json"}
    if not node.address.startswith("https:"):
        return Way(node.address, headers, True, {})
    context = Tls(settings.CONFIG.tls_folder).context(named=True)
    return Way(node.address, headers, context, {"sni_hostname": tls_name(node.id)})
