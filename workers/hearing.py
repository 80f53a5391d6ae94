"""Asks this controller, the way nodes come to it, whether heartbeats are processed at this moment.

A signed call of this machine's own node goes through the node listener to `web` and there to the database, as heartbeats
do; `web` writes the mark. So a listener that stands still, a `web` that fails, and a database that does not answer are
all seen, and what they miss is held against no node (cluster/domain/health.py).
"""

from __future__ import annotations

import itertools
import logging
import secrets
import ssl
from functools import lru_cache
from urllib.parse import urlsplit

import httpx
from django.conf import settings

from cluster.domain import signing
from cluster.selectors import database_now
from llmgw_site.lib import files
from llmgw_site.lib.config import Config
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)

PATH = "/api/v1/agent/heard"
PATIENCE = 2.0
"""Seconds in which the answer must come."""
_boot = secrets.token_hex(8)
_counter = itertools.count(1)


def ask() -> bool:
    """Whether nodes are heard here now. False where this machine has no node of its own."""
    config: Config = settings.CONFIG
    kept = files.read_json(config.node_file)
    if not isinstance(kept, dict):
        return False
    try:
        key = signing.pairwise_key(kept["private_key"], kept["controller_public_key"])
        headers = signing.sign(
            key, method="GET", path=PATH, node=kept["node_id"], now=database_now(), boot=_boot,
            counter=next(_counter), body=b"",
        )  # fmt: skip
        answer = _client(config).get(f"{own_listener(config)}{PATH}", headers=headers)
    except (httpx.HTTPError, KeyError, ValueError, OSError) as error:
        event(log, "not_heard", level=logging.DEBUG, reason=repr(error))
        return False
    return answer.status_code == 200


def own_listener(config: Config) -> str:
    """Base URL of this machine's node listener, from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.node_host, config.node_host)  # noqa: S104 - asks, binds nothing
    scheme = urlsplit(config.node_address).scheme or "http"
    return f"{scheme}://[{host}]:{config.node_port}" if ":" in host else f"{scheme}://{host}:{config.node_port}"


@lru_cache(maxsize=1)
def _client(config: Config) -> httpx.Client:
    """One client for the life of the process."""
    if urlsplit(config.node_address).scheme != "https":
        return httpx.Client(timeout=PATIENCE, verify=False, trust_env=False)  # noqa: S501 - no TLS in it
    context = ssl.create_default_context(cafile=str(config.tls_folder / "ca.pem"))
    context.check_hostname = False  # the name is the node's, the address this machine's
    context.load_cert_chain(config.tls_folder / "node.pem", config.tls_folder / "node.key")
    return httpx.Client(timeout=PATIENCE, verify=context, trust_env=False)
