"""Nudges to connected agents, from `web` and the workers alike: look again now. No truth travels here; answers are it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Collection, Sequence

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from redis.exceptions import RedisError

from cluster.services import members
from cluster.wire import NODES_GROUP, Nudge, node_group, to_dict
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)

PATIENCE = 2.0
"""Seconds that sending may take; without a nudge nodes look by themselves at their next heartbeat."""
PAUSE = 5.0
"""Seconds without an attempt after one that failed, so that an unreachable Valkey does not slow every change."""
MOST_REVOKED = 5_000
"""Texts of keys in one nudge, 0.35 MB: agents take no message of more than a megabyte."""
MANY = 50
"""Nodes beyond which one message to all is cheaper than one to each."""
FEW, PER_NODE = 100, 0.005
"""Seconds for each node, in a cluster of more than a few, that lie between two nudges of one process to all of them: each
makes every node ask and fetch what is new. The first goes at once; what comes before the next may is told together then.
"""
_not_before = 0.0


def spacing() -> float:
    """Seconds between two pieces of news that concern all nodes."""
    return PER_NODE * members.size() if members.size() > FEW else 0.0


class _ToAll:
    """When this process may nudge all nodes again. One timer at most is on its way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0.0
        self._later: threading.Timer | None = None

    def now(self, reason: str) -> bool:
        """Whether it may be now; else it is done as soon as it may be."""
        with self._lock:
            now = time.monotonic()
            if now >= self._next:
                self._next = now + spacing()
                return True
            if self._later is None:
                self._later = threading.Timer(self._next - now, self._due, [reason])
                self._later.daemon = True
                self._later.start()
            return False

    def _due(self, reason: str) -> None:
        with self._lock:
            self._later = None
        send(reason)


_to_all = _ToAll()


def send(
    reason: str, *, nodes: Collection[str] = (), removed: Collection[str] = (), revoked: Sequence[str] = ()
) -> None:
    """Nudge these nodes, or all. `removed`: ids of nodes that are out of the cluster from now on; `revoked`: SHA-256 of texts of
    keys that are worth nothing from now on. These two wait for nothing."""
    global _not_before
    for first in range(MOST_REVOKED, len(revoked), MOST_REVOKED):
        send(reason, revoked=revoked[first : first + MOST_REVOKED])
    urgent = bool(removed or revoked)
    layer = get_channel_layer()
    if layer is None or (time.monotonic() < _not_before and not urgent):
        return
    groups = [node_group(node_id) for node_id in nodes] if 0 < len(nodes) <= MANY else [NODES_GROUP]
    if groups == [NODES_GROUP] and not urgent and not _to_all.now(reason):
        return
    told = Nudge(reason=reason, removed=tuple(removed), revoked=tuple(revoked[:MOST_REVOKED]))
    message = {"type": "node.nudge", "nudge": to_dict(told)}

    async def tell() -> None:
        async with asyncio.timeout(PATIENCE):
            for group in groups:
                await layer.group_send(group, message)

    try:
        async_to_sync(tell)()
    except (RedisError, OSError, RuntimeError) as error:
        _not_before = time.monotonic() + PAUSE
        event(log, "nudge_not_sent", level=logging.WARNING, why=reason, reason=str(error))
