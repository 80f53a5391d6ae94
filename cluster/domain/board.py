"""The picture while a plan is made: a world, and what the operations so far have made of it.

A `World` is frozen; a plan for a thousand replicas on ten thousand nodes cannot copy it for each of them. A `Board` changes
in place, remembers what it changed, and goes back to any earlier moment: a plan can try what would happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Protocol

from cluster.domain.moving import why_to_move
from cluster.domain.room import Room, fetches, kind_of
from cluster.domain.states import ReplicaState
from cluster.domain.types import Claim, ModelView, NodeView, ReplicaView, Standing, World, state_of


class Watcher(Protocol):
    """Somebody who keeps sums over a board true while it changes. Each is told of what was before and what is after."""

    def changed(self, before: ReplicaView | None, after: ReplicaView | None) -> None: ...

    def kept(self, before: Claim | None, after: Claim | None) -> None: ...


class Board:
    """Replicas and claims as they stand now, and the room that they leave on each node.

    `rooms`: by node id, in the order of names. `log`: ids of nodes whose room changed, in order; whoever ranks nodes
    reads on from where it was.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.rooms: dict[str, Room] = {}
        for index, node in enumerate(sorted(world.nodes, key=lambda item: (item.name, item.id))):
            self.rooms[node.id] = Room(node, index)
        self.by_index: tuple[Room, ...] = tuple(self.rooms.values())
        self.log: list[str] = []
        self.watchers: list[Watcher] = []
        self._models = {item.id: item for item in world.models}
        self._fetched = {item.id: (item.weights, item.weights_size) for item in world.models if item.weights}
        self._journal: list[_Change] = []
        self._claims: dict[str, Claim] = {}
        self._replicas: dict[str, ReplicaView] = {}
        self._of_model: dict[str, dict[str, ReplicaView]] = {}
        self._on_node: dict[str, dict[str, ReplicaView]] = {}
        self._leaving: dict[str, ReplicaView] = {}
        for replica in world.replicas:
            self._put(None, replica, lifted=False)
        for claim in world.claims:
            self._keep(claim.model_id, claim)

    # --- looking

    @cached_property
    def kinds(self) -> Sequence[int]:
        """By a room's index: a number that is the same for nodes that are alike in all that lasts but their labels."""
        known: dict[object, int] = {}
        return [known.setdefault(kind_of(room.node), len(known)) for room in self.by_index]

    def model(self, model_id: str) -> ModelView | None:
        return self._models.get(model_id)

    def node(self, node_id: str) -> NodeView | None:
        room = self.rooms.get(node_id)
        return room.node if room is not None else None

    def replica(self, replica_id: str) -> ReplicaView | None:
        return self._replicas.get(replica_id)

    @property
    def replicas(self) -> Sequence[ReplicaView]:
        return list(self._replicas.values())

    def of_model(self, model_id: str) -> Sequence[ReplicaView]:
        return list(self._of_model.get(model_id, {}).values())

    @property
    def leaving(self) -> Sequence[ReplicaView]:
        """Replicas that are told to stop and of which something may be left."""
        return list(self._leaving.values())

    def on_node(self, node_id: str) -> Sequence[ReplicaView]:
        """Replicas that hold something of this node."""
        return list(self._on_node.get(node_id, {}).values())

    def count(self, model_id: str, node_id: str) -> int:
        """Replicas of a model that hold something of a node."""
        there = self._on_node.get(node_id)
        return sum(item.model_id == model_id for item in there.values()) if there else 0

    @property
    def claims(self) -> Sequence[Claim]:
        return list(self._claims.values())

    def claim_of(self, model_id: str) -> Claim | None:
        return self._claims.get(model_id)

    def state(self, replica: ReplicaView) -> ReplicaState:
        room = self.rooms.get(replica.node_id)
        if room is not None and not room.lost and len(replica.shares) < 2:
            return replica.state
        return state_of(replica, (self.node(node_id) for node_id in replica.node_ids))

    def to_move(self, replica: ReplicaView) -> str:
        """Why a replica shall leave a node of those that it is on; empty if it may stay."""
        room, model = self.rooms.get(replica.node_id), self.model(replica.model_id)
        alone = len(replica.shares) < 2
        if room is not None and alone and not room.drains and not replica.code and (model is None or not model.pinned):
            return ""  # as nearly always; it is asked of each replica
        rooms = [self.rooms[node_id] for node_id in replica.node_ids if node_id in self.rooms]
        return next((why for item in rooms if (why := why_to_move(replica, item, model))), "")

    def as_world(self) -> World:
        """The picture as a world of its own."""
        claims = tuple(self._claims[key] for key in sorted(self._claims))
        models = tuple(self._models.values())
        return replace(self.world, models=models, replicas=tuple(self._replicas.values()), claims=claims)

    # --- changing

    def put(self, replica: ReplicaView) -> None:
        """A new replica, or another state of one."""
        self._change(self._replicas.get(replica.id), replica, lifted=False)

    def drop(self, replica_id: str) -> None:
        """A replica of which nothing is left."""
        self._change(self._replicas[replica_id], None, lifted=False)

    def lift(self, replica_id: str) -> None:
        """Take a replica away as if its engine had ended: what it holds, and what the machine says it uses, is free."""
        self._change(self._replicas[replica_id], None, lifted=True)

    def unlift(self, replica: ReplicaView) -> None:
        """Have one back that was lifted."""
        self._change(None, replica, lifted=True)

    def claim(self, model_id: str, claim: Claim | None) -> None:
        """Keep room for a model, or (None) keep it no longer."""
        self._journal.append((model_id, self._keep(model_id, claim)))

    def remember(self, model_id: str, standing: Standing) -> ModelView:
        """Another standing of a model; the model as it is then."""
        before = self._models[model_id]
        self._journal.append(before)
        self._models[model_id] = replace(before, standing=standing)
        return self._models[model_id]

    def mark(self) -> int:
        return len(self._journal)

    def back(self, mark: int) -> None:
        """Undo everything since `mark`."""
        while len(self._journal) > mark:
            change = self._journal.pop()
            if isinstance(change, ModelView):
                self._models[change.id] = change
            elif len(change) == 2:
                self._keep(*change)
            else:
                before, after, lifted = change
                self._put(after, before, lifted=lifted)

    def _change(self, before: ReplicaView | None, after: ReplicaView | None, *, lifted: bool) -> None:
        self._journal.append((before, after, lifted))
        self._put(before, after, lifted=lifted)

    def _put(self, before: ReplicaView | None, after: ReplicaView | None, *, lifted: bool) -> None:
        if before is not None:
            self._hold(before, -1, lifted=lifted)
            if not before.run:
                del self._leaving[before.id]
            if after is None:
                del self._replicas[before.id], self._of_model[before.model_id][before.id]
            for node_id in before.node_ids:
                del self._on_node[node_id][before.id]
        if after is not None:
            self._replicas[after.id] = after
            self._of_model.setdefault(after.model_id, {})[after.id] = after
            for node_id in after.node_ids:
                self._on_node.setdefault(node_id, {})[after.id] = after
            self._hold(after, 1, lifted=lifted)
            if not after.run:
                self._leaving[after.id] = after
        for watcher in self.watchers:
            watcher.changed(before, after)

    def _hold(self, replica: ReplicaView, sign: int, *, lifted: bool) -> None:
        weights = self._fetched.get(replica.model_id) if self._fetched and fetches(replica) else None
        for share in replica.shares:
            room = self.rooms.get(share.node_id)
            if room is not None:
                room.take(replica, share, sign, lifted=lifted)
                if weights is not None:
                    room.fetch(*weights, sign)
                self.log.append(share.node_id)

    def _keep(self, model_id: str, claim: Claim | None) -> Claim | None:
        """The claim that this one replaces."""
        before, weights = self._claims.pop(model_id, None), self._fetched.get(model_id)
        for held, sign in ((before, -1), (claim, 1)):
            for share in held.shares if held else ():
                room = self.rooms.get(share.node_id)
                if room is not None:
                    room.keep(share, sign)
                    if weights is not None:
                        room.fetch(*weights, sign)
                    self.log.append(share.node_id)
        if claim is not None:
            self._claims[model_id] = claim
        for watcher in self.watchers:
            watcher.kept(before, claim)
        return before


_Change = tuple[ReplicaView | None, ReplicaView | None, bool] | tuple[str, Claim | None] | ModelView
"""What was before and after, and whether it was lifted; or a model and the claim that it had; or a model as it was."""
