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
from pathlib import Path

import httpx
from django.conf import settings

from cluster.domain import signing
from cluster.selectors import database_now
from llmgw_site.lib.config import Config
from llmgw_site.lib.logs import event
from workers.agent.identity import Identity, NoIdentity
from workers.agent.tls import Tls

log = logging.getLogger(__name__)

PATH = "/api/v1/agent/heard"
PATIENCE = 2.0
"""Seconds in which the answer must come."""
_boot = secrets.token_hex(8)
_counter = itertools.count(1)


def ask() -> bool:
    """Whether nodes are heard here now. False where this machine has no node of its own."""
    config: Config = settings.CONFIG
    try:
        own = Identity.read(config.node_file)
        headers = signing.sign(
            own.key, method="GET", path=PATH, node=own.node_id, now=database_now(), boot=_boot,
            counter=next(_counter), body=b"",
        )  # fmt: skip
        answer = _client(config).get(f"{config.node_listener}{PATH}", headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL, NoIdentity, OSError) as error:
        event(log, "not_heard", level=logging.DEBUG, reason=repr(error))
        return False
    return answer.status_code == 200


def _client(config: Config) -> httpx.Client:
    """Of the name in a certificate nothing is expected: it is the node's, the address this machine's."""
    secure = config.node_listener.startswith("https:")
    return _connections(_tls(config.tls_folder).context(named=False) if secure else True)


@lru_cache(maxsize=1)
def _tls(folder: Path) -> Tls:
    return Tls(folder)


@lru_cache(maxsize=1)
def _connections(verify: ssl.SSLContext | bool) -> httpx.Client:
    """One client until there is another certificate: this process may live longer than the first one."""
    return httpx.Client(timeout=PATIENCE, verify=verify, trust_env=False)
