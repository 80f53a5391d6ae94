"""What machines call: joining, certificates, the heartbeat. Never DRF.

Signed calls of nodes only (cluster/services/calls.py), except for joining, where a token's proof stands for a signature.
"""

from __future__ import annotations

from dataclasses import replace

import orjson
from django.conf import settings
from django.http import HttpRequest

from cluster import signals
from cluster.selectors import database_now
from cluster.services import authority, hearing, joining, members, nodes
from cluster.services.calls import Caller, decode, node_call, open_call
from cluster.wire import (
    CertificateAnswer,
    CertificateRequest,
    Heartbeat,
    JoinRequest,
    WireError,
    from_dict,
    to_dict,
)

MAX_JOIN = 16 * 1024
"""Bytes of a request to join: nobody has proved anything before it is read."""


@open_call("POST", max_body=MAX_JOIN)
def join(body: bytes) -> bytes:
    """A JoinRequest in, JoinAnswer out."""
    return orjson.dumps(to_dict(joining.join(from_dict(JoinRequest, decode(body)), now=database_now())))


@node_call("POST")
def certificate(caller: Caller, request: HttpRequest) -> bytes:
    """A CertificateRequest in, the node's next certificate out."""
    asked = from_dict(CertificateRequest, decode(caller.body))
    made = authority.issue(csr=asked.csr, node=caller.node, now=caller.now)
    return orjson.dumps(to_dict(CertificateAnswer(certificate=made, ca_certificate=authority.certificate())))


@node_call("POST")
def heartbeat(caller: Caller, request: HttpRequest) -> bytes:
    """A Heartbeat in, Wanted out. The map goes along where the node holds another one."""
    with hearing.counted():
        beat = from_dict(Heartbeat, decode(caller.body))
        if beat.node_id != caller.node.id:
            raise WireError(f"Heartbeat.node_id: {caller.node.id} signed, not {beat.node_id[:40]}")
        wanted = nodes.heartbeat(node=caller.node, beat=beat, now=caller.now, call=caller.call, own=caller.own)
        versions = [answer for _, answer in signals.snapshot_asked.send(sender=heartbeat, node=caller.node) if answer]
        current = members.published_version() or members.publish().version
        answer = to_dict(
            replace(
                wanted,
                snapshot_version=versions[0] if versions else "",
                heartbeat=settings.CONFIG.heartbeat,
                map_version=current,
            )
        )
        if beat.map_version != current:
            answer["map_version"], content = members.payload(current)
            answer["map"] = orjson.Fragment(content)
        return orjson.dumps(answer)


@node_call("GET")
def heard(caller: Caller, request: HttpRequest) -> bytes:
    """Asked by the reconciler's tick over this controller's own node listener: are heartbeats processed at this moment?

    The question goes the way that heartbeats go, and its answer is written where theirs are.
    """
    hearing.mark(now=caller.now, own=caller.own)
    return b'{"heard":true}'
