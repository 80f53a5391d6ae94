"""Replicas that give way for a model: who, on what ground, what it costs, and how that is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cluster.domain.board import Board
from cluster.domain.place import Placement
from cluster.domain.room import Room
from cluster.domain.types import ModelView, ReplicaView
from cluster.domain.victims import Ground, Victim, size_of
from llmgw_site.lib.units import format_bytes

NAMED = 6
"""Replicas that a reason names one by one."""


@dataclass(frozen=True, kw_only=True)
class Eviction:
    """Replicas to stop, and the place that is there when they are gone. Without any: others that are told to stop leave
    room enough, and it only has to be kept. `claims`: models that come after this one, for which room was kept there until now."""

    victims: tuple[Victim, ...]
    placement: Placement
    reason: str
    claims: tuple[str, ...] = ()


def cost_of(victims: Iterable[Victim]) -> tuple[int, int, int]:
    """What it costs: requests, bytes, replicas."""
    requests = size = count = 0
    for item in victims:
        requests, size, count = requests + item.replica.in_flight, size + size_of(item.replica), count + 1
    return (requests, size, count)


_GROUNDS = {
    Ground.CLASS: "is of a lower class",
    Ground.GROWN: "has more than its base, because of load",
    Ground.TURN: "runs on demand and had its turn",
    Ground.BORROWED: "holds more than its scope is guaranteed",
}


def reason_of(
    board: Board, model: ModelView, rooms: Sequence[Room], victims: Sequence[Victim], leaving: Sequence[ReplicaView]
) -> str:
    """Where a model gets room, of whom, and why of them."""
    where = ", ".join(room.node.name for room in rooms)
    if not victims and not leaving:
        return f"{model.name} ({model.klass.name.lower()}) gets room on node {where}"
    if not victims:
        names = ", ".join(item.id for item in leaving[:NAMED])
        return f"{model.name} gets room on node {where} that {names} leave" + ("s" if len(leaving) == 1 else "")
    told = []
    for item in victims[:NAMED]:
        other, replica = board.model(item.replica.model_id), item.replica
        busy = (
            f"{replica.in_flight} requests" if replica.in_flight > 1 else "1 request" if replica.in_flight else "idle"
        )
        name, klass = (other.name, other.klass.name.lower()) if other is not None else (replica.model_id, "")
        told.append(
            f"{replica.id} of {name} ({klass}, {busy}, {format_bytes(size_of(replica))}), which {_GROUNDS[item.ground]}"
        )
    more = f"; and {len(victims) - NAMED} more" if len(victims) > NAMED else ""
    return f"{model.name} ({model.klass.name.lower()}) gets room on node {where} of {'; '.join(told)}{more}"
