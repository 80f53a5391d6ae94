"""Nodes, models and replicas as they stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from catalog.models import Model, Profile
from cluster.domain.explain import ModelStatus
from cluster.domain.states import NodeState, ReplicaState
from cluster.models import Node, Replica, ReplicaPart
from cluster.selectors import database_now, modules_of, statuses, world
from llmgw_site.console.views import CardView, MaintenanceView, ModelView, NodeView, ReplicaView

ANSWERING = (ReplicaState.READY, ReplicaState.DRAINING)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster at one moment."""

    nodes: tuple[NodeView, ...]
    models: tuple[ModelView, ...]
    replicas: tuple[ReplicaView, ...]

    @property
    def in_flight(self) -> int:
        return sum(replica.in_flight for replica in self.replicas if replica.state in ANSWERING)

    @property
    def slots(self) -> int:
        """Requests that could be answered at once."""
        return sum(replica.slots or 0 for replica in self.replicas if replica.state is ReplicaState.READY)


def cluster() -> Cluster:
    """Nodes, models and replicas as they stand: twelve queries, however many there are."""
    now = database_now()
    picture = world(now)
    _, status = statuses(picture, now)
    states = {node.id: node.state for node in picture.nodes}
    rows = list(replica_rows())
    replicas = tuple(replica_of(row, states) for row in rows)
    by_model: dict[str, list[ReplicaView]] = {}
    for row, view in zip(rows, replicas, strict=True):
        by_model.setdefault(row.model_id, []).append(view)
    on_node: dict[str, int] = {}
    for row in rows:
        on_node[row.node_id] = on_node.get(row.node_id, 0) + 1
    for node_id in part_rows().values_list("node_id", flat=True):
        on_node[node_id] = on_node.get(node_id, 0) + 1
    first: dict[str, Profile] = {}
    for profile in Profile.objects.filter(enabled=True).order_by("-priority", "name"):
        first.setdefault(profile.model_id, profile)
    embeddings = set(Model.objects.filter(embeddings=True).values_list("id", flat=True))
    models = tuple(
        _model(item.id, status[item.id], by_model.get(item.id, []), first.get(item.id), item.id in embeddings)
        for item in picture.models
    )
    nodes = tuple(
        node_of(row, states.get(row.id, NodeState.OFFLINE), on_node.get(row.id, 0))
        for row in Node.objects.filter(removed_at__isnull=True).order_by("name", "id")
    )
    return Cluster(nodes=nodes, models=models, replicas=replicas)


def replica_rows() -> QuerySet[Replica]:
    """Replicas that run or shall run, with what their views need."""
    return (
        Replica.objects.select_related("model", "node", "profile")
        .only(
            "id", "run", "state", "state_since", "code", "message", "context", "slots", "memory", "in_flight", "attempt",
            "model__name", "node__name", "node__last_seen_at", "profile__engine",
        )
        .exclude(state=ReplicaState.STOPPED.value, run=False)
        .order_by("model__name", "slot")
    )  # fmt: skip


def replica_of(row: Replica, nodes: Mapping[str, NodeState]) -> ReplicaView:
    lost = nodes.get(row.node_id, NodeState.OFFLINE) is NodeState.OFFLINE
    state = ReplicaState.LOST if lost else ReplicaState(row.state)
    return ReplicaView(
        id=row.id,
        model=row.model.name,
        node=row.node.name,
        state=state,
        state_since=since(row, state),
        run=row.run,
        code=row.code,
        message=row.message,
        engine=row.profile.engine if row.profile else "",
        context=row.context,
        slots=row.slots,
        memory=row.memory,
        in_flight=row.in_flight,
        attempt=row.attempt,
    )


def part_rows() -> QuerySet[ReplicaPart]:
    """Parts of replicas over several nodes, but those that lead: these stand for the replica."""
    rows = ReplicaPart.objects.filter(rank__gt=0).exclude(state=ReplicaState.STOPPED.value, replica__run=False)
    return rows.select_related("replica__model", "node").order_by("replica__model__name", "replica_id")


def part_of(part: ReplicaPart, nodes: Mapping[str, NodeState]) -> ReplicaView:
    lost = nodes.get(part.node_id, NodeState.OFFLINE) is NodeState.OFFLINE
    return ReplicaView(
        id=part.replica_id,
        model=f"{part.replica.model.name}, part {part.rank + 1}",
        node=part.node.name,
        state=ReplicaState.LOST if lost else ReplicaState(part.state),
        state_since=part.state_since,
        run=part.replica.run,
        code=part.code,
        message=part.message,
        engine="",
        context=None,
        slots=None,
        memory=part.memory,
        in_flight=part.replica.in_flight,
        attempt=part.replica.attempt,
    )


def since(row: Replica, state: ReplicaState) -> datetime:
    """Since when a replica is in its state: one that is lost, since its node was last heard."""
    heard = row.node.last_seen_at
    return heard if state is ReplicaState.LOST and heard is not None and heard > row.state_since else row.state_since


def _model(
    model_id: str, status: ModelStatus, replicas: Iterable[ReplicaView], profile: Profile | None, embeddings: bool
) -> ModelView:
    answering = [item for item in replicas if item.state in ANSWERING]
    contexts = [item.context for item in answering if item.context]
    return ModelView(
        id=model_id,
        name=status.name,
        status=status,
        engine="external provider" if status.external else profile.engine if profile else "",
        context=min(contexts) if contexts else (profile.context or None) if profile else None,
        slots=sum(item.slots or 0 for item in answering) or None,
        in_flight=sum(item.in_flight for item in answering),
        embeddings=embeddings,
    )


def node_of(row: Node, state: NodeState, replicas: int) -> NodeView:
    hardware: dict[str, Any] = row.hardware
    total, free = hardware.get("memory_total") or None, hardware.get("memory_available")
    return NodeView(
        id=row.id,
        name=row.name,
        state=state,
        last_seen_at=row.last_seen_at,
        version=row.version,
        cores=hardware.get("cores") or None,
        load_1m=hardware.get("load_1m"),
        memory_total=total,
        memory_used=total - free if total is not None and free is not None else None,
        disk_free=hardware.get("disk_free") or None,
        cards=_cards(hardware.get("cards", ()), row.cards_maintenance),
        engines=tuple(
            f"{item['kind']} {item.get('version', '')}".strip() for item in row.engines if not item.get("problem")
        ),
        missing=tuple(f"no {item['kind']}: {item['problem']}" for item in row.engines if item.get("problem")),
        problems=tuple(row.problems),
        replicas=replicas,
        address=row.address,
        modules=modules_of(row),
        roles=tuple(row.roles),
        maintenance=(
            MaintenanceView(
                state=row.maintenance, why=row.maintenance_why, by=row.maintenance_by, at=row.maintenance_at
            )
            if row.maintenance
            else None
        ),
        labels=tuple(f"{name}={value}" if value else name for name, value in sorted(row.labels.items())),
        fabric=row.fabric,
    )


def _cards(reported: Iterable[Mapping[str, Any]], kept: Mapping[str, Mapping[str, Any]]) -> tuple[CardView, ...]:
    """Those that the node reports, then those that are in maintenance and not reported any more."""
    there = list(reported)
    gone = sorted(set(kept) - {card.get("uuid", "") for card in there})
    return tuple(
        _card(card, kept) for card in (*there, *({"uuid": uuid, "name": f"{uuid}, not reported"} for uuid in gone))
    )


def _card(card: Mapping[str, Any], cordoned: Mapping[str, Mapping[str, Any]]) -> CardView:
    uuid = card.get("uuid", "")
    return CardView(
        uuid=uuid,
        name=card.get("name") or uuid or "card",
        memory_used=card.get("memory_used"),
        memory_total=card.get("memory_total"),
        utilisation=card.get("utilisation"),
        temperature_c=card.get("temperature_c"),
        power_w=card.get("power_w"),
        maintenance=_card_maintenance(cordoned[uuid]) if uuid in cordoned else None,
        memory_foreign=card.get("memory_foreign"),
        problem=card.get("problem") or "",
    )


def _card_maintenance(kept: Mapping[str, Any]) -> MaintenanceView:
    at = datetime.fromisoformat(kept["at"]) if kept.get("at") else None
    return MaintenanceView(state=kept["state"], why=kept.get("why", ""), by=kept.get("by", ""), at=at)
