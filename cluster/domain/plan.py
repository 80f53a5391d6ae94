"""What a decision is: operations on replicas, and the reasons why a model waits.

`after` is the one definition of what an operation does to the picture, and `recheck` of when it still may be done:
the planner works with both while it plans, `services/apply.py` under its lock, the tests all the time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cluster.domain import feasible
from cluster.domain.feasible import Answer
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, ReplicaView, World

SURGE = 1
"""Replicas that a model may have beyond what is wanted, while it is being replaced."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """Place a new replica."""

    model_id: str
    profile_id: str
    node_id: str
    slot: int
    digest: str
    reason: str
    replica_id: str = ""  # apply gives it one

    @property
    def subject(self) -> str:
        return self.model_id


@dataclass(frozen=True, kw_only=True)
class Renew:
    """Have a replica start anew where it is, as its profile says now: stop, then start."""

    replica_id: str
    profile_id: str
    digest: str
    generation: int
    reason: str

    @property
    def subject(self) -> str:
        return self.replica_id


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Drain a replica, then stop it."""

    replica_id: str
    reason: str

    @property
    def subject(self) -> str:
        return self.replica_id


@dataclass(frozen=True, kw_only=True)
class Remove:
    """Forget a replica of which nothing is left."""

    replica_id: str
    reason: str

    @property
    def subject(self) -> str:
        return self.replica_id


Op = Start | Renew | Stop | Remove


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Why a model has fewer ready replicas than it should, or why one (`replica_id`) is not where or what it should be:
    a stable code, and words with what to do."""

    model_id: str
    code: str
    message: str
    replica_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    ops: tuple[Op, ...] = ()
    waits: tuple[Wait, ...] = ()


def running(world: World, model_id: str) -> list[ReplicaView]:
    """Replicas that are meant to run and can come to serve: neither lost nor failed for good."""
    return [item for item in world.of_model(model_id) if item.run and world.state(item) not in _OUT]


_OUT = frozenset({ReplicaState.LOST, ReplicaState.FAILED})


def outdated(model: ModelView, replica: ReplicaView) -> bool:
    """Whether no enabled profile of its model is what it was started as."""
    return all(replica.digest != item.digest for item in model.profiles)


def old(world: World, model: ModelView, replica: ReplicaView) -> bool:
    """Whether a replica is to be replaced by another: outdated, or to move."""
    return outdated(model, replica) or bool(world.to_move(replica))


def recheck(op: Op, world: World) -> str:
    """Why this operation must not be done to this world; empty if it may.

    1. Start: model and profile still as planned, not one too many (one more only where an old one is to be replaced),
       slot free, still feasible
    2. Renew: the replica is still meant to run, in the generation before, the profile as planned and feasible there
    3. Stop: the replica is still meant to run, and the model has enough without it: see `_needed`
    4. Remove: nothing of it is left, or its node was removed
    """
    if isinstance(op, Start):  # 1
        model = world.model(op.model_id)
        if model is None or not model.target:
            return "the model is not wanted any more"
        profile = next((item for item in model.profiles if item.id == op.profile_id), None)
        if profile is None or profile.digest != op.digest:
            return "the profile changed meanwhile"
        there = running(world, model.id)
        if len(there) >= model.target + (SURGE if any(old(world, model, item) for item in there) else 0):
            return "the model has enough replicas"
        if any(item.slot == op.slot for item in world.of_model(model.id)):
            return f"slot {op.slot} is taken"
        node = world.node(op.node_id)
        if node is None:
            return "the node was removed"
        verdict = feasible.feasible(world, node, profile)
        return "" if verdict.answer is Answer.OK else f"node {node.name}: {verdict.message}"
    replica = world.replica(op.replica_id)
    if replica is None:
        return "the replica is gone"
    node = world.node(replica.node_id)
    if isinstance(op, Renew):  # 2
        model = world.model(replica.model_id)
        profile = next((item for item in model.profiles if item.id == op.profile_id), None) if model else None
        if not replica.run or replica.generation != op.generation - 1:
            return "the replica changed meanwhile"
        if profile is None or profile.digest != op.digest:
            return "the profile changed meanwhile"
        if node is None:
            return "the node was removed"
        verdict = feasible.feasible(world, node, profile, [replica.id])
        return "" if verdict.answer is Answer.OK else f"node {node.name}: {verdict.message}"
    if isinstance(op, Stop):  # 3
        return _needed(replica, world) if replica.run else "it is being stopped already"
    if node is None:  # 4
        return ""
    return "" if not replica.run and replica.state is ReplicaState.STOPPED else "something of it may still run"


def _needed(replica: ReplicaView, world: World) -> str:
    """Why a replica must go on; empty if it may stop. Two planners that saw different moments stop no two for one.

    1. of a model that wants none, or has nothing to run it as, each may stop
    2. a ready, a lost or a failed one, if enough others are ready
    3. any other, if enough are on their way without it
    """
    model = world.model(replica.model_id)
    if model is None or not model.target or not model.profiles:  # 1
        return ""
    others = [item for item in running(world, model.id) if item.id != replica.id]
    if world.state(replica) in {ReplicaState.READY, *_OUT}:  # 2
        others = [item for item in others if item.state is ReplicaState.READY]
    return "" if len(others) >= model.target else "the model has no replica too many any more"  # 3


def after(op: Op, world: World, *, new_id: str = "") -> World:
    """The world with this operation done."""
    if isinstance(op, Start):
        model = world.model(op.model_id)
        profile = next(item for item in model.profiles if item.id == op.profile_id) if model else None
        new = ReplicaView(
            id=op.replica_id or new_id or f"planned:{op.model_id}:{op.slot}",
            model_id=op.model_id,
            profile_id=op.profile_id,
            node_id=op.node_id,
            slot=op.slot,
            digest=op.digest,
            reserved=profile.memory if profile else 0,
            cards=_cards(world, op.node_id),
        )
        return replace(world, replicas=(*world.replicas, new))
    if isinstance(op, Remove):
        return replace(world, replicas=tuple(item for item in world.replicas if item.id != op.replica_id))
    return replace(
        world,
        replicas=tuple(_changed(op, item, world) if item.id == op.replica_id else item for item in world.replicas),
    )


def _changed(op: Renew | Stop, replica: ReplicaView, world: World) -> ReplicaView:
    if isinstance(op, Stop):
        return replace(replica, run=False)
    model = world.model(replica.model_id)
    memory = next((item.memory for item in model.profiles if item.id == op.profile_id), 0) if model else 0
    return replace(
        replica,
        profile_id=op.profile_id,
        digest=op.digest,
        generation=op.generation,
        reserved=memory,
        cards=_cards(world, replica.node_id),
        state=ReplicaState.PENDING,
        code="",
        message="",
    )


def _cards(world: World, node_id: str) -> tuple[str, ...]:
    node = world.node(node_id)
    return node.usable_cards if node else ()
