"""Parts of replicas over several nodes, as nodes are told them and as decisions read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cluster.domain import parts as rules
from cluster.domain.parts import PartView
from cluster.domain.states import ReplicaState
from cluster.models import Node, Replica, ReplicaPart
from cluster.selectors.fleet import NodeRow
from cluster.wire import Serve, WantedReplica, from_dict


def unreachable_of(node: Node | NodeRow) -> str:
    """Why other nodes of its fabric cannot reach an engine of this node; "" if they can, or it is on none."""
    knows = all(item.get("spans") for item in node.engines if item["kind"] == "vllm")
    return rules.unreachable(node.fabric, node.fabric_address, node.address, knows=knows)


def spans(row: Replica) -> bool:
    """Whether it was made to run over several nodes."""
    return int(row.serve.get("nodes", 1)) > 1


def of_replicas(ids: Iterable[str]) -> dict[str, list[ReplicaPart]]:
    """Parts with their nodes, by the replica's id, the leader first. One query."""
    found: dict[str, list[ReplicaPart]] = {}
    rows = ReplicaPart.objects.filter(replica_id__in=list(ids)).select_related("node")
    for row in rows.order_by("replica_id", "rank"):
        found.setdefault(row.replica_id, []).append(row)
    return found


def part_view(row: ReplicaPart) -> PartView:
    return PartView(
        rank=row.rank,
        node=row.node.name,
        generation=row.generation,
        state=ReplicaState(row.state),
        since=row.state_since.timestamp(),
        code=row.code,
        message=row.message,
        pid=row.pid,
        gone=row.node.removed_at is not None,
    )


def wanted(replica: Replica, part: ReplicaPart, parts: Sequence[PartView]) -> WantedReplica:
    """What the node of a part is told."""
    own = parts[part.rank]
    told = rules.order(own, parts, run=replica.run, generation=replica.generation, grace=replica.grace)
    return WantedReplica(
        replica_id=replica.id,
        generation=told.generation,
        run=told.run,
        serve=_serve(from_dict(Serve, replica.serve, where="serve"), part, replica.shares),
        grace=told.grace,
        hold=told.hold,
    )


def _serve(serve: Serve, part: ReplicaPart, shares: Sequence[Mapping[str, Any]]) -> Serve:
    """The leader's, as it is for this part: with its own cards."""
    cards = next((share["cards"] for share in shares if share["node_id"] == part.node_id), ())
    return replace(
        serve,
        rank=part.rank,
        address=part.address,
        cards=tuple(uuid for uuid, _ in cards),
        card_memory=tuple(size for _, size in cards),
    )
