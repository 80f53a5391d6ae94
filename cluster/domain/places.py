"""Nodes where a model may get room that others leave: how dear who has to go there is at least, by sums alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from cluster.domain.board import Board
from cluster.domain.feasible import passing
from cluster.domain.room import Room
from cluster.domain.tally import Tally
from cluster.domain.types import ReplicaView
from cluster.domain.victims import Rights, size_of, stuck

Dearness = tuple[int, int, int]
"""Class, requests that it works at, bytes: the smaller, the sooner a replica gives way."""
NOBODY: Dearness = (-1, 0, 0)
"""Nobody has to go: others leave."""
WINDOWS = 8
"""Sets of nodes of one fabric that are tried."""
Place = tuple[Dearness, tuple[int, ...], list[Room]]
"""How dear the dearest is at least who has to go, an order among equals, and the nodes."""


class Places:
    """Nodes of one way to run a model, and those on them who may go. `kept`: nodes where room was kept for others, and may
    do as it is."""

    def __init__(self, board: Board, rights: Rights, possible: list[Room], kept: Collection[str] = ()) -> None:
        self.board, self.rights, self.possible, self.kept = board, rights, possible, kept
        self._classes = {item.id: int(item.klass) for item in board.world.models}

    def all(self) -> Iterator[Place]:
        """Each place that may have room enough when those have gone who may; never dearer than it is."""
        span, fabrics = self.rights.profile.span, dict[str, list[Place]]()
        for room in self.possible:
            place = self._alone(room)
            if place is not None and span == 1:
                yield place
            elif place is not None:
                fabrics.setdefault(room.node.fabric, []).append(place)
        for rooms in fabrics.values():
            rooms.sort(key=lambda item: item[:2])
            for first in islice(range(len(rooms) - span + 1), WINDOWS):
                chosen = rooms[first : first + span]
                yield chosen[-1][0], chosen[-1][1], [room for item in chosen for room in item[2]]

    def on(self, rooms: list[Room]) -> tuple[list[ReplicaView], list[ReplicaView]]:
        """Those that leave these nodes already, and all others by how dear they are; of equally dear ones the newest first:
        it has warmed up the least."""
        found = {item.id: item for room in rooms for item in self.board.on_node(room.node.id)}
        newest = sorted(found.values(), key=lambda item: item.id, reverse=True)  # ids sort by time
        staying = [item for item in newest if item.run and item.model_id in self._classes]
        return [item for item in newest if self._leaves(item)], sorted(staying, key=self.dearness)

    def dearness(self, replica: ReplicaView) -> Dearness:
        return (self._classes[replica.model_id], replica.in_flight, size_of(replica))

    def key(self, rooms: list[Room]) -> tuple[int, ...]:
        """Among equally dear places: weights at hand, then few replicas of this model, then the name."""
        model = self.rights.asked.model
        away = sum(model.weights not in room.node.weights for room in rooms)
        return (away, sum(self.board.count(model.id, room.node.id) for room in rooms), rooms[0].index)

    def _alone(self, room: Room) -> Place | None:
        """One node."""
        profile, model, node_id = self.rights.profile, self.rights.asked.model, room.node.id
        if profile.span > 1 and not passing(room, profile, model):
            return (NOBODY, (0, *self.key([room])), [room])
        tally = Tally(room, profile, model)
        there = self.board.on_node(node_id)
        classes, staying = self._classes, []
        for item in there:
            if item.run:
                klass = classes.get(item.model_id)
                if klass is not None:
                    staying.append((klass, item.in_flight, size_of(item), item.id, item))
            elif self._leaves(item):
                tally.add(item)
        if tally.fits():
            return (
                (NOBODY, (0, *self.key([room])), [room]) if len(staying) < len(there) or node_id in self.kept else None
            )
        staying.sort()
        for count, (klass, requests, size, _, item) in enumerate(staying, 1):
            if self.rights.ground(item) is not None:
                tally.add(item)
                if tally.fits():
                    return ((klass, requests, size), (count, *self.key([room])), [room])
        return None

    def _leaves(self, replica: ReplicaView) -> bool:
        return not replica.run and not stuck(self.board, replica, self.rights.asked.now)
