"""Wanted against seen: what to do now. One function per case; the same world and time give the same plan."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.domain.feasible import Answer, feasible
from cluster.domain.place import NoPlace, place
from cluster.domain.plan import Op, Plan, Remove, Renew, Start, Stop, Wait, after, running
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, ReplicaView, World

SHOW_AFTER = 15.0
"""Seconds that an engine may take to come back from its first failure before the model says so."""
_READY = ReplicaState.READY


def reconcile(world: World, now: float) -> Plan:
    """The plan for this moment. Models in order: highest priority first, then by name.

    1. a replica of which nothing is left, or whose node was removed: Remove
    2. a model that is disabled, gone, wants none or has no enabled profile: Stop its replicas
    3. more replicas than wanted: Stop the surplus, the least useful first. Lost ones count only when they come back,
       so a node that returns after its replicas were replaced has its own stopped
    4. an outdated replica (profile or weights changed) is replaced, one at a time and never below the wanted number
       of running ones if it can be helped:
       a. there is room for one more: Start the new one; when it is ready, case 3 stops the old one
       b. there is not: Renew it in place, stop then start; with a single replica the model is away meanwhile
       c. it does not fit there either: it stays as it is, and Wait says so
    5. fewer replicas than wanted: Start one where `place` says, else Wait with its words
    6. a replica that fails, or keeps coming back from failures, or whose node is not heard: Wait with the reason.
       Starting a dead engine again is the agent's work, not ours
    """
    planner = _Planner(world, now)
    planner.remove()  # 1
    for replica in planner.world.replicas:  # 2, of models that are gone
        if planner.world.model(replica.model_id) is None and replica.run:
            planner.do(Stop(replica_id=replica.id, reason="its model is gone"))
    for model in sorted(world.models, key=_order):
        planner.model(model)
    return Plan(ops=tuple(planner.ops), waits=tuple(planner.waits))


def _order(model: ModelView) -> tuple[int, str]:
    return (-max((item.priority for item in model.profiles), default=0), model.name)


class _Planner:
    """Collects the operations; each sees the world as the ones before it leave it."""

    def __init__(self, world: World, now: float) -> None:
        self.world = world
        self.now = now
        self.ops: list[Op] = []
        self.waits: list[Wait] = []

    def do(self, op: Op) -> None:
        self.world = after(op, self.world)
        self.ops.append(op)

    def remove(self) -> None:
        """Case 1."""
        for replica in self.world.replicas:
            if self.world.node(replica.node_id) is None:
                self.do(Remove(replica_id=replica.id, reason="its node was removed"))
            elif not replica.run and replica.state is ReplicaState.STOPPED:
                self.do(Remove(replica_id=replica.id, reason="it has stopped"))

    def model(self, model: ModelView) -> None:
        if not model.target or not model.profiles:  # 2
            reason = "the model wants no replica" if model.profiles else "the model has no enabled profile"
            reason = reason if model.enabled else "the model is disabled"
            for replica in self.world.of_model(model.id):
                if replica.run:
                    self.do(Stop(replica_id=replica.id, reason=reason))
            if model.target:
                self.missing(model)  # says what is missing: a profile
            return
        self.surplus(model)  # 3
        self.outdated(model)  # 4
        self.missing(model)  # 5
        self.troubled(model)  # 6

    def surplus(self, model: ModelView) -> None:
        """Case 3. While an outdated replica is being replaced, its successor's start is no surplus until it is ready."""
        current = {item.digest for item in model.profiles}
        active = running(self.world, model.id)
        old = [item for item in active if item.digest not in current]
        if old and len(active) > model.target:
            # case 4a under way: the old ones may go as soon as enough others are ready
            ready = sum(item.state is _READY for item in active if item.digest in current)
            enough = ready + len(old) - model.target
            for replica in sorted(old, key=_usefulness)[: max(0, min(enough, len(active) - model.target))]:
                self.do(Stop(replica_id=replica.id, reason="a replica with the changed profile has taken its place"))
        elif len(active) > model.target:
            for replica in sorted(active, key=_usefulness)[: len(active) - model.target]:
                text = f"{len(active)} replicas run and {model.target} are wanted"
                self.do(Stop(replica_id=replica.id, reason=text))
        self.lost(model)

    def lost(self, model: ModelView) -> None:
        """Case 3 for replicas on nodes that are offline: told to stop once others have taken over."""
        if sum(item.state is _READY for item in running(self.world, model.id)) < model.target:
            return
        for replica in self.world.of_model(model.id):
            if replica.run and self.world.state(replica) is ReplicaState.LOST:
                self.do(Stop(replica_id=replica.id, reason="its node is offline and others have taken its place"))

    def outdated(self, model: ModelView) -> None:
        """Case 4."""
        current = {item.digest for item in model.profiles}
        active = running(self.world, model.id)
        old = sorted((item for item in active if item.digest not in current), key=_usefulness)
        if not old or len(active) > model.target:
            return  # nothing to do, or one is being replaced at this moment
        chosen, serving = old[0], old[0].state is _READY
        if serving and any(item.digest in current and item.state is not _READY for item in active):
            return  # one after the other
        if serving and self.start(model, f"{chosen.id} runs with an older profile; "):  # a
            return
        node = self.world.node(chosen.node_id)
        profiles = sorted(model.profiles, key=lambda item: item.id != chosen.profile_id)  # its own first
        verdicts = [(item, feasible(self.world, node, item, [chosen.id])) for item in profiles] if node else []
        profile = next((item for item, verdict in verdicts if verdict.answer is Answer.OK), None)
        if profile is None:  # c
            words = verdicts[0][1].message if verdicts else ""
            text = (
                f"{chosen.id} on node {node.name if node else '?'} runs with an older profile: for the new one {words}"
            )
            self.waits.append(Wait(model_id=model.id, code="update_pending", message=text))
            return
        why = "the profile or the weights changed" + (
            ", and there is no room for a second replica beside it" if serving else ""
        )
        self.do(  # b
            Renew(
                replica_id=chosen.id,
                profile_id=profile.id,
                digest=profile.digest,
                generation=chosen.generation + 1,
                reason=why,
            )
        )

    def missing(self, model: ModelView) -> None:
        """Case 5."""
        while len(running(self.world, model.id)) < model.target:
            if not self.start(model, ""):
                return

    def start(self, model: ModelView, why: str) -> bool:
        """Start one more replica, or say why not. True if it was."""
        found = place(self.world, model)
        if isinstance(found, NoPlace):
            if not why:
                self.waits.append(Wait(model_id=model.id, code=found.code, message=found.message))
            return False
        self.do(
            Start(
                model_id=model.id,
                profile_id=found.profile.id,
                node_id=found.node.id,
                slot=free_slot(self.world.of_model(model.id)),
                digest=found.profile.digest,
                reason=why + found.reason,
            )
        )
        return True

    def troubled(self, model: ModelView) -> None:
        """Case 6."""
        for replica in self.world.of_model(model.id):
            state = self.world.state(replica)
            if not replica.run:
                continue
            node = self.world.node(replica.node_id)
            name = node.name if node else replica.node_id
            if state is ReplicaState.LOST:
                text = f"node {name} is offline, {replica.id} is lost with it"
                self.waits.append(Wait(model_id=model.id, code="node_offline", message=text))
            elif state is ReplicaState.FAILED:
                text = f"{replica.id} on node {name} has failed and is not tried again: {replica.message}"
                self.waits.append(Wait(model_id=model.id, code=replica.code or "engine_failed", message=text))
            elif state is ReplicaState.BACKOFF and (
                replica.attempt > 1 or self.now - replica.state_since >= SHOW_AFTER
            ):
                text = f"{replica.id} on node {name} keeps failing, the node tries again: {replica.message}"
                self.waits.append(Wait(model_id=model.id, code=replica.code or "engine_failing", message=text))


def free_slot(replicas: Iterable[ReplicaView]) -> int:
    """The lowest slot that no replica of the model holds."""
    taken = {item.slot for item in replicas}
    return next(number for number in range(len(taken) + 1) if number not in taken)


def _usefulness(replica: ReplicaView) -> tuple[int, str]:
    """Sort key, the least useful first: failed, trying, loading, ready; among equals the newest first."""
    order = {
        ReplicaState.STOPPED: 0,
        ReplicaState.FAILED: 0,
        ReplicaState.BACKOFF: 1,
        ReplicaState.DRAINING: 2,
        ReplicaState.PENDING: 3,
        ReplicaState.STARTING: 4,
        ReplicaState.READY: 5,
    }
    return (order.get(replica.state, 0), _newest_first(replica.id))


def _newest_first(replica_id: str) -> str:
    """Ids sort by time; this turns the order round."""
    return "".join(chr(0x10FFFF - ord(letter)) for letter in replica_id)
