"""Labels and fabric of nodes: what profiles and placement ask of them, as administrators say it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from catalog.domain import labels
from catalog.services import events
from cluster import signals
from cluster.domain import parts
from cluster.models import Node, ReplicaPart
from cluster.services.locks import plan_lock
from llmgw_site.lib.errors import Kind, Refused

FABRIC = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


def label(*, actor: str, node_id: str, changes: Mapping[str, str | None], why: str = "") -> Node:
    """Give a node these labels beside those it has; None takes one away. A replica that runs there stays: labels are asked
    for when it is placed. Raises Refused `node_unknown` or `invalid_value`."""
    with plan_lock():
        node = _node(node_id)
        after = {key: value for key, value in {**node.labels, **changes}.items() if value is not None}
        wrong = labels.problem({key: value or "" for key, value in changes.items()}) or labels.problem(after)
        if wrong:
            raise Refused(Kind.INVALID, "invalid_value", f"labels: {wrong}.", param="labels")
        return _write(node, "labels", after, actor=actor, why=why)


def fabric(*, actor: str, node_id: str, name: str, address: str | None = None, why: str = "") -> Node:
    """Say over which fast network a node can share a replica with others; empty: over none. `address`: its IP address there, empty:
    that of its node listener, None: as it is.

    Raises Refused `node_unknown`, `invalid_value`, or `fabric_in_use` while a part of a replica is there: its others reach it so.
    """
    if name and not FABRIC.fullmatch(name):
        text = f"fabric: {name[:80]!r} is no name of one: write 1 to 64 letters, digits and . _ - that begin and end plainly."
        raise Refused(Kind.INVALID, "invalid_value", text, param="fabric")
    where = parts.fabric_address(address, "") if address else ""
    if address and not where:
        text = f"address: {address[:80]!r} is no IP address: write the one that the node has on this fabric."
        raise Refused(Kind.INVALID, "invalid_value", text, param="address")
    with plan_lock():
        node = _node(node_id)
        where = where if name and address is not None else node.fabric_address if name else ""
        held = ReplicaPart.objects.filter(node_id=node_id).select_related("replica__model").first()
        if held is not None and (node.fabric, node.fabric_address) != (name, where):
            text = f"a replica of {held.replica.model.name} runs over node {node.name} and others on fabric {node.fabric}: "
            text += "drain the node first, or stop the model."
            raise Refused(Kind.CONFLICT, "fabric_in_use", text, param="fabric")
        _write(node, "fabric_address", where, actor=actor, why=why)
        return _write(node, "fabric", name, actor=actor, why=why)


def _node(node_id: str) -> Node:
    node = Node.objects.filter(id=node_id, removed_at__isnull=True).first()
    if node is None:
        raise Refused(Kind.NOT_FOUND, "node_unknown", f"there is no node {node_id} in the cluster")
    return node


def _write(node: Node, field: str, value: Any, *, actor: str, why: str) -> Node:
    before = getattr(node, field)
    if before == value:
        return node
    setattr(node, field, value)
    node.save(update_fields=[field])
    events.append(
        actor=actor,
        kind="node_labelled" if field == "labels" else "node_fabric_changed",
        subject_kind="node",
        subject_id=node.id,
        message=f"the {field.replace('_', ' ')} of node {node.name} changed",
        before={field: before},
        after={field: value},
        why=why,
    )
    transaction.on_commit(lambda: signals.observed.send_robust(sender=Node, node_id=node.id))
    return node
