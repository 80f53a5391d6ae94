"""Nudges to connected agents, from `web` and the workers alike: look again now. No truth travels here; answers are it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from redis.exceptions import RedisError

from cluster.wire import NODES_GROUP, Nudge, node_group, to_dict
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)

PATIENCE = 2.0
"""Seconds that sending may take; without a nudge nodes look by themselves at their next heartbeat."""
PAUSE = 5.0
"""Seconds without an attempt after one that failed, so that an unreachable Valkey does not slow every change."""
_not_before = 0.0


def send(reason: str, *, nodes: Collection[str] = (), removed: Collection[str] = ()) -> None:
    """Nudge these nodes, or all. `removed`: ids of nodes that are out of the cluster from now on."""
    global _not_before
    layer = get_channel_layer()
    if layer is None or (time.monotonic() < _not_before and not removed):
        return
    message = {"type": "node.nudge", "nudge": to_dict(Nudge(reason=reason, removed=tuple(removed)))}
    groups = [node_group(node_id) for node_id in nodes] or [NODES_GROUP]

    async def tell() -> None:
        async with asyncio.timeout(PATIENCE):
            for group in groups:
                await layer.group_send(group, message)

    try:
        async_to_sync(tell)()
    except (RedisError, OSError, RuntimeError) as error:
        _not_before = time.monotonic() + PAUSE
        event(log, "nudge_not_sent", level=logging.WARNING, why=reason, reason=str(error))
