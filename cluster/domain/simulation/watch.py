"""What must hold while plans follow each other: the truths of a world (`invariants`), and those that need a memory.

It works everything out for itself, from views and operations, so that it says what is wrong with those who decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cluster.domain import invariants
from cluster.domain.amounts import cards_of, of_amount, of_shares
from cluster.domain.board import Board
from cluster.domain.feasible import why_not
from cluster.domain.place import ranks
from cluster.domain.plan import Op, Plan, Renew, Start, Stop, running
from cluster.domain.room import holds_room
from cluster.domain.states import ReplicaState
from cluster.domain.types import Klass, ModelView, ReplicaView, ScopeView, World

HOLD = 60.0
"""Seconds in which nothing that was done is undone, unless something from outside asks for it."""
GROWN_HOLD = 540.0
"""The same for a replica that was added under load: quiet must last ten minutes before it is taken back."""
TURN = 30.0
"""Seconds that a model on demand keeps its room from others of its class."""
STARVING = 900.0
"""Seconds that a model may wait for room that a lower class holds."""
LOOK_EVERY = 300.0
"""Seconds between two looks for models that starve."""
_OUT = frozenset({ReplicaState.LOST, ReplicaState.FAILED})


@dataclass(frozen=True)
class Violation:
    """`at`: Unix time. `rule`: `promised_twice`, `class_inversion`, `guarantee_broken`, `limit_broken`, `flapping`, `unexplained`,
    `refused` (planned and then refused though nothing changed) or `starved`."""

    at: float
    rule: str
    text: str


@dataclass
class Watch:
    began: float
    found: list[Violation] = field(default_factory=list)
    _started: dict[str, tuple[float, bool]] = field(default_factory=dict)  # by replica: when, and under load
    _stopped: dict[str, float] = field(default_factory=dict)  # by model: when one was surplus
    _disturbed: dict[str, float] = field(default_factory=dict)  # by model: last order, request or failure
    _taken: dict[tuple[str, str], float] = field(default_factory=dict)  # whose room, for whom: when
    _waiting: dict[str, float] = field(default_factory=dict)  # by model: since when it waits for room
    _looked: float = 0.0
    _told: set[str] = field(default_factory=set)

    def say(self, now: float, rule: str, text: str) -> None:
        self.found.append(Violation(now, rule, text))

    # --- from outside

    def disturbed_model(self, model_id: str, now: float) -> None:
        self._disturbed[model_id] = now

    def disturbed_node(self, node_id: str, replicas: Iterable[ReplicaView], now: float) -> None:
        """Whatever is there may have to go elsewhere, or comes back; and others may find room."""
        for replica in replicas:
            if node_id in {replica.node_id, *(share.node_id for share in replica.shares)}:
                self._disturbed[replica.model_id] = now

    # --- each operation, before it is done

    def op(self, op: Op, board: Board, now: float) -> None:
        if not isinstance(op, (Start, Stop, Renew)):
            return
        if not op.reason:
            self.say(now, "unexplained", f"{type(op).__name__} of {op.subject} without a reason")
        if isinstance(op, Start):
            self._start(op, now)
        elif isinstance(op, Stop):
            replica = board.replica(op.replica_id)
            if replica is not None and op.for_model:
                self._take(replica, op.for_model, board, now)
            elif replica is not None:
                self._stop(replica, board, now)

    def refused(self, op: Op) -> None:
        """What was refused is logged with why: of two planners of one moment the second finds the room taken."""
        if isinstance(op, Start):
            self._told.add(op.model_id)

    def _start(self, op: Start, now: float) -> None:
        self._started[op.replica_id] = (now, op.grown)
        stopped = self._stopped.get(op.model_id)
        if stopped is not None and now - stopped < HOLD and self._calm(op.model_id, stopped):
            self.say(now, "flapping", f"{op.model_id} starts one {now - stopped:.0f} s after one was surplus")

    def _stop(self, replica: ReplicaView, board: Board, now: float) -> None:
        """One that is surplus: not one that is replaced by another, nor one that was lost or has failed."""
        model = board.model(replica.model_id)
        if model is None or board.state(replica) in _OUT or board.to_move(replica):
            return
        if all(replica.digest != item.digest for item in model.profiles) or model.restarts(replica):
            return
        if model.standing.parked_at is not None:
            return
        self._stopped[model.id] = now
        began, grown = self._started.get(replica.id, (0.0, False))
        hold = GROWN_HOLD if grown else HOLD
        if now - began < hold and self._calm(model.id, began):
            self.say(
                now, "flapping", f"{replica.id} of {model.name} is stopped {now - began:.0f} s after it was placed"
            )

    def _calm(self, model_id: str, since: float) -> bool:
        """Whether nothing from outside has touched a model since some seconds before that moment. A node's silence takes
        minutes until anybody acts on it."""
        return self._disturbed.get(model_id, 0.0) < since - 2 * STARVING

    def _take(self, victim: ReplicaView, model_id: str, board: Board, now: float) -> None:
        """A replica's room is taken for a model."""
        model, owner = board.model(model_id), board.model(victim.model_id)
        if model is None or owner is None:
            return
        scopes = {item.id: item for item in board.world.scopes}
        mine, theirs = _chain(scopes, model.owner), _chain(scopes, owner.owner)
        apart = [scope for scope in theirs if scope not in mine]
        amount = _amount(board, [victim])
        serves = victim.run and board.state(victim) not in _OUT
        for scope in apart:
            guarantee, held = of_amount(scopes[scope].guarantee), _held(board, scopes, scope)
            named = [key for key in amount if key in guarantee]
            cards = [key for key in amount if key.startswith("cards:")]
            if serves and named and all(key in named for key in cards):
                keys = cards or named
                if all(held.get(key, 0) - amount[key] < guarantee[key] for key in keys) and (
                    not cards or all(held.get(key, 0) - amount[key] < guarantee[key] for key in named)
                ):
                    text = f"{victim.id} of {owner.name} within the guarantee of {scopes[scope].name} for {model.name}"
                    self.say(now, "guarantee_broken", text)
        if owner.klass >= model.klass and not self._among_equals(victim, owner, model, board, now):
            own = [scope for scope in mine if scope not in theirs]
            if not any(_is_short(board, scopes, scope) for scope in own):
                text = f"{victim.id} of {owner.name} ({owner.klass.name}) for {model.name} ({model.klass.name})"
                self.say(now, "class_inversion", text)
        back = self._taken.get((model.id, owner.id))
        if (
            back is not None
            and now - back < 2 * GROWN_HOLD
            and self._calm(model.id, back)
            and self._calm(owner.id, back)
        ):
            text = f"{owner.name} took room of {model.name} {now - back:.0f} s ago, and gives it back now"
            self.say(now, "flapping", text)
        self._taken[(owner.id, model.id)] = now

    def _among_equals(self, victim: ReplicaView, owner: ModelView, model: ModelView, board: Board, now: float) -> bool:
        """Whether one that has less than it shall have without load may have what another of its class got under load, or,
        on demand, has had for its turn, or what nobody waits for any more."""
        if owner.klass != model.klass or len(running(board, model.id)) >= model.least:
            return False
        if victim.grown or board.state(victim) is ReplicaState.FAILED:
            return True
        if not owner.on_demand:
            return False
        return victim.state is not ReplicaState.READY or now - victim.state_since >= TURN

    # --- each plan, once it is done

    def step(self, before: World, after: World, plan: Plan, board: Board, now: float, *, stale: bool) -> None:
        for text in invariants.broken(before, after):
            self.say(now, "promised_twice", text)
        self._limits(before, after, board, now)
        told = {wait.model_id for wait in plan.waits} | self._told
        self._told = told if stale else set()  # of two planners of one moment each says what it did
        if stale:
            return
        for wait in plan.waits:
            if not wait.code or not wait.message:
                self.say(
                    now, "unexplained", f"{wait.model_id} waits with code {wait.code!r} and words {wait.message!r}"
                )
        short = {}
        for model in after.models:
            there = len(running(board, model.id))
            if there < model.target:
                short[model.id] = model
                if model.id not in told:
                    self.say(now, "unexplained", f"{model.name} has {there} of {model.target}, and nobody says why")
        self._starving(short, board, now)

    def _limits(self, before: World, after: World, board: Board, now: float) -> None:
        """No scope has been given more than its limit."""
        scopes = {item.id: item for item in after.scopes}
        for scope in after.scopes:
            limit = of_amount(scope.limit)
            if not limit:
                continue
            mine = {item.id for item in after.models if scope.id in _chain(scopes, item.owner)}
            was, held = (
                _amount(board, [item for item in world.replicas if item.model_id in mine and _counts(board, item)])
                for world in (before, after)
            )
            for key, most in limit.items():
                if held.get(key, 0) > max(most, was.get(key, 0)):
                    self.say(now, "limit_broken", f"{scope.name} holds {held[key]} of {key}, and may have {most}")

    def _starving(self, short: Mapping[str, ModelView], board: Board, now: float) -> None:
        """Models that wait while replicas of a lower class hold room in which they would fit. Quotas are left out of it:
        where there are any, others may say no."""
        self._waiting = {key: self._waiting.get(key, now) for key in short}
        if board.world.scopes or now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        for key, model in short.items():
            since = max(self._waiting[key], self._disturbed.get(key, 0.0))
            if now - since < STARVING or board.claim_of(key) is not None or model.standing.parked_at is not None:
                continue
            where = _room_below(board, model)
            if where:
                self.say(
                    now, "starved", f"{model.name} waits since {now - since:.0f} s, and lower classes hold {where}"
                )


def _room_below(board: Board, model: ModelView) -> str:
    """A node where a model would fit, in its best way that fits the hardware, if no lower class were there."""
    klass: dict[str, Klass] = {item.id: item.klass for item in board.world.models}
    failed = {(r.node_id, r.digest) for r in board.of_model(model.id) if r.state is ReplicaState.FAILED}
    best = ranks(model.profiles)[0] if model.profiles else []
    for profile in best:
        if profile.span > 1:
            continue
        for room in board.by_index:
            if (room.node.id, profile.digest) in failed:
                continue
            mark = board.mark()
            lower = [
                item for item in board.on_node(room.node.id)
                if item.run and klass.get(item.model_id, Klass.CRITICAL) < model.klass
            ]  # fmt: skip
            for item in lower:
                board.lift(item.id)
            fits = bool(lower) and not why_not(room, profile, model)
            board.back(mark)
            if fits:
                return room.node.name
    return ""


def _counts(board: Board, replica: ReplicaView) -> bool:
    return holds_room(replica) and board.state(replica) not in _OUT


# --- sums, worked out anew each time


def _chain(scopes: Mapping[str, ScopeView], owner: str) -> list[str]:
    found = []
    while owner in scopes:
        found.append(owner)
        owner = scopes[owner].parent
    return found


def _amount(board: Board, replicas: Iterable[ReplicaView]) -> dict[str, int]:
    total: dict[str, int] = {}
    for replica in replicas:
        cards = {}
        for share in replica.shares:
            node = board.node(share.node_id)
            cards[share.node_id] = cards_of(node) if node is not None else {}
        for key, size in of_shares(replica.shares, cards).items():
            total[key] = total.get(key, 0) + size
    return total


def _held(board: Board, scopes: Mapping[str, ScopeView], scope: str) -> dict[str, int]:
    """What the replicas of a scope's models hold that are meant to go on."""
    mine = {item.id for item in board.world.models if scope in _chain(scopes, item.owner)}
    return _amount(
        board,
        [
            item
            for item in board.replicas
            if item.model_id in mine and item.run and holds_room(item) and board.state(item) not in _OUT
        ],
    )


def _is_short(board: Board, scopes: Mapping[str, ScopeView], scope: str) -> bool:
    """Whether a scope holds less than it is guaranteed of anything."""
    guarantee = of_amount(scopes[scope].guarantee)
    held = _held(board, scopes, scope)
    return any(held.get(key, 0) < size for key, size in guarantee.items())
