"""A node's room if some of its replicas were gone, by sums alone: quick, and never less than the board would find."""

from __future__ import annotations

from cluster.domain.feasible import holds
from cluster.domain.room import Room
from cluster.domain.types import ModelView, ProfileView, ReplicaView


class Tally:
    """What one way to run a model would have of a node."""

    __slots__ = ("_cores", "_each", "_enough", "_left", "_memory", "_never", "_node_id", "_profile")

    def __init__(self, room: Room, profile: ProfileView, model: ModelView) -> None:
        node = room.node
        self._node_id = node.id
        self._profile = profile
        self._memory, self._cores = room.memory, room.cores
        self._never = model.weights in node.lacks or (
            room.lacks_disk(model.weights, model.weights_size) and (node.disk_free or 0) < model.weights_size
        )
        self._left: dict[str, int] = {}
        self._each = self._enough = 0
        if profile.cards:
            self._each = max(1, -(-profile.card_memory // profile.cards))
            classes = profile.card_classes
            for card, free in zip(node.cards, room.cards, strict=True):
                if (not classes or card.klass in classes) and card.usable:
                    self._left[card.uuid] = free
                    self._enough += free >= self._each

    def add(self, replica: ReplicaView) -> None:
        """Count one more replica as gone, with what it holds here."""
        for share in replica.shares:
            if share.node_id != self._node_id:
                continue
            self._memory += share.memory
            self._cores += share.cores
            for uuid, size in share.cards:
                before = self._left.get(uuid)
                if before is not None:
                    self._left[uuid] = before + size
                    self._enough += before < self._each <= before + size

    def fits(self) -> bool:
        """Whether the profile may fit: no if it certainly does not."""
        profile = self._profile
        if self._never or profile.memory > self._memory or profile.threads > self._cores:
            return False
        if not profile.cards:
            return True
        if profile.even or profile.cards == 1:
            return self._enough >= profile.cards
        return holds(profile, sorted(self._left.values(), reverse=True))
