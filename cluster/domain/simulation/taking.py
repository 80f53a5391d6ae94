"""Whether a replica's room may be taken for another model: guarantees and classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cluster.domain.amounts import CARDS, of_amount
from cluster.domain.board import Board
from cluster.domain.plan import running
from cluster.domain.simulation.placing import may_run
from cluster.domain.simulation.sums import OUT, amount_of, chain, fits, free_of, held
from cluster.domain.states import ReplicaState
from cluster.domain.types import Claim, ModelView, NodeView, ProfileView, ReplicaView, ScopeView

TURN = 30.0
"""Seconds that a model on demand keeps its room from others of its class."""


def wrong(
    victim: ReplicaView, owner: ModelView, model: ModelView, board: Board, now: float
) -> Iterator[tuple[str, str]]:
    """The rules that it breaks to take a replica of `owner` for `model`, in words."""
    scopes = {item.id: item for item in board.world.scopes}
    mine, theirs = chain(scopes, model.owner), chain(scopes, owner.owner)
    for scope in theirs:
        if scope not in mine and guarded(victim, scopes[scope], board):
            yield (
                "guarantee_broken",
                f"{victim.id} of {owner.name}, which {scopes[scope].name} is guaranteed, for {model.name}",
            )
    if owner.klass < model.klass or among_equals(victim, owner, model, board, now):
        return
    if not any(_is_short(board, scopes, scope) for scope in mine if scope not in theirs):
        yield (
            "class_inversion",
            f"{victim.id} of {owner.name} ({owner.klass.name}) for {model.name} ({model.klass.name})",
        )


def wrong_set(victims: Sequence[ReplicaView], claim: Claim, board: Board) -> Iterator[tuple[str, str]]:
    """Whether each of them was needed for the room that is kept, and, of one alone, whether a cheaper one would have done.

    They are told to stop already, and the room is not kept yet.
    """
    model = board.model(claim.model_id)
    profiles = [item for item in model.profiles if _is_of(claim, item)] if model is not None else []
    rooms = [room for share in claim.shares if (room := board.rooms.get(share.node_id)) is not None]
    if model is None or len(profiles) != 1 or not victims:
        return
    profile, stopped = profiles[0], {item.id for item in victims}

    def enough(node: NodeView, *more: ReplicaView, but: str = "") -> bool:
        gone = [item for item in board.on_node(node.id) if not item.run and item.id != but]
        return fits(profile, node, free_of(board, node, without=[*gone, *more]))

    for victim in victims:
        if all(enough(room.node, but=victim.id) for room in rooms):
            yield "in_vain", f"{victim.id} is stopped for {model.name}, which would have had room without it"
    first, owner = victims[0], board.model(victims[0].model_id)
    if len(victims) > 1 or profile.span > 1 or owner is None:
        return
    for other in board.replicas:
        its, node = board.model(other.model_id), board.node(other.node_id)
        if its is None or node is None or not other.run or len(other.shares) > 1 or its.klass >= model.klass:
            continue
        cheaper = (its.klass, other.in_flight) < (owner.klass, first.in_flight)
        if (
            not cheaper
            or other.id in stopped
            or not may_run(node, profile, model)
            or _protected(other, its, model, board)
        ):
            continue
        gone = [item for item in board.on_node(node.id) if not item.run and item.id not in stopped]
        if _disk(node, model) and fits(profile, node, free_of(board, node, without=[*gone, other])):
            yield "dearer", f"{first.id} is stopped for {model.name}, and {other.id} on {node.name} would have done"
            return


def _is_of(claim: Claim, profile: ProfileView) -> bool:
    wanted = (profile.memory, profile.threads, profile.cards)
    return len(claim.shares) == profile.span and all(
        (share.memory, share.cores, len(share.cards)) == wanted for share in claim.shares
    )


def _protected(other: ReplicaView, its: ModelView, model: ModelView, board: Board) -> bool:
    """Whether quotas may have a say: a guarantee of the other's, or a limit of the model's."""
    scopes = {item.id: item for item in board.world.scopes}
    mine, theirs = chain(scopes, model.owner), chain(scopes, its.owner)
    guards = any(of_amount(scopes[key].guarantee) for key in theirs if key not in mine)
    return guards or any(of_amount(scopes[key].limit) for key in mine)


def _disk(node: NodeView, model: ModelView) -> bool:
    return node.disk_free is None or not model.weights or model.weights in node.weights


def guarded(victim: ReplicaView, scope: ScopeView, board: Board) -> bool:
    """Whether a scope is guaranteed what a replica holds, and would be left with less than that of each part of it."""
    guarantee, amount = of_amount(scope.guarantee), amount_of(board, victim.shares)
    if not victim.run or board.state(victim) in OUT:
        return False
    if any(key.startswith(CARDS) and key not in guarantee for key in amount):
        return False
    named = [key for key in amount if key in guarantee]
    there = held(board, scope.id) if named else {}
    return bool(named) and all(there.get(key, 0) - amount[key] < guarantee[key] for key in named)


def among_equals(victim: ReplicaView, owner: ModelView, model: ModelView, board: Board, now: float) -> bool:
    """Whether one that has less than it shall have without load may have what another of its class got under load beyond
    its own least; or, on demand, has had for its turn, or what nobody waits for any more."""
    if owner.klass != model.klass or len(running(board, model.id)) >= model.least:
        return False
    failed = board.state(victim) is ReplicaState.FAILED
    if victim.grown and (failed or len(running(board, owner.id)) > owner.least):
        return True
    if not owner.on_demand:
        return False
    if victim.state is ReplicaState.READY:
        return now - victim.state_since >= TURN
    used = owner.standing.used_at
    return failed or (not owner.standing.gave_up and used is not None and now - used >= TURN / 2)


def _is_short(board: Board, scopes: Mapping[str, ScopeView], scope: str) -> bool:
    """Whether a scope holds less than it is guaranteed of anything."""
    guarantee, there = of_amount(scopes[scope].guarantee), held(board, scope)
    return any(there.get(key, 0) < size for key, size in guarantee.items())
