"""What must hold while plans follow each other: the truths of a world (`invariants`), and those that need a memory.

It works everything out for itself, from views and operations, so that it says what is wrong with those who decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cluster.domain import invariants
from cluster.domain.amounts import of_amount
from cluster.domain.board import Board
from cluster.domain.plan import Keep, Op, Plan, Release, Remember, Renew, Start, Stop, running
from cluster.domain.simulation import placing, taking
from cluster.domain.simulation.sums import OUT, chain, held, taken_by_others
from cluster.domain.simulation.waiting import Looker
from cluster.domain.types import ModelView, ReplicaView, World

HOLD = 60.0
"""Seconds in which nothing that was done is undone, unless something from outside asks for it."""
GROWN_HOLD = 540.0
"""The same for what was added under load: quiet must last ten minutes before it is taken back."""
IDLE = 30.0
"""Seconds that a model may wait though it fits: two looks, for what a plan frees at its end is used by the next."""
STARVING = 90.0
"""Seconds that a model may wait for room that a lower class holds, while none is kept for it."""


@dataclass(frozen=True)
class Violation:
    """`at`: Unix time. `rule`: `promised_twice`, `misplaced`, `class_inversion`, `guarantee_broken`, `limit_broken`, `flapping`,
    `in_vain` (replicas were stopped for a model that did not need or did not get their room), `dearer` (one was stopped, and a
    cheaper one would have done), `unexplained`, `refused` (planned and then
    refused though nothing changed) or `starved`."""

    at: float
    rule: str
    text: str


@dataclass
class Watch:
    began: float
    found: list[Violation] = field(default_factory=list)
    _started: dict[str, tuple[float, bool]] = field(default_factory=dict)  # by replica: when, and under load
    _renewed: dict[str, float] = field(default_factory=dict)  # by replica: when
    _stopped: dict[str, float] = field(default_factory=dict)  # by model: when one was surplus
    _grew: dict[str, float] = field(default_factory=dict)  # by model: when its load added one
    _disturbed: dict[str, float] = field(default_factory=dict)  # by model: last order, request or failure
    _upset: dict[str, float] = field(default_factory=dict)  # by node: when something happened to it
    _left: dict[str, float] = field(default_factory=dict)  # by node: when something there was told to stop
    _taken: dict[tuple[str, str], tuple[float, _Sums]] = field(
        default_factory=dict
    )  # whose room, for whom: when, and `_sums`
    _for: dict[str, tuple[str, float]] = field(default_factory=dict)  # by replica: for whom it was stopped, and when
    _kept: dict[str, tuple[float, Keep]] = field(default_factory=dict)  # by model: since when room is kept for it
    _short: dict[str, float] = field(default_factory=dict)  # by model: since when it waits
    _idle: dict[str, float] = field(default_factory=dict)  # by model: since when it waits though it fits
    _below: dict[str, float] = field(default_factory=dict)  # by model: since when it waits and nobody gives way
    _lower: dict[str, float] = field(default_factory=dict)  # of these: since when lower classes hold room for it
    _told: set[str] = field(default_factory=set)

    def say(self, now: float, rule: str, text: str) -> None:
        self.found.append(Violation(now, rule, text))

    # --- from outside

    def disturbed_model(self, model_id: str, now: float) -> None:
        self._disturbed[model_id] = now

    def disturbed_node(self, node_id: str, replicas: Iterable[ReplicaView], now: float) -> None:
        """Whatever is there may have to go elsewhere, or comes back."""
        self._upset[node_id] = now
        for replica in replicas:
            if node_id in {replica.node_id, *(share.node_id for share in replica.shares)}:
                self._disturbed[replica.model_id] = now

    # --- each operation, before it is done

    def op(self, op: Op, board: Board, now: float, *, stale: bool = False) -> None:
        """`stale`: it was decided from a picture of before, as nobody may do for long."""
        if isinstance(op, Keep):
            self._keep(op, board, now)
        elif isinstance(op, Release):
            self._release(op, board, now)
        elif isinstance(op, Remember):
            self._remember(op, board, now)
        if not isinstance(op, (Start, Stop, Renew)):
            return
        if not op.reason:
            self.say(now, "unexplained", f"{type(op).__name__} of {op.subject} without a reason")
        if isinstance(op, (Start, Renew)):
            for rule, text in placing.wrong(op, board):
                self.say(now, rule, text)
        if isinstance(op, Start):
            if not stale:
                self._before_others(op, board, now)
            self._start(op, now)
        elif isinstance(op, Renew):
            self._renew(op, board, now)
        else:
            replica = board.replica(op.replica_id)
            if replica is not None and op.for_model:
                self._take(replica, op.for_model, board, now)
                self._for[replica.id] = (op.for_model, now)
            elif replica is not None:
                self._stop(replica, board, now)
            self._left.update({share.node_id: now for share in replica.shares} if replica is not None else {})

    def refused(self, op: Op) -> None:
        """What was refused is logged with why: of two planners of one moment the second finds the room taken."""
        if isinstance(op, Start):
            self._told.add(op.model_id)

    def _before_others(self, op: Start, board: Board, now: float) -> None:
        """Nobody is placed while one of a higher class waits that fits there as well."""
        mine = board.model(op.model_id)
        for model in board.world.models if mine is not None else ():
            model = board.model(model.id) or model
            if mine is None or model.klass <= mine.klass or model.id in self._told or not _waits(model, board):
                continue
            node = Looker(board).free_place(model)
            if node:
                self.say(now, "class_inversion", f"{mine.name} is placed before {model.name}, which fits on {node}")

    def _start(self, op: Start, now: float) -> None:
        self._kept.pop(op.model_id, None)
        self._started[op.replica_id] = (now, op.grown)
        stopped = self._stopped.get(op.model_id)
        if stopped is not None and now - stopped < HOLD and self._calm(op.model_id, stopped):
            self.say(now, "flapping", f"{op.model_id} starts one {now - stopped:.0f} s after one was surplus")

    def _renew(self, op: Renew, board: Board, now: float) -> None:
        replica, before = board.replica(op.replica_id), self._renewed.get(op.replica_id)
        if replica is not None and before is not None and now - before < HOLD and self._calm(replica.model_id, before):
            self.say(now, "flapping", f"{op.replica_id} starts anew {now - before:.0f} s after it did")
        self._renewed[op.replica_id] = now

    def _stop(self, replica: ReplicaView, board: Board, now: float) -> None:
        """One that is surplus: not one that is replaced by another, nor one that was lost or has failed."""
        model = board.model(replica.model_id)
        if model is None or board.state(replica) in OUT or board.to_move(replica):
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

    def _remember(self, op: Remember, board: Board, now: float) -> None:
        """Load adds and takes back one at a time, and does not take back what it has just added. What is in use is not put
        to rest; what nobody has asked for may be, whatever its load was before."""
        model = board.model(op.model_id)
        if model is not None and op.before.asked_at is not None and op.standing.asked_at is None and model.on_demand:
            used = now - max(op.before.asked_at, op.before.used_at or 0.0)
            if running(board, model.id) and used < model.rest_after and model.target:
                self.say(now, "flapping", f"{model.name} is put to rest {used:.0f} s after it was used")
            self._disturbed[model.id] = now
            return
        step, last = op.standing.grown - op.before.grown, self._grew.get(op.model_id)
        if step > 1:
            self.say(now, "flapping", f"{op.model_id} grows by {step} at once")
        if step < 0 and last is not None and now - last < GROWN_HOLD and self._calm(op.model_id, last):
            self.say(now, "flapping", f"{op.model_id} shrinks {now - last:.0f} s after it grew")
        if step > 0:
            self._grew[op.model_id] = now

    def _calm(self, model_id: str, since: float) -> bool:
        """Whether nothing from outside has touched a model since that moment."""
        return self._disturbed.get(model_id, 0.0) < since

    def _take(self, victim: ReplicaView, model_id: str, board: Board, now: float) -> None:
        """A replica's room is taken for a model."""
        model, owner = board.model(model_id), board.model(victim.model_id)
        if model is None or owner is None:
            return
        for rule, text in taking.wrong(victim, owner, model, board, now):
            self.say(now, rule, text)
        back, then = self._taken.get((model.id, owner.id), (None, {}))
        if (
            back is not None
            and now - back < 2 * GROWN_HOLD
            and self._calm(model.id, back)
            and self._calm(owner.id, back)
            and not _more(_sums(owner, board, but=victim), then)
            and not self._robbed(model.id, owner.id, back)
        ):
            text = f"{owner.name} took room of {model.name} {now - back:.0f} s ago, and gives it back now"
            self.say(now, "flapping", text)
        self._taken[(owner.id, model.id)] = (now, _sums(model, board))
        began, waited = self._started.get(victim.id, (0.0, False))[0], self._below.get(model.id)
        others = max((self._left.get(share.node_id, 0.0) for share in victim.shares), default=0.0)
        calm = self._calm(model.id, began) and self._calm(
            owner.id, began
        )  # a node that returned changes what a scope holds
        if others >= began or not calm or any(item.span > 1 for item in model.profiles):
            waited = None  # what has changed since opened the place
        if owner.on_demand and owner.klass == model.klass:
            waited = None  # among equals on demand a turn is the hold time
        if now - began < HOLD and waited is not None and waited < began:
            text = f"{victim.id} of {owner.name} is stopped {now - began:.0f} s after it was placed, for {model.name}"
            self.say(now, "flapping", f"{text}, which waited already")

    def _robbed(self, model_id: str, but: str, since: float) -> bool:
        """Whether a third has taken room of a model since that moment, so that it is short of what it had left then."""
        pairs = self._taken.items()
        return any(loser == model_id and taker != but and at >= since for (loser, taker), (at, _) in pairs)

    def _keep(self, op: Keep, board: Board, now: float) -> None:
        """Room that is kept anew: whoever has just been stopped for it is needed, and nobody cheaper would have done."""
        if op.claim.model_id in self._kept:
            return
        self._kept[op.claim.model_id] = (now, op)
        gone = [item for item in board.leaving if self._for.get(item.id) == (op.claim.model_id, now)]
        for rule, text in taking.wrong_set(gone, op.claim, board):
            self.say(now, rule, text)

    def _release(self, op: Release, board: Board, now: float) -> None:
        """Room is kept no longer for a model that is still short: what was stopped for it was stopped for nothing."""
        since, keep = self._kept.pop(op.model_id, (0.0, None))
        model = board.model(op.model_id)
        if op.for_model:
            self._for = {
                key: value for key, value in self._for.items() if value[0] != op.model_id
            }  # another needs it now
            return
        if keep is None or model is None or not _is_short(model, board) or not self._calm(model.id, since):
            return
        if max(self._upset.values(), default=0.0) >= since or taken_by_others(board, keep.claim):
            return  # a node that returns may open a better way to run it, and what other programs hold nobody knows before
        self.say(now, "in_vain", f"room was kept for {model.name} for {now - since:.0f} s: {op.reason}")

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
        for claim in board.claims:
            if now > claim.until + HOLD:
                self.say(now, "in_vain", f"room is kept for {claim.model_id} longer than it was to be")
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
        for scope in after.scopes:
            limit = of_amount(scope.limit)
            if not limit:
                continue
            was, there = (held(board, scope.id, going=False, replicas=world.replicas) for world in (before, after))
            for key, most in limit.items():
                if there.get(key, 0) > max(most, was.get(key, 0)):
                    self.say(now, "limit_broken", f"{scope.name} holds {there[key]} of {key}, and may have {most}")

    def _starving(self, short: Mapping[str, ModelView], board: Board, now: float) -> None:
        """Models that wait though they fit, or though lower classes hold room in which they would."""
        self._short = {key: self._short.get(key, now) for key in short}
        waiting = {key: model for key, model in short.items() if _waits(model, board)}
        looker = Looker(board)
        free = {key: node for key, model in waiting.items() if (node := looker.free_place(model))}
        self._idle = {key: self._idle.get(key, now) for key in free}
        self._below = {key: self._below.get(key, now) for key in waiting}
        lower: dict[str, float] = {}
        for key, model in waiting.items():
            if key in free and now - self._idle[key] >= IDLE:
                self.say(
                    now, "starved", f"{model.name} waits for {now - self._idle[key]:.0f} s, and fits on {free[key]}"
                )
            since = max(self._below[key], self._disturbed.get(key, 0.0))
            if now - since < STARVING or key in free:
                continue
            where = looker.room_below(model)
            if where:
                lower[key] = self._lower.get(key, now)
            if where and now - lower[key] >= IDLE:
                self.say(now, "starved", f"{model.name} waits for {now - since:.0f} s, and lower classes hold {where}")
        self._lower = lower


_Sums = Mapping[str, Mapping[str, int]]
"""What goes on serving, by scope."""


def _sums(model: ModelView, board: Board, but: ReplicaView | None = None) -> _Sums:
    """Of each scope of a model that is guaranteed something, apart from one replica."""
    scopes = {item.id: item for item in board.world.scopes}
    guaranteed = [key for key in chain(scopes, model.owner) if of_amount(scopes[key].guarantee)]
    serving = [item for item in board.replicas if but is None or item.id != but.id] if guaranteed else []
    return {key: held(board, key, replicas=serving) for key in guaranteed}


def _more(now: _Sums, before: _Sums) -> bool:
    """Whether a scope holds more of anything: what was within its guarantee then may be beyond it."""
    return any(size > before.get(scope, {}).get(key, 0) for scope, there in now.items() for key, size in there.items())


def _waits(model: ModelView, board: Board) -> bool:
    """Whether a model is to get a replica, and none is kept room for."""
    return _is_short(model, board) and board.claim_of(model.id) is None


def _is_short(model: ModelView, board: Board) -> bool:
    return len(running(board, model.id)) < model.target and model.standing.parked_at is None
