"""Headroom: how many more replicas of a model fit now, what stands in the way of one more, and who would really make room."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from cluster.domain.board import Board
from cluster.domain.place import NoPlace, Placement, Placer, failed_there
from cluster.domain.plan import Start, do, running
from cluster.domain.preempt import Taker
from cluster.domain.quotas import Ledger
from cluster.domain.types import ModelView, World
from cluster.domain.victims import Victim
from cluster.domain.within import place_within

MOST = 100
"""Replicas that are counted; that there is room for more of them is only said."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """So many more replicas fit on a node, as this profile. Those that span nodes count at their first."""

    node: str
    profile: str
    count: int


@dataclass(frozen=True, kw_only=True)
class Headroom:
    """Room for more replicas of a model.

    `fits`: how many more; `counted` False: at least so many. `allowed`: how many more it may have by its own maximum.
    `code`, `message`: what stands in the way of one more than fit. `victims`: replicas that would be stopped for that one,
    if it were wanted: each is needed, and together they are enough. `reason`: who they are and why they give way.
    """

    fits: int
    counted: bool = True
    allowed: int = 0
    places: tuple[Places, ...] = ()
    code: str = ""
    message: str = ""
    victims: tuple[Victim, ...] = ()
    reason: str = ""


def headroom(world: World, model: ModelView, now: float, *, most: int = MOST) -> Headroom:
    """Room for more replicas of a model in this world.

    1. a provider answers for it: none is placed
    2. one after the other is placed as a plan would place it, up to `most`; room that is kept for it is for these
    3. a limit of its owner ends it, with its sums: nobody has to give way for it then
    4. no node has room: if others hold it, whoever would be stopped for one more is named
    """
    if model.external:  # 1
        text = f"a provider answers for {model.name}: nothing of it is placed on nodes"
        return Headroom(fits=0, code="external_model", message=text)
    board = Board(world)
    placer, ledger = Placer(board), Ledger(board)
    allowed = max(0, model.limit - len(running(board, model.id)))
    failed = failed_there(board, model)
    board.claim(model.id, None)
    slots = {item.slot for item in board.of_model(model.id)}
    found: Counter[tuple[str, str]] = Counter()
    while found.total() < most:  # 2
        place = place_within(placer, ledger, model, failed=failed)
        if isinstance(place, NoPlace):  # 3, 4
            return _full(board, placer, ledger, model, now, place, found, allowed)
        _put(board, model, place, slots)
        found[place.node.name, place.profile.name] += 1
    return Headroom(fits=found.total(), counted=False, allowed=allowed, places=_places(found))


def placeable(world: World, model: ModelView, now: float, *, most: int) -> tuple[int, str]:
    """How many replicas a model has or could be given, up to `most`, and what stands in the way of more ("": nothing).

    1. those that run count
    2. those that find room, and those for which others would give way, one after the other, as if all who leave were gone
    3. more than `MOST` for which others have to give way are not counted: then it could be given `most`
    """
    board = Board(world)
    placer, ledger = Placer(board), Ledger(board)
    there, given = len(running(board, model.id)), 0  # 1
    failed = failed_there(board, model)
    board.claim(model.id, None)
    slots = {item.slot for item in board.of_model(model.id)}
    for item in tuple(board.leaving):
        board.drop(item.id)
    while there < most:  # 2
        place = place_within(placer, ledger, model, failed=failed)
        if isinstance(place, NoPlace):
            eviction = Taker(board, placer, ledger, now).make_room(model) if place.busy else None
            if eviction is None:
                return there, place.message
            if given == MOST:  # 3
                return most, ""
            for other in eviction.claims:
                board.claim(other, None)
            for victim in eviction.victims:
                board.drop(victim.replica.id)
            place, given = eviction.placement, given + 1
        _put(board, model, place, slots)
        there += 1
    return there, ""


def _put(board: Board, model: ModelView, place: Placement, slots: set[int]) -> None:
    """Let the board be as if one more replica had this place."""
    slot = max(slots, default=-1) + 1
    slots.add(slot)
    start = Start(
        model_id=model.id,
        profile_id=place.profile.id,
        slot=slot,
        digest=place.profile.digest,
        shares=place.shares,
        reason="",
    )
    do(start, board)


def _full(
    board: Board,
    placer: Placer,
    ledger: Ledger,
    model: ModelView,
    now: float,
    nowhere: NoPlace,
    found: Counter[tuple[str, str]],
    allowed: int,
) -> Headroom:
    eviction = Taker(board, placer, ledger, now).make_room(model) if nowhere.busy else None
    return Headroom(
        fits=found.total(),
        allowed=allowed,
        places=_places(found),
        code=nowhere.code,
        message=nowhere.message,
        victims=eviction.victims if eviction is not None else (),
        reason=eviction.reason if eviction is not None else "",
    )


def _places(found: Counter[tuple[str, str]]) -> tuple[Places, ...]:
    """In the order in which they would be used first."""
    return tuple(Places(node=node, profile=profile, count=count) for (node, profile), count in found.items())
