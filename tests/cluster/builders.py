"""Views for tests: every field has a sane default, a test names only what it is about."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

from cluster.domain.board import Board
from cluster.domain.plan import Plan, do, recheck
from cluster.domain.states import ReplicaState
from cluster.domain.types import CardView, ModelView, NodeView, ProfileView, ReplicaView, Share, World
from llmgw_site.lib.units import GIB

_ids = count(1)
READY = ReplicaState.READY


def a_profile(name: str = "cpu", **fields: Any) -> ProfileView:
    values = {"id": f"prof_{name}", "engine": "llama.cpp", "digest": f"digest-{name}-1", "memory": GIB, **fields}
    return ProfileView(name=name, **values)


def a_model(name: str = "small", **fields: Any) -> ModelView:
    values: dict[str, Any] = {"id": f"mod_{name}", "profiles": (a_profile(f"{name}-cpu"),), **fields}
    return ModelView(name=name, **values)


def a_node(name: str = "one", *, memory: int = 8 * GIB, **fields: Any) -> NodeView:
    values: dict[str, Any] = {
        "id": f"node_{name}",
        "engines": {"llama.cpp": ""},
        "cores": 4,
        "memory_total": memory,
        "memory_available": memory,
        **fields,
    }
    return NodeView(name=name, **values)


def a_card(uuid: str = "GPU-0", *, memory: int = 24 * GIB, **fields: Any) -> CardView:
    return CardView(uuid=uuid, memory_total=memory, **{"klass": "L4", **fields})


def a_replica(model: ModelView, node: NodeView, *, reserved: int | None = None, **fields: Any) -> ReplicaView:
    """A replica of the model's first profile, as wanted; `ready` by default. `reserved`: bytes, if not the profile's."""
    profile = model.profiles[0] if model.profiles else a_profile()
    values: dict[str, Any] = {
        "id": f"rep_{next(_ids):06d}",
        "profile_id": profile.id,
        "digest": profile.digest,
        "shares": (
            Share(node_id=node.id, memory=profile.memory if reserved is None else reserved, cores=profile.threads),
        ),
        "slot": 0,
        "state": READY,
        **fields,
    }
    return ReplicaView(model_id=model.id, node_id=node.id, **values)


def applied(world: World, plan: Plan) -> World:
    """The world after a plan; every operation must pass its own check at its turn."""
    board = Board(world)
    for op in plan.ops:
        assert recheck(op, board) == "", f"{op} was planned and then refused"
        do(op, board, new_id=f"rep_{next(_ids):06d}")
    return board.as_world()


def with_replica(world: World, replica_id: str, **fields: Any) -> World:
    return replace(world, replicas=tuple(replace(r, **fields) if r.id == replica_id else r for r in world.replicas))


def nodes_work(world: World) -> World:
    """What good nodes do until their next heartbeat: placed ones load, loading ones get ready, unwanted ones stop."""
    order = {ReplicaState.PENDING: ReplicaState.STARTING, ReplicaState.STARTING: READY}

    def next_state(replica: ReplicaView) -> ReplicaState:
        if not replica.run:
            return ReplicaState.STOPPED
        return order.get(replica.state, replica.state)

    return replace(world, replicas=tuple(replace(r, state=next_state(r)) for r in world.replicas))
