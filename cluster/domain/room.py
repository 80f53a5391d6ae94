"""What one node has left: memory, cores and the memory of its cards, while a plan takes and gives back."""

from __future__ import annotations

from cluster.domain.maintenance import Maintenance
from cluster.domain.modules import Module
from cluster.domain.states import REPLICA_LIVE, REPLICA_LOADING, NodeState, ReplicaState
from cluster.domain.types import CardView, NodeView, ReplicaView, Share
from llmgw_site.lib.units import MIB

MARGIN, MARGIN_SHARE = 512 * MIB, 0.10
"""Memory of a node that is never given to engines: the smaller of the two (share of its total)."""
CARD_MARGIN, CARD_MARGIN_SHARE = 512 * MIB, 0.04
"""Memory of a card that is never given to engines: the larger of the two (share of its total)."""
_FETCHING = frozenset({ReplicaState.PENDING, ReplicaState.FETCHING, ReplicaState.BACKOFF})
_SERVING = frozenset({ReplicaState.READY, ReplicaState.DRAINING})


def margin(node: NodeView) -> int:
    return min(MARGIN, int(node.memory_total * MARGIN_SHARE))


def card_margin(card: CardView) -> int:
    return max(CARD_MARGIN, int(card.memory_total * CARD_MARGIN_SHARE))


def holds_room(replica: ReplicaView) -> bool:
    """Whether a replica's room is its own: while it shall run, for one that has failed or stopped is started anew when
    its agent or its module is; and then until nothing of it is left."""
    return replica.run or replica.state in REPLICA_LIVE


def fetches(replica: ReplicaView) -> bool:
    """Whether a replica's weights may be still to come: its engine has not begun."""
    return replica.state in _FETCHING and holds_room(replica)


class Room:
    """A node's room. `index`: its place among all nodes in the order of names. `lost`: whether what runs there counts
    as lost. `drains`: whether what runs there, or on a card of it, shall move away. `version` rises with each change.

    `cards`: bytes that one more engine may take of each card, in the node's order; -1 of one that must not be used.
    `sound`: that none of them is out is certain.
    """

    __slots__ = (
        "_coming",
        "_klass",
        "_loading",
        "_physical",
        "_promised",
        "_top",
        "cards",
        "cores",
        "drains",
        "index",
        "lost",
        "node",
        "sound",
        "version",
    )

    def __init__(self, node: NodeView, index: int) -> None:
        self.node = node
        self.index = index
        self.lost = node.state is NodeState.OFFLINE or not node.runs(Module.INFERENCE)
        self.drains = node.drained or any(card.maintenance == Maintenance.DRAINED for card in node.cards)
        self.version = 0
        self.cores = node.cores
        self._promised = node.memory_total - margin(node)
        self._physical = node.memory_available - margin(node)
        self._loading = 0
        self.cards = [
            card.memory_total - card_margin(card) - card.foreign if card.usable else -1 for card in node.cards
        ]
        self.sound = -1 not in self.cards
        self._coming: dict[str, list[int]] = {}  # weights that are to be fetched: for how many replicas, and bytes
        self._top: tuple[int, ...] | None = None
        self._klass: str | bool | None = False  # not looked at yet

    @property
    def memory(self) -> int:
        """Bytes of memory that one more engine may take, never below 0.

        The smaller of what is not promised to others (total less margin less reservations) and what the machine has
        free now, less what is promised to engines that are still loading. The second sees other programs.
        """
        return max(0, min(self._promised, self._physical - self._loading))

    @property
    def klass(self) -> str | None:
        """The class of all its cards; None where they are of several, or there is none."""
        if self._klass is False:
            found = {card.klass for card in self.node.cards}
            self._klass = found.pop() if len(found) == 1 else None
        return self._klass if isinstance(self._klass, str) else None

    @property
    def top(self) -> tuple[int, ...]:
        """What is left of each card that may be used, the most first."""
        if self._top is None:
            self._top = tuple(sorted((free for free in self.cards if free > 0), reverse=True))
        return self._top

    def lacks_disk(self, weights: str, size: int) -> bool:
        """Whether the disk has no room for these weights beside those that are to come for others."""
        free = self.node.disk_free
        if not weights or weights in self.node.weights:
            return False
        if weights in self.node.no_room:
            return True
        if free is None:
            return False
        if weights in self._coming or weights in self.node.fetching:
            return False
        return free - self.disk_promised < size

    @property
    def disk_promised(self) -> int:
        """Bytes of the disk for weights that are to be fetched: for replicas, or since the node keeps them for others. Of
        those that lie there in part, what is still to come."""
        fetching = self.node.fetching
        if not self._coming and not fetching:
            return 0
        waiting = sum(size for weights, (_, size) in self._coming.items() if weights not in fetching)
        return waiting + sum(left for weights, left in fetching.items() if weights not in self.node.weights)

    def fetch(self, weights: str, size: int, sign: int) -> None:
        """A replica comes (1) or goes (-1) whose weights are these."""
        if self.node.disk_free is None or weights in self.node.weights:
            return
        held = self._coming.setdefault(weights, [0, size])
        held[0] += sign
        if held[0] <= 0:
            del self._coming[weights]

    def take(self, replica: ReplicaView, share: Share, sign: int, *, lifted: bool) -> None:
        """A replica takes (1) or gives back (-1) what it holds here.

        `lifted`: it is only imagined to be gone, so the machine still counts as used what its engine uses.
        """
        self.version += 1  # also where it takes nothing: nodes are ranked by how many replicas they have, too
        if not holds_room(replica):
            return
        if replica.state in REPLICA_LOADING:
            self._loading += sign * share.memory
        elif lifted and replica.state in _SERVING:
            self._physical -= sign * share.memory
        self._hold(share, sign)

    def keep(self, share: Share, sign: int) -> None:
        """Room that is kept for somebody and that nobody uses yet."""
        self.version += 1
        self._loading += sign * share.memory
        self._hold(share, sign)

    def _hold(self, share: Share, sign: int) -> None:
        self._promised -= sign * share.memory
        self.cores -= sign * share.cores
        if share.cards:
            held = dict(share.cards)
            for place, card in enumerate(self.node.cards):
                if card.uuid in held and card.usable:
                    self.cards[place] -= sign * held[card.uuid]
            self._top = None


def kind_of(node: NodeView) -> object:
    """Equal for nodes that every check of what lasts answers alike, if that looks at no labels."""
    return (
        node.state, node.maintenance, node.cores, node.memory_total, node.fabric != "", node.unreachable,
        node.modules, tuple(sorted(node.engines.items())),
        tuple([(card.klass, card.memory_total) for card in node.cards]),
    )  # fmt: skip
