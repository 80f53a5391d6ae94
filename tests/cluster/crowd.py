"""Full clusters, and who is asked to give way in them."""

from __future__ import annotations

from typing import Any

from cluster.domain.board import Board
from cluster.domain.eviction import Eviction
from cluster.domain.place import Placer
from cluster.domain.preempt import make_room
from cluster.domain.quotas import Ledger
from cluster.domain.types import (
    Amount,
    Klass,
    ModelView,
    NodeView,
    ReplicaView,
    ScopeView,
    Share,
    Standing,
    World,
)
from llmgw_site.lib.units import GIB
from tests.cluster.builders import (
    a_model,
    a_profile,
    a_replica,
)

NOW = 1_000_000.0
LOW, MID, HIGH = Klass.OPPORTUNISTIC, Klass.STANDARD, Klass.CRITICAL


def sized(name: str, gib: float, klass: Klass = LOW, **fields: Any) -> ModelView:
    """A model of one CPU way that needs so many GiB of memory."""
    values = {"base": 9, "profiles": (a_profile(f"{name}-cpu", memory=int(gib * GIB)),), **fields}
    return a_model(name, klass=klass, **values)


def on(node: NodeView, model: ModelView, **fields: Any) -> ReplicaView:
    return a_replica(model, node, **fields)


def carded(node: NodeView, model: ModelView, sizes: dict[str, float], **fields: Any) -> ReplicaView:
    cards = tuple((uuid, int(size * GIB)) for uuid, size in sizes.items())
    share = Share(node_id=node.id, memory=model.profiles[0].memory, cards=cards)
    return a_replica(model, node, shares=(share,), **fields)


def seek(world: World, model: ModelView, now: float = NOW) -> Eviction | None:
    board = Board(world)
    before = [(room.memory, room.cores, tuple(room.cards)) for room in board.by_index]
    found = make_room(board, Placer(board), Ledger(board), model, now)
    assert [(room.memory, room.cores, tuple(room.cards)) for room in board.by_index] == before, (
        "the board was left changed"
    )
    return found


def taken(found: Eviction | None) -> set[str]:
    assert found is not None
    return {item.replica.id for item in found.victims}


def demand(name: str, klass: Klass = LOW, **standing: Any) -> ModelView:
    return sized(name, 6, klass, base=0, most=1, standing=Standing(**standing))


ORG, OTHER = "org_one", "org_two"


def scoped(guarantee: int) -> tuple[ScopeView, ...]:
    return (
        ScopeView(id=ORG, kind="organisation", name="one", guarantee=Amount(memory=guarantee * GIB)),
        ScopeView(id=OTHER, kind="organisation", name="two"),
    )
