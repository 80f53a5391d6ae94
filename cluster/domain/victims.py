"""Whose room may be taken for another model, on what ground, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from cluster.domain.board import Board
from cluster.domain.claims import CLAIM_FOR
from cluster.domain.demand import nobody_waits
from cluster.domain.feasible import of_class
from cluster.domain.quotas import Ledger
from cluster.domain.room import Room
from cluster.domain.states import REPLICA_LOADING, ReplicaState
from cluster.domain.types import Amount, ModelView, ProfileView, ReplicaView, Share

GRACE = 30.0
"""Seconds in which a replica that gives way may finish its requests."""
TURN = 30.0
"""Seconds that a model on demand, once ready, keeps its room from others of its class: those who waited for it get their
answers, and two models that are both asked for do not push each other out all the time."""
_READY = ReplicaState.READY
LOADING = REPLICA_LOADING
_OUT = frozenset({ReplicaState.LOST, ReplicaState.FAILED})
_NOBODY: Mapping[str, int] = {}
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


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A replica that gives way. `grace`: seconds in which it may finish its requests; None: as its profile says."""

    replica: ReplicaView
    ground: Ground
    grace: float | None


def asker(board: Board, model: ModelView, now: float | None) -> Asker:
    short = _going(board, model) < model.least
    return Asker(model=model, short=short, guaranteed=_guaranteed(board, model), now=now)


def _going(board: Board, model: ModelView) -> int:
    return sum(item.run and board.state(item) not in _OUT for item in board.of_model(model.id))


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


@dataclass(frozen=True)
class _Facts:
    """What holds for all replicas of a model whose room is looked at."""

    model: ModelView
    ground: Ground | None
    borrows: bool
    guards: tuple[str, ...]


class Rights:
    """Whose room may be taken for one model as one of its profiles, while a board stays as it is but for those who are
    lifted to see what that helps. `barred`: ids of models of which nothing is taken."""

    def __init__(
        self, board: Board, ledger: Ledger, asked: Asker, profile: ProfileView, barred: Iterable[str] = ()
    ) -> None:
        self.board, self.ledger, self.asked, self.profile = board, ledger, asked, profile
        self._facts: dict[str, _Facts | None] = dict.fromkeys(barred)
        self._spare: dict[str, int] = {}
        self._lent: dict[tuple[str, ...], bool] = {}
        self._seen = ledger.version

    def ground(self, victim: ReplicaView, gone: Mapping[str, int] = _NOBODY) -> Ground | None:
        """On what ground a replica's room may be taken; None: it may not. `gone`: by model, how many running replicas are
        lifted already.

        1. one that is told to stop, is lost, or is started by this very plan: never
        2. quotas protect what is within the guarantee of its scope
        3. its model is of a lower class: whatever it does
        4. of the same class: grown under load, as long as its model keeps what it shall have without any; on demand, see
           `_turn_is_over`
        5. its scope has borrowed it, and the asking model, as this profile, is within the guarantee of its own: that it gets
           in any case, whatever the class
        """
        try:
            facts = self._facts[victim.model_id]
        except KeyError:
            facts = self._look(victim.model_id)
        if facts is None or not victim.run:  # 1
            return None
        state = self.board.state(victim)
        if state is ReplicaState.LOST or (self.asked.now is not None and victim.id.startswith(_PLANNED)):
            return None
        if facts.guards and state is not ReplicaState.FAILED and self.ledger.protects(facts.guards, victim):  # 2
            return None
        if facts.ground is Ground.CLASS:  # 3
            return Ground.CLASS
        if facts.ground is not None:  # 4
            if victim.grown and (state is ReplicaState.FAILED or self._spares(facts.model, gone)):
                return Ground.GROWN
            if facts.ground is Ground.TURN and _turn_is_over(self.asked, facts.model, victim, state):
                return Ground.TURN
        return Ground.BORROWED if facts.borrows and self.lends(facts.model, victim.shares) else None  # 5

    def holds(self, victims: Iterable[Victim], shares: Sequence[Share]) -> bool:
        """Whether what is taken back is still within the guarantee of who gets it, as these shares and as the board is."""
        owners = {item.replica.model_id for item in victims if item.ground is Ground.BORROWED}
        facts = [self._facts[model_id] for model_id in owners]
        return all(item is None or self._within(item.model, shares) for item in facts)

    def _look(self, model_id: str) -> _Facts | None:
        other, model = self.board.model(model_id), self.asked.model
        facts = None
        if other is not None and other.id != model.id:
            ground = model_ground(self.asked, other)
            borrows = self.asked.guaranteed and other.owner != model.owner
            if ground is not None or borrows:
                facts = _Facts(other, ground, borrows, self.ledger.guards(other, model))
        self._facts[model_id] = facts
        return facts

    def _spares(self, other: ModelView, gone: Mapping[str, int]) -> bool:
        """Whether a model has more running replicas than it shall have without load."""
        spare = self._spare.get(other.id)
        if spare is None:
            spare = self._spare[other.id] = _going(self.board, other) - other.least
        return spare > gone.get(other.id, 0)

    def lends(self, other: ModelView, held: Sequence[Share]) -> bool:
        """Whether what the asking model would take where another holds something may be within a guarantee that the other
        has no part in, whichever cards it gets there."""
        if self._seen != self.ledger.version:
            self._seen, self._lent = self.ledger.version, {}
        rooms = [self.board.rooms[share.node_id] for share in held[: self.profile.span]]
        key = (other.owner, *((room.klass or room.node.id) if self.profile.cards else "" for room in rooms))
        known = self._lent.get(key)
        if known is None:
            known = self._lent[key] = any(self._within(other, shares) for shares in self._ways(rooms))
        return known

    def _ways(self, rooms: Sequence[Room]) -> Iterator[tuple[Share, ...]]:
        """What the asking model would take of these nodes, for each class of cards."""
        classes = {card.klass for room in rooms for card in of_class(self.profile, room.node.cards)}
        for klass in sorted(classes) if self.profile.cards else ("",):
            profile = replace(self.profile, card_classes=(klass,)) if self.profile.cards else self.profile
            yield tuple(like(self.board, profile, room.node.id) for room in rooms)

    def _within(self, other: ModelView, shares: Sequence[Share]) -> bool:
        return self.ledger.within_guarantee(self.asked.model, shares, apart_from=other.owner)


def _turn_is_over(asked: Asker, other: ModelView, victim: ReplicaView, state: ReplicaState) -> bool:
    """Of one on demand: after its turn; when it has failed; while it loads, when nobody has waited for it for a while.

    That once only, until a load of it has come to an end: where people are less patient than loads are long, models would
    else push out each other's loads for ever, and none of them would be ready.
    """
    if state is ReplicaState.FAILED:
        return True
    if asked.now is None:
        return state is _READY or state in LOADING
    if state is _READY:
        return asked.now - victim.state_since >= TURN
    return state in LOADING and not other.standing.gave_up and nobody_waits(other, asked.now)


def ground_of(board: Board, ledger: Ledger, asked: Asker, victim: ReplicaView, profile: ProfileView) -> Ground | None:
    """`Rights.ground` for once."""
    return Rights(board, ledger, asked, profile).ground(victim)


def stuck(board: Board, leaving: ReplicaView, now: float | None) -> bool:
    """Whether one that is told to stop may never leave its room: its node is lost, or it should have ended long ago.
    Then nobody waits for that, and others are asked. One over several nodes that has lost one of them leaves the others.

    An engine that was told to end is draining, however far it had come; what has none leaves with its node's next word.
    """
    if board.state(leaving) is ReplicaState.LOST:
        return len(leaving.shares) < 2
    since = leaving.state_since  # 0: not known
    return now is not None and leaving.state is ReplicaState.DRAINING and 0 < since <= now - CLAIM_FOR


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
    if len(replica.shares) == 1 and len(replica.shares[0].cards) == 1:  # as most do, and it is asked of thousands
        return replica.shares[0].memory + replica.shares[0].cards[0][1]
    return sum(share.memory + sum(size for _, size in share.cards) for share in replica.shares)
