"""Where a new replica goes: the best way to run the model on the hardware there is, on the best node that has room."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import groupby

from cluster.domain.board import Board
from cluster.domain.feasible import PINNED, fits_now, lasting, left_now
from cluster.domain.nowhere import FAILED_THERE, Outlook, look, outlook, refused
from cluster.domain.nowhere import NoPlace as NoPlace
from cluster.domain.room import Room
from cluster.domain.shares import share_of
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, NodeView, ProfileView, Share
from llmgw_site.lib.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where and as what, and why there. The first share is of `node`."""

    node: NodeView
    profile: ProfileView
    shares: tuple[Share, ...]
    reason: str


Failed = Collection[tuple[str, str]]
"""Pairs of node id and digest where the same has failed for good, or again and again, and is not placed again."""


class Placer:
    """Finds places on a board. Nodes are ranked once for each way to run a model and kept in order while rooms change,
    so that many replicas of a model cost little more than one."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._ranked: dict[tuple[object, ...], Ranked] = {}

    def place(self, model: ModelView, *, failed: Failed = ()) -> Placement | NoPlace:
        """A place for one more replica.

        1. the model has no enabled profile: `no_profile`
        2. the cluster has no node: `no_node`
        3. profiles in order of priority, then of what was measured of them (most tokens/s per card or core first). The
           first that fits the hardware decides, busy or not: what is free now only chooses among equals
        4. of its nodes with room the best, see `Ranked.key`
        5. nowhere: the words of the first profile that may find a place later, else of the first, see `nowhere.refused`
        """
        if not model.profiles:  # 1
            return NoPlace(code="no_profile", message=f"{model.name} has no enabled profile: add one or enable one")
        if not self.board.rooms:  # 2
            return NoPlace(code="no_node", message="the cluster has no node: start an agent")
        nowhere: list[NoPlace] = []
        for equals in ranks(model.profiles):  # 3
            refusals = []
            for profile in equals:
                found = self.on_best(model, profile, failed)  # 4
                if found is not None:
                    return found
                refusals.append(self.ranked(model, profile, failed).refusal())
            busy = next((item for item in refusals if item.busy), None)
            if busy is not None:
                return busy
            nowhere += refusals
        return next((item for item in nowhere if item.waits), nowhere[0])  # 5

    def on_best(self, model: ModelView, profile: ProfileView, failed: Failed = ()) -> Placement | None:
        """A place for this way to run the model, if there is one now."""
        ranked = self.ranked(model, profile, failed)
        rooms = ranked.fabric() if profile.span > 1 else ranked.best()
        if not rooms:
            return None
        shares = tuple(share_of(room, profile, pack=self.board.world.pack) for room in rooms)
        return Placement(node=rooms[0].node, profile=profile, shares=shares, reason=_reason(rooms, profile, shares))

    def ranked(self, model: ModelView, profile: ProfileView, failed: Failed = ()) -> Ranked:
        """The nodes of one way to run a model; `failed` as it was when it was first asked for."""
        key = (model.id, profile.id, profile.card_classes)
        if key not in self._ranked:
            self._ranked[key] = Ranked(self.board, model, profile, failed)
        return self._ranked[key]


def failed_there(board: Board, model: ModelView) -> Failed:
    """Where a model has failed for good, or again and again for want of the node, as what it was started as."""
    return {
        (item.node_id, item.digest)
        for item in board.of_model(model.id)
        if item.state is ReplicaState.FAILED or item.refused_by_system
    }


def ranks(profiles: Iterable[ProfileView]) -> list[list[ProfileView]]:
    """Profiles that are as good as each other, the best first."""
    return [list(group) for _, group in groupby(sorted(profiles, key=_worth), key=_worth)]


def _worth(profile: ProfileView) -> tuple[int, float]:
    return (-profile.priority, -profile.rate)


class Ranked:
    """The nodes that one way to run a model may use, the best first, kept true while rooms change.

    `possible`: those that could run it if they were empty; `codes`: why the others could not, by index. A node stands in the
    heap with the version of its room that it was ranked by; when a room has changed, it is put in anew, and what is left of
    its older entries is passed over.
    """

    def __init__(self, board: Board, model: ModelView, profile: ProfileView, failed: Failed) -> None:
        self.board, self.model, self.profile = board, model, profile
        self.codes = _codes(board, profile, failed)
        self.possible = [room for room, why in zip(board.by_index, self.codes, strict=True) if not why]
        self._ids = {room.node.id for room in self.possible}
        self._heap: list[_Entry] = []
        self._groups: dict[str, list[Room]] = {}
        self._best: dict[str, _Group] = {}
        if profile.span > 1:
            for room in self.possible:
                self._groups.setdefault(room.node.fabric, []).append(room)
            for fabric in self._groups:
                self._regroup(fabric)
        else:
            self._heap = [self._entry(room) for room in self.possible if fits_now(room, profile, model)]
            heapq.heapify(self._heap)
        self._read = len(board.log)

    def best(self) -> list[Room]:
        """The best node with room, or none."""
        self._catch_up()
        while self._heap:
            _, index, version = self._heap[0]
            room = self.board.by_index[index]
            if room.version == version:
                return [room]
            heapq.heappop(self._heap)
        return []

    def fabric(self) -> list[Room]:
        """The best nodes of one fabric, as many as the profile spans; of fabrics the one whose worst node is best."""
        self._catch_up()
        if not self._best:
            return []
        _, _, rooms = min(self._best.values(), key=lambda item: item[:2])
        return rooms

    def key(self, room: Room) -> tuple[int, ...]:
        """How good a node is; smaller is better, and of equals the first by name.

        1. spread: the fewest replicas of this model (a broken machine then costs the fewest), then room for the most
           further ones; pack: room for the fewest. Room is counted in replicas, for a megabyte more makes no node better
        2. the weights lie there
        3. most room left; where nodes are packed, least
        """
        further, left = self._further(room)
        away = int(self.model.weights not in room.node.weights)
        if self.board.world.pack:
            return (further, away, left)
        return (self.board.count(self.model.id, room.node.id), -further, away, -left)

    def _further(self, room: Room) -> tuple[int, int]:
        """How many such replicas a node has room for by its sums, and the bytes that are left of what they need most."""
        profile, left = self.profile, room.memory
        most = left // profile.memory if profile.memory else _MANY
        if profile.threads:
            most = min(most, room.cores // profile.threads)
        if profile.cards:
            free = left_now(room, profile)
            left = sum(free)
            if profile.card_memory:
                alone = profile.cards == 1
                size = profile.card_memory
                most = min(most, sum(item // size for item in free) if alone else left // size)
        return most, left

    def outlook(self) -> Outlook:
        """What waiting would help where none has room."""
        return outlook(self.profile, look(self.board, self.model, self.profile, self.codes))

    def refusal(self) -> NoPlace:
        """Why none has room, in words."""
        return refused(self.board, self.model, self.profile, self.codes)

    def _entry(self, room: Room) -> _Entry:
        return (self.key(room), room.index, room.version)

    def _regroup(self, fabric: str) -> None:
        """The best nodes of a fabric as they are now, where it has enough with room."""
        found = [
            (self.key(room), room.index, room)
            for room in self._groups[fabric]
            if fits_now(room, self.profile, self.model)
        ]
        found.sort(key=lambda item: item[:2])
        chosen = found[: self.profile.span]
        if len(chosen) == self.profile.span:
            self._best[fabric] = (chosen[-1][0], chosen[0][1], [room for _, _, room in chosen])
        else:
            self._best.pop(fabric, None)

    def _catch_up(self) -> None:
        log = self.board.log
        if self._read == len(log):
            return
        changed = [self.board.rooms[node_id] for node_id in dict.fromkeys(log[self._read :]) if node_id in self._ids]
        self._read = len(log)
        if self.profile.span > 1:
            for fabric in dict.fromkeys(room.node.fabric for room in changed):
                self._regroup(fabric)
            return
        for room in changed:
            if fits_now(room, self.profile, self.model):
                heapq.heappush(self._heap, self._entry(room))


_MANY = 1 << 62
"""Replicas that fit where they need nothing."""
_Entry = tuple[tuple[int, ...], int, int]
"""How good a node is, its index, and the version of its room that says so."""
_Group = tuple[tuple[int, ...], int, list[Room]]
"""How good the worst node is, the index of the best one, and all of them."""


def _codes(board: Board, profile: ProfileView, failed: Failed) -> list[str]:
    """For each node, in order, why it could not run this even if it were empty; nodes of one kind are looked at once."""
    kinds: dict[object, str] = {}
    keys = [key for key, _ in profile.labels]
    found = []
    for room, number in zip(board.by_index, board.kinds, strict=True):
        if profile.nodes and room.node.name not in profile.nodes:
            found.append(PINNED)
            continue
        kind: object = (number, *(room.node.labels.get(key) for key in keys)) if keys else number
        why = kinds.get(kind)
        if why is None:
            why = kinds[kind] = lasting(room.node, profile)
        if failed and not why and (room.node.id, profile.digest) in failed:
            why = FAILED_THERE
        found.append(why)
    return found


def _reason(rooms: list[Room], profile: ProfileView, shares: tuple[Share, ...]) -> str:
    room = rooms[0]
    text = f"profile {profile.name} needs {format_bytes(profile.memory)}, "
    text += f"node {room.node.name} has {format_bytes(room.memory)} of room"
    if shares[0].cards:
        text += "; of its cards it gets " + ", ".join(
            f"{format_bytes(size)} of {uuid}" for uuid, size in shares[0].cards
        )
    if len(rooms) > 1:
        text += f"; together with {', '.join(other.node.name for other in rooms[1:])} on fabric {room.node.fabric}"
    return text
