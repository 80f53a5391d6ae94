"""Maintenance: a node or one of its cards is cordoned (nothing new) or drained (replicas move away too), and back."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from catalog.services import events
from cluster import selectors, signals
from cluster.domain.maintenance import Maintenance
from cluster.models import Node
from cluster.services.locks import plan_lock
from llmgw_site.lib.errors import Kind, Refused


def cordon(*, actor: str, node_id: str, why: str = "", card: str = "") -> Node:
    """Have nothing new placed on a node, or on one of its cards (by UUID). What runs there stays."""
    return _set(actor=actor, node_id=node_id, state=Maintenance.CORDONED, why=why, card=card)


def drain(*, actor: str, node_id: str, why: str = "", card: str = "") -> Node:
    """Have the replicas of a node, or those that may use one of its cards, move away, and nothing new placed there.

    Each is started elsewhere first and stopped when that one is ready. One that fits nowhere else stays and serves.
    """
    return _set(actor=actor, node_id=node_id, state=Maintenance.DRAINED, why=why, card=card)


def uncordon(*, actor: str, node_id: str, why: str = "", card: str = "") -> Node:
    """End the maintenance of a node, or of one of its cards; the other is left as it is. Where there is none nothing
    happens."""
    return _set(actor=actor, node_id=node_id, state=None, why=why, card=card)


def _set(*, actor: str, node_id: str, state: Maintenance | None, why: str, card: str) -> Node:
    """Write it down, with who, when and why. Raises Refused `node_unknown` or `unknown_card`.

    Under the plan lock: no plan that was decided without it is committed after it.
    """
    with plan_lock():
        node = Node.objects.filter(id=node_id, removed_at__isnull=True).first()
        if node is None:
            raise Refused(Kind.NOT_FOUND, "node_unknown", f"there is no node {node_id} in the cluster")
        before = _card(node, card) if card else node.maintenance
        if not (before or state):
            return node
        now = selectors.from_unix(selectors.database_now())
        mark = {"state": state.value, "why": why, "by": actor[:200], "at": now.isoformat()} if state else None
        if card:
            cards = {uuid: item for uuid, item in node.cards_maintenance.items() if uuid != card}
            node.cards_maintenance = {**cards, card: mark} if mark else cards
        else:
            node.maintenance, node.maintenance_why = (state.value if state else ""), (why if state else "")
            node.maintenance_by, node.maintenance_at = (actor[:200], now) if state else ("", None)
        node.save(
            update_fields=[
                "cards_maintenance", "maintenance", "maintenance_why", "maintenance_by", "maintenance_at"
            ]
        )  # fmt: skip
        after = state.value if state else ""
        _tell(node, card=card, actor=actor, before=before, after=after, why=why)
    return node


def _card(node: Node, card: str) -> str:
    """The present maintenance of a card of this node. Raises Refused for one that it does not have."""
    known = [item["uuid"] for item in node.hardware.get("cards", ())]
    if card not in known and card not in node.cards_maintenance:
        there = f"its cards are {', '.join(known)}" if known else "it reports no cards"
        text = f"node {node.name} has no card {card[:100]!r}: {there}"
        raise Refused(Kind.INVALID, "unknown_card", text, param="card")
    return str(node.cards_maintenance.get(card, {}).get("state", ""))


def _tell(node: Node, *, card: str, actor: str, before: str, after: str, why: str) -> None:
    what = f"card {card} of node {node.name}" if card else f"node {node.name}"
    fields: dict[str, Any] = {"card": card} if card else {}
    events.append(
        actor=actor,
        kind=f"{'card' if card else 'node'}_{after or 'uncordoned'}",
        subject_kind="node",
        subject_id=node.id,
        message=f"{what} was {after}" if after else f"the maintenance of {what} has ended",
        before={**fields, "maintenance": before},
        after={**fields, "maintenance": after},
        why=why,
    )
    transaction.on_commit(lambda: signals.members_changed.send_robust(sender=Node, removed=()))
    transaction.on_commit(lambda: signals.observed.send_robust(sender=Node, node_id=node.id))
