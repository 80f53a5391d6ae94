"""What agents call: the heartbeat. Signed calls of nodes only (cluster/services/calls.py), never DRF."""

from __future__ import annotations

from dataclasses import replace

import orjson
from django.conf import settings
from django.http import HttpRequest

from cluster import signals
from cluster.services import nodes
from cluster.services.calls import Caller, decode, node_call
from cluster.wire import Heartbeat, WireError, from_dict, to_dict


@node_call("POST")
def heartbeat(caller: Caller, request: HttpRequest) -> bytes:
    """A Heartbeat in, Wanted out."""
    beat = from_dict(Heartbeat, decode(caller.body))
    if beat.node_id != caller.node.id:
        raise WireError(f"Heartbeat.node_id: {caller.node.id} signed, not {beat.node_id[:40]}")
    wanted = nodes.heartbeat(node=caller.node, beat=beat, now=caller.now)
    versions = [answer for _, answer in signals.snapshot_asked.send(sender=heartbeat) if answer]
    wanted = replace(wanted, snapshot_version=versions[0] if versions else "", heartbeat=settings.CONFIG.heartbeat)
    return orjson.dumps(to_dict(wanted))
