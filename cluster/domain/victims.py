"""Whose room may be taken for another model, on what ground, and in which order."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum

from cluster.domain.board import Board
from cluster.domain.demand import nobody_waits
from cluster.domain.feasible import of_class
from cluster.domain.quotas import Ledger
from cluster.domain.states import ReplicaState
from cluster.domain.types import Amount, ModelView, ProfileView, ReplicaView, Share

GRACE = 30.0
"""Seconds in which a replica that gives way may finish its requests."""
TURN = 30.0
"""Seconds that a model on demand, once ready, keeps its room from others of its class: those who waited for it get their
answers, and two models that are both asked for do not push each other out all the time."""
_READY = ReplicaState.READY
_LOADING = frozenset({ReplicaState.PENDING, ReplicaState.STARTING, ReplicaState.BACKOFF})
_OUT = frozenset({ReplicaState.LOST, ReplicaState.FAILED})
_PLANNED = "planned:"  # ids of replicas that this very plan starts


class Ground(StrEnum):
    """Why a replica's room may be taken for another model."""

    CLASS = "class"  # its model is of a lower class
    GROWN = "grown"  # it was added under load, and the other model has not what it shall have without any
    TURN = "turn"  # its model runs on demand and had its turn, or nobody waits for it any more
    BORROWED = "borrowed"  # its scope holds it beyond its guarantee, and the other is within its own


@dataclass(frozen=True, kw_only=True)
class Asker:
    """A model that needs room, and what does not change while room is sought for it.

    `short`: it has fewer replicas than it shall have without any load.
    """

    model: ModelView
    short: bool
    guaranteed: bool  # its scope, or one above, is guaranteed something
    now: float | None  # None: as if all times that matter had passed


def asker(board: Board, model: ModelView, now: float | None) -> Asker:
    going = sum(item.run and board.state(item) not in _OUT for item in board.of_model(model.id))
    return Asker(model=model, short=going < model.least, guaranteed=_guaranteed(board, model), now=now)


def _guaranteed(board: Board, model: ModelView) -> bool:
    scopes = {item.id: item for item in board.world.scopes} if model.owner else {}
    scope = scopes.get(model.owner)
    while scope is not None:
        if scope.guarantee != Amount():
            return True
        scope = scopes.get(scope.parent)
    return False


def model_ground(asked: Asker, other: ModelView) -> Ground | None:
    """On what ground replicas of another model may be taken, as far as their models tell; None: by their class on none.

    1. the other is of a lower class
    2. of the same class, for one that is short: what the other has beyond its base
    """
    if other.id == asked.model.id:
        return None
    if other.klass < asked.model.klass:  # 1
        return Ground.CLASS
    if other.klass == asked.model.klass and asked.short:  # 2
        if other.on_demand:
            return Ground.TURN
        return Ground.GROWN if other.standing.grown else None
    return None


def by_class(board: Board, asked: Asker, other: ModelView, victim: ReplicaView, ground: Ground | None) -> Ground | None:
    """`model_ground`, brought down to one replica.

    1. one that is told to stop, is lost, or is started by this very plan: never
    2. of a lower class: whatever it does
    3. grown under load
    4. on demand: after its turn; while it loads, when nobody has waited for it for a while; when it has failed
    """
    if not victim.run or ground is None or _just_planned(asked, victim):  # 1
        return None
    if ground is Ground.CLASS:  # 2
        return ground
    if victim.grown:  # 3
        return Ground.GROWN
    return ground if ground is Ground.TURN and _turn_is_over(board, asked, other, victim) else None  # 4


def _just_planned(asked: Asker, victim: ReplicaView) -> bool:
    return asked.now is not None and victim.id.startswith(_PLANNED)


def _turn_is_over(board: Board, asked: Asker, other: ModelView, victim: ReplicaView) -> bool:
    state = board.state(victim)
    if state is ReplicaState.FAILED:
        return True
    if asked.now is None:
        return state is _READY or state in _LOADING
    if state is _READY:
        return asked.now - victim.state_since >= TURN
    return state in _LOADING and nobody_waits(other, asked.now)


def ground_of(
    board: Board, ledger: Ledger, asked: Asker, victim: ReplicaView, profile: ProfileView | None
) -> Ground | None:
    """On what ground a replica's room may be taken as the board is now; None: it may not.

    1. quotas protect what is within the guarantee of its scope
    2. by class, see `by_class`
    3. its scope has borrowed it, and the asking model, as this profile, is within the guarantee of its own: that it gets
       in any case, whatever the class
    """
    other = board.model(victim.model_id)
    if other is None or other.id == asked.model.id or not ledger.may_take(victim, asked.model):  # 1
        return None
    found = by_class(board, asked, other, victim, model_ground(asked, other))  # 2
    if found is not None:
        return found
    if profile is not None and may_borrow(asked, other) and victim.run and not _just_planned(asked, victim):  # 3
        shares = tuple(like(board, profile, share.node_id) for share in victim.shares)
        return Ground.BORROWED if ledger.may_reclaim(victim, asked.model, shares[: profile.span]) else None
    return None


def may_borrow(asked: Asker, other: ModelView) -> bool:
    """Whether another model could have borrowed what the asking one is guaranteed."""
    return asked.guaranteed and other.owner != asked.model.owner and other.id != asked.model.id


def like(board: Board, profile: ProfileView, node_id: str) -> Share:
    """What a profile would take of a node, whichever of its cards it gets there."""
    node = board.node(node_id)
    cards = of_class(profile, node.cards)[: profile.cards] if node is not None else []
    each = -(-profile.card_memory // max(1, profile.cards))
    return Share(
        node_id=node_id, memory=profile.memory, cores=profile.threads, cards=tuple((card.uuid, each) for card in cards)
    )


def size_of(replica: ReplicaView) -> int:
    """Bytes of memory and of cards that a replica holds."""
    return sum(share.memory + sum(size for _, size in share.cards) for share in replica.shares)


Dearness = tuple[int, int, int]
"""Class, requests that it works at, bytes: the smaller, the sooner a replica gives way."""


class Herd:
    """Replicas of a board as `make_room` goes through them: those that are alike together. Made once for a plan, model by
    model when one is needed. A plan changes replicas as it goes, so whoever is named here is looked up on the board again.
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self._levels: dict[str, dict[Dearness, list[ReplicaView]]] = {}

    def levels(self, model: ModelView) -> dict[Dearness, list[ReplicaView]]:
        """A model's replicas that are meant to run, by how dear they are."""
        found = self._levels.get(model.id)
        if found is None:
            alike: defaultdict[tuple[str | None, int, int], list[ReplicaView]] = defaultdict(list)
            for item in self.board.of_model(model.id):
                if item.run and item.shares:
                    # one profile takes as much of each card, and when that is estimated anew, so is its memory: of those
                    # alike only one is summed up
                    alike[item.profile_id, item.shares[0].memory, item.in_flight].append(item)
            found = self._levels[model.id] = {}
            for group in alike.values():
                found.setdefault((int(model.klass), group[0].in_flight, size_of(group[0])), []).extend(group)
        return found
