"""What machines call: joining, certificates, the heartbeat. Never DRF.

Signed calls of nodes only (cluster/services/calls.py), except for joining, where a token's proof stands for a signature.
"""

from __future__ import annotations

import orjson
from django.conf import settings
from django.http import HttpRequest

from catalog.services import versions
from cluster import selectors, signals
from cluster.domain.leasing import LimitsAsk
from cluster.selectors import mirror
from cluster.services import authority, demands, hearing, joining, members, nodes, setup
from cluster.services import limits as counting
from cluster.services.calls import Caller, decode, node_call, open_call
from cluster.wire import (
    CertificateAnswer,
    CertificateRequest,
    Demand,
    Heartbeat,
    JoinRequest,
    Wanted,
    WireError,
    from_dict,
    to_dict,
)

MAX_JOIN = 16 * 1024
"""Bytes of a request to join: nobody has proved anything before it is read."""


@open_call("POST", max_body=MAX_JOIN)
def join(body: bytes) -> bytes:
    """A JoinRequest in, JoinAnswer out."""
    return orjson.dumps(to_dict(joining.join(from_dict(JoinRequest, decode(body)), now=selectors.database_now())))


@node_call("POST")
def certificate(caller: Caller, request: HttpRequest) -> bytes:
    """A CertificateRequest in, the node's next certificate out."""
    asked = from_dict(CertificateRequest, decode(caller.body))
    made = authority.issue(csr=asked.csr, node=caller.node, now=caller.now)
    return orjson.dumps(to_dict(CertificateAnswer(certificate=made, ca_certificate=authority.certificate())))


@node_call("POST")
def heartbeat(caller: Caller, request: HttpRequest) -> bytes:
    """A Heartbeat in, Wanted out. The map goes along where the node holds another one.

    What is told is put together from what the rows hold already: reading it into messages only to write them out again
    would cost as much as all the rest.
    """
    with hearing.counted():
        beat = from_dict(Heartbeat, decode(caller.body))
        if beat.node_id != caller.node.id:
            raise WireError(f"Heartbeat.node_id: {caller.node.id} signed, not {beat.node_id[:40]}")
        rows = nodes.observe(node=caller.node, beat=beat, now=caller.now, call=caller.call, heard_at=caller.heard_at)
        versions = [answer for _, answer in signals.snapshot_asked.send(sender=heartbeat, node=caller.node) if answer]
        orders = mirror.orders_for(caller.node, rows, mark=caller.versions_mark, now=caller.now)
        current = members.version_for(beat.map_version, caller.map_version or members.publish().version)
        wanted = Wanted(
            server_time=caller.now,
            snapshot_version=versions[0] if versions else "",
            heartbeat=settings.CONFIG.heartbeat,
            map_version=current,
            roles=setup.roles_by(caller.setup_mark, caller.node),
            weights_mark=caller.node.weights_mark,
            fetches=orders.fetches,
            kept=orders.kept,
            removed=orders.removed,
        )
        answer = {**to_dict(wanted), "replicas": selectors.wanted_dicts(rows)}
        if beat.map_version != current:
            answer["map_version"], content = members.payload(current)
            answer["map"] = orjson.Fragment(content)
        return orjson.dumps(answer)


@node_call("POST")
def demand(caller: Caller, request: HttpRequest) -> bytes:
    """A Demand in, DemandAnswer out: a gateway has requests for a model at rest."""
    order = from_dict(Demand, decode(caller.body))
    return orjson.dumps(to_dict(demands.asked(order, now=caller.now)))


@node_call("POST")
def limits(caller: Caller, request: HttpRequest) -> bytes:
    """A LimitsAsk in, LimitsAnswer out: an edge wants of what keys and scopes may have. Raises Refused `limits_not_counted`."""
    question = from_dict(LimitsAsk, decode(caller.body))
    return orjson.dumps(to_dict(counting.lease(question, node_id=caller.node.id)))


@node_call("GET")
def manifest(caller: Caller, request: HttpRequest) -> bytes:
    """What a version consists of. Raises Refused `version_unknown`."""
    return orjson.dumps(versions.manifest_of(request.GET.get("version", "")).as_dict())


@node_call("GET")
def heard(caller: Caller, request: HttpRequest) -> bytes:
    """Asked by the reconciler's tick over this controller's own node listener: are heartbeats processed at this moment?

    The question goes the way that heartbeats go, and its answer is written where theirs are.
    """
    hearing.mark(node_id=caller.node.id, now=caller.now)
    return b'{"heard":true}'
