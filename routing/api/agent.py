"""What agents call: the snapshot, and batches of usage. Signed calls of nodes only (cluster/services/calls.py)."""

from __future__ import annotations

import orjson
from django.http import HttpRequest

from cluster.services.calls import Caller, decode, node_call
from cluster.wire import UsageBatch, WireError, from_dict
from routing import services


@node_call("GET")
def snapshot(caller: Caller, request: HttpRequest) -> bytes | None:
    """The snapshot as this node is given it, or 304 if the node has it already (`?have=VERSION`)."""
    have = request.GET.get("have", "")
    if have and have == services.version_for(caller.node):
        return None
    return services.payload_for(node=caller.node, key=caller.key) or None


@node_call("POST")
def usage(caller: Caller, request: HttpRequest) -> bytes:
    """A UsageBatch in; the ids that are committed now out, and what could not be read."""
    batch = from_dict(UsageBatch, decode(caller.body))
    if batch.node_id != caller.node.id:
        raise WireError(f"UsageBatch.node_id: {caller.node.id} signed, not {batch.node_id[:40]}")
    stored = services.store_usage(node_id=caller.node.id, records=batch.records)
    return orjson.dumps({"stored": stored.ids, "refused": stored.refused})
