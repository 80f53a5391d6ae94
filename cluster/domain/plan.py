"""What a decision is: operations on replicas, and the reasons why a model waits.

`do` is the one definition of what an operation does to the picture, and `recheck` of when it still may be done:
the planner works with both while it plans, `services/apply.py` under its lock, the tests all the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from cluster.domain.board import Board
from cluster.domain.claims import unreachable
from cluster.domain.feasible import why_not
from cluster.domain.parts import TRIED_ALONE
from cluster.domain.quotas import ledger_of
from cluster.domain.refusals import words
from cluster.domain.rest import busy
from cluster.domain.states import ReplicaState
from cluster.domain.types import Claim, ModelView, ProfileView, ReplicaView, Share, Standing, World
from cluster.domain.victims import Ground, asker, ground_of

SURGE = 1
"""Replicas that a model may have beyond what is wanted, while it is being replaced."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """Place a new replica."""

    model_id: str
    profile_id: str
    slot: int
    digest: str
    shares: tuple[Share, ...]
    reason: str
    grown: bool = False  # beyond the model's base, because of load
    replica_id: str = ""  # apply gives it one

    @property
    def subject(self) -> str:
        return self.model_id

    @property
    def node_id(self) -> str:
        return self.shares[0].node_id


@dataclass(frozen=True, kw_only=True)
class Renew:
    """Have a replica start anew where it is, as its profile says now: stop, then start. `again`: nothing is changed, one of its
    parts has ended, and what failed before still counts."""

    replica_id: str
    profile_id: str
    digest: str
    generation: int
    shares: tuple[Share, ...]
    reason: str
    again: bool = False

    @property
    def subject(self) -> str:
        return self.replica_id


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Drain a replica, then stop it. `for_model`: the one that gets its room, if it is taken away for another."""

    replica_id: str
    reason: str
    for_model: str = ""
    busy: bool = False  # it worked at requests when this was decided
    loading: bool = False  # it was not ready yet when this was decided
    used_at: float | None = None  # the last request for its model then
    grace: float | None = None  # seconds in which it may finish them, at most; None: as its profile says

    @property
    def subject(self) -> str:
        return self.replica_id


@dataclass(frozen=True, kw_only=True)
class Remove:
    """Forget a replica of which nothing is left."""

    replica_id: str
    reason: str

    @property
    def subject(self) -> str:
        return self.replica_id


@dataclass(frozen=True, kw_only=True)
class Keep:
    """Keep room for a model until those who are in its way have gone."""

    claim: Claim
    reason: str  # empty: it was kept before, and nobody wants to read of its new end

    @property
    def subject(self) -> str:
        return self.claim.model_id


@dataclass(frozen=True, kw_only=True)
class Release:
    """Keep room for a model no longer. `for_model`: the one that gets it, if it is taken for another."""

    model_id: str
    reason: str
    for_model: str = ""

    @property
    def subject(self) -> str:
        return self.model_id


@dataclass(frozen=True, kw_only=True)
class Remember:
    """Another standing of a model; `before` is what it was decided from."""

    model_id: str
    before: Standing
    standing: Standing
    reason: str = ""  # empty: nothing that anybody wants to read later

    @property
    def subject(self) -> str:
        return self.model_id


Op = Start | Renew | Stop | Remove | Keep | Release | Remember


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Why a model has fewer ready replicas than it should, or why one (`replica_id`) is not where or what it should be:
    a stable code, and words with what to do."""

    model_id: str
    code: str
    message: str
    replica_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`seen`: the generation of each replica that an operation is about, as it was when that was decided."""

    ops: tuple[Op, ...] = ()
    waits: tuple[Wait, ...] = ()
    seen: Mapping[str, int] = field(default_factory=dict)


def seen_of(ops: Iterable[Op], world: World) -> dict[str, int]:
    about = {op.subject for op in ops if isinstance(op, (Renew, Stop, Remove))}
    return {item.id: item.generation for item in world.replicas if item.id in about}


def overtaken(plan: Plan, op: Op, replica: ReplicaView | None) -> str:
    """Why an operation is not to be done to this replica, as it is now: it has begun anew since. Empty if it has not."""
    if replica is None or plan.seen.get(op.subject, replica.generation) == replica.generation:
        return ""
    return f"the replica has begun anew meanwhile, as generation {replica.generation}"


def running(board: Board, model_id: str) -> list[ReplicaView]:
    """Replicas that are meant to run and can come to serve: neither lost nor failed for good."""
    return [item for item in board.of_model(model_id) if item.run and board.state(item) not in _OUT]


_OUT = frozenset({ReplicaState.LOST, ReplicaState.FAILED})


def outdated(model: ModelView, replica: ReplicaView) -> bool:
    """Whether no enabled profile of its model is what it was started as."""
    return all(replica.digest != item.digest for item in model.profiles)


def old(board: Board, model: ModelView, replica: ReplicaView) -> bool:
    """Whether a replica is to be replaced by another: outdated, to move, or to restart as somebody asked."""
    return outdated(model, replica) or bool(board.to_move(replica)) or model.restarts(replica)


def recheck(op: Op, board: Board) -> str:
    """Why this operation must not be done to this picture; empty if it may.

    1. Start: model and profile still as planned, not parked, not one too many (one more only where an old one is to be replaced),
       slot free, still feasible, on the very cards that were chosen, and within the limits of its owner
    2. Renew: the replica is still meant to run, in the generation before, the profile as planned and feasible there. One that
       begins again as it is holds its room already
    3. Stop: the replica is still meant to run, and the model has enough without it (see `_needed`), or its room may still
       be taken for another model (see `_may_be_taken`)
    4. Remove: nothing of it is left, or its node was removed
    5. Keep: the model is still wanted, and the room will be there. Release: some is kept. Remember: the standing is what
       it was decided from, and nothing of a model that shall rest is in use again
    """
    if isinstance(op, Start):  # 1
        return _start(op, board)
    if isinstance(op, Keep):  # 5
        model = board.model(op.claim.model_id)
        if model is None or not model.target:
            return "the model is not wanted any more"
        return unreachable(board, op.claim)
    if isinstance(op, Release):
        return "" if board.claim_of(op.model_id) is not None else "no room is kept for it any more"
    if isinstance(op, Remember):
        model = board.model(op.model_id)
        if model is None or not _as_before(op, model.standing):
            return "the model's standing changed meanwhile"
        rests = model.enabled and model.on_demand and op.before.asked_at is not None and op.standing.asked_at is None
        return "it is in use again" if rests and any(busy(board, item) for item in running(board, model.id)) else ""
    replica = board.replica(op.replica_id)
    if replica is None:
        return "the replica is gone"
    if isinstance(op, Renew):  # 2
        return _renew(op, replica, board)
    if isinstance(op, Stop):  # 3
        if not replica.run:
            return "it is being stopped already"
        return _may_be_taken(op, replica, board) if op.for_model else _needed(replica, board)
    if board.node(replica.node_id) is None:  # 4
        return ""
    return "" if not replica.run and replica.state is ReplicaState.STOPPED else "something of it may still run"


def _as_before(op: Remember, standing: Standing) -> bool:
    """Whether a standing is what was decided from. That a model was used again meanwhile, as a busy one always is,
    matters only where it would come to rest."""
    rests = op.before.asked_at is not None and op.standing.asked_at is None
    return standing == op.before or (not rests and replace(standing, used_at=op.before.used_at) == op.before)


def _start(op: Start, board: Board) -> str:
    model = board.model(op.model_id)
    if model is None or not model.target:
        return "the model is not wanted any more"
    if model.standing.parked_at is not None:
        return "the model is parked"
    profile = model.profile(op.profile_id)
    if profile is None or profile.digest != op.digest:
        return "the profile changed meanwhile"
    there = running(board, model.id)
    if len(there) >= model.target + (SURGE if any(old(board, model, item) for item in there) else 0):
        return "the model has enough replicas"
    if any(item.slot == op.slot for item in board.of_model(model.id)):
        return f"slot {op.slot} is taken"
    mark = board.mark()
    board.claim(model.id, None)  # what is kept for it is for this
    why = _fits(board, model, profile, op.shares) or ledger_of(board).over_limit(model, op.shares)
    board.back(mark)
    return why


def _renew(op: Renew, replica: ReplicaView, board: Board) -> str:
    model = board.model(replica.model_id)
    profile = model.profile(op.profile_id) if model else None
    if not replica.run or replica.generation != op.generation - 1:
        return "the replica changed meanwhile"
    if model is None or profile is None or profile.digest != op.digest:
        return "the profile changed meanwhile"
    if op.again:
        return "" if (op.digest, op.shares) == (replica.digest, replica.shares) else "the replica changed meanwhile"
    mark = board.mark()
    board.lift(replica.id)
    why = _fits(board, model, profile, op.shares)
    board.back(mark)
    return why or ledger_of(board).over_limit(model, op.shares, instead=replica)


def _fits(board: Board, model: ModelView, profile: ProfileView, shares: tuple[Share, ...]) -> str:
    """Why these shares cannot be taken; empty if they can."""
    for share in shares:
        room = board.rooms.get(share.node_id)
        if room is None:
            return "the node was removed"
        code = why_not(room, profile, model)
        if code:
            return f"node {room.node.name}: {words(room, profile, code, model)}"
        left = {card.uuid: free for card, free in zip(room.node.cards, room.cards, strict=True)}
        for uuid, size in share.cards:
            if left.get(uuid, -1) < size:
                return f"node {room.node.name}: card {uuid} has no room for it any more"
    return ""


def part_ended(board: Board, replica: ReplicaView) -> bool:
    """Of a replica over several nodes, whether a part of it has ended by itself, so that nothing of it runs."""
    ended = board.state(replica) is ReplicaState.BACKOFF and replica.code not in TRIED_ALONE
    return ended and len(replica.shares) > 1


def computes_nothing(board: Board, replica: ReplicaView) -> bool:
    """Of a replica over several nodes, whether it is lost with one of them, or nothing of it runs and it is to leave one."""
    if len(replica.shares) < 2:
        return False
    return board.state(replica) is ReplicaState.LOST or (part_ended(board, replica) and board.to_move(replica) != "")


def _needed(replica: ReplicaView, board: Board) -> str:
    """Why a replica must go on; empty if it may stop. Two planners that saw different moments stop no two for one.

    1. of a model that wants none, or has nothing to run it as, each may stop; of a parked one each that is not ready
    2. a ready, a lost or a failed one, if enough others are ready; an outdated one, if these have answered where an update
       is under way. One over several nodes that computes nothing: at once
    3. any other, if enough are on their way without it
    """
    model = board.model(replica.model_id)
    if model is None or not model.target or not model.profiles:  # 1
        return ""
    if model.standing.parked_at is not None and board.state(replica) is not ReplicaState.READY:
        return ""
    if computes_nothing(board, replica):
        return ""
    others = [item for item in running(board, model.id) if item.id != replica.id]
    if board.state(replica) in {ReplicaState.READY, *_OUT}:  # 2
        others = [item for item in others if item.state is ReplicaState.READY]
        if outdated(model, replica):
            others = [item for item in others if outdated(model, item) or model.trusts(item)]
    return "" if len(others) >= model.target else "the model has no replica too many any more"  # 3


def _may_be_taken(op: Stop, replica: ReplicaView, board: Board) -> str:
    """Why a replica's room must not be taken for another model; empty if it may.

    1. the other model wants no more, has enough, or room is kept for it already: a second planner came first
    2. the replica was idle when it was chosen, and works at requests again
    3. class, use or quotas protect it now (see `victims.ground_of`). Times that have passed stay passed; but one that was
       loading for nobody, within its class, is left alone when somebody has come since, or it has become ready
    """
    model = board.model(op.for_model)
    if model is None or not model.target or not model.profiles:  # 1
        return "the model that needs its room is not wanted any more"
    there = running(board, model.id)
    if len(there) >= model.target and not any(old(board, model, item) for item in there):
        return "the model that needs its room has enough replicas"
    if board.claim_of(model.id) is not None:
        return "room is kept already for the model that needs it"
    if replica.in_flight and not op.busy:  # 2
        return "it is in use again"
    asked, ledger = asker(board, model, None), ledger_of(board)
    grounds = {ground_of(board, ledger, asked, replica, profile) for profile in model.profiles} - {None}
    if not grounds:  # 3
        return f"its room may not be taken for {model.name} any more"
    if grounds == {Ground.TURN} and op.loading:
        other = board.model(replica.model_id)
        if replica.state is ReplicaState.READY:
            return "it has become ready, and its turn has only begun"
        if other is not None and other.standing.used_at != op.used_at:
            return "somebody waits for it again"
    return ""


def do(op: Op, board: Board, *, new_id: str = "") -> None:
    """Let the picture be as if this operation were done."""
    if isinstance(op, Start):
        board.claim(op.model_id, None)
        board.put(
            ReplicaView(
                id=op.replica_id or new_id or f"planned:{op.model_id}:{op.slot}",
                model_id=op.model_id,
                profile_id=op.profile_id,
                node_id=op.node_id,
                slot=op.slot,
                digest=op.digest,
                shares=op.shares,
                grown=op.grown,
            )
        )
    elif isinstance(op, Keep):
        board.claim(op.claim.model_id, op.claim)
    elif isinstance(op, Release):
        board.claim(op.model_id, None)
    elif isinstance(op, Remember):
        board.remember(op.model_id, op.standing)
    elif isinstance(op, Remove):
        board.drop(op.replica_id)
    elif isinstance(op, (Renew, Stop)):
        replica = board.replica(op.replica_id)
        assert replica is not None  # recheck saw it
        board.put(replace(replica, run=False) if isinstance(op, Stop) else _renewed(op, replica))


def _renewed(op: Renew, replica: ReplicaView) -> ReplicaView:
    return replace(
        replica,
        profile_id=op.profile_id,
        digest=op.digest,
        generation=op.generation,
        shares=op.shares,
        state=ReplicaState.STARTING if op.again else ReplicaState.PENDING,
        attempt=replica.attempt + op.again,
        code="",
        message="",
    )
