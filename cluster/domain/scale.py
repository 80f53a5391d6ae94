"""Scaling: replicas beyond a model's base while requests wait, and back when nothing does. One step at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.domain.board import Board
from cluster.domain.plan import running
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, ReplicaView, Standing
from llmgw_site.lib.units import format_seconds

REST_SHARE = 0.7
"""Of the measured concurrency of those that stay: less than so much must be in use before one is taken back."""
BREAK = 4
"""A pressure or a quiet that broke off begins anew after this part of the time that makes a model grow, at the earliest: a
load that is at the threshold would else be written down at every look."""
_READY = ReplicaState.READY
_COMING = frozenset({ReplicaState.PENDING, ReplicaState.FETCHING, ReplicaState.STARTING})


@dataclass(frozen=True, kw_only=True)
class Load:
    """What the ready replicas of a model work at. `capacity`: requests at once that they were measured to serve well;
    0: not all of them were measured."""

    ready: int = 0
    in_flight: int = 0
    waiting: int = 0
    slots: int = 0
    widest: int = 0  # slots of the one that has most
    capacity: float = 0.0
    best: float = 0.0  # of `capacity`: that of the one that has most

    @property
    def pressed(self) -> bool:
        """One or more requests wait per replica, or more are under way than the replicas were measured to serve well."""
        if not self.ready:
            return False
        return self.waiting >= self.ready or 0 < self.capacity < self.in_flight

    @property
    def quiet(self) -> bool:
        """Nothing waits, and nothing would if one replica less were there."""
        if self.waiting or self.ready < 2:
            return not self.waiting
        if self.capacity:
            return self.in_flight < REST_SHARE * (self.capacity - self.best)
        return self.in_flight <= self.slots - self.widest


def load_of(model: ModelView, ready: Sequence[ReplicaView]) -> Load:
    """Of ready replicas, as their nodes said last."""
    profiles = [model.profile(item.profile_id) for item in ready]
    measured = [item.concurrency for item in profiles if item is not None and item.concurrency > 0]
    known = len(measured) == len(ready)
    return Load(
        ready=len(ready),
        in_flight=sum(item.in_flight for item in ready),
        waiting=sum(max(item.waiting, item.in_flight - item.slots, 0) for item in ready),
        slots=sum(item.slots for item in ready),
        widest=max((item.slots for item in ready), default=0),
        capacity=sum(measured) if known else 0.0,
        best=max(measured, default=0.0) if known else 0.0,
    )


def scaled(board: Board, model: ModelView, now: float) -> tuple[Standing, str]:
    """How many replicas a model has grown by, and since when its load would have it grow or shrink.

    1. it has nothing to grow into (its maximum is its base, it is at rest, disabled or parked): it has not grown, and its
       load is not looked at
    2. it is parked, and serves with what it was before: it stays as it is. Its maximum was lowered, or its base raised:
       what it has grown by fits in between
    3. pressed (see `Load`) for `scale_up_after` seconds without a break, all its replicas ready, none of them missing:
       one more. While one is starting the load says nothing about what will be when it is ready, so the time counts
       from then
    4. quiet for `scale_down_after` seconds without a break, and none on its way: one less. The time counts from the last
       step, so that no step is undone before
    5. what broke off begins anew after a while only (see BREAK)
    """
    standing = model.standing
    span = model.limit - model.least
    serving = any(board.state(item) is _READY for item in running(board, model.id))
    if span <= 0 or not model.least or (standing.parked_at is not None and not serving):  # 1
        return _still(standing), ""
    if standing.parked_at is not None:  # 2
        return _still(standing, grown=min(standing.grown, span)), ""
    grown = min(standing.grown, span)  # 2
    mine = running(board, model.id)
    load = load_of(model, [item for item in mine if board.state(item) is _READY])
    settled = load.ready == len(mine) >= model.least + grown
    again = now - standing.broke_off_at >= board.world.scale_up_after / BREAK  # 5
    pressed = load.pressed and settled and grown < span
    pressed_since = _since(standing.pressed_since, pressed, now, again=again)
    coming = any(board.state(item) in _COMING for item in mine)
    quiet = load.quiet and bool(grown) and not coming
    quiet_since = _since(standing.quiet_since, quiet, now, again=again)
    if pressed_since is not None and now - pressed_since >= board.world.scale_up_after:  # 3
        why = _pressed_words(load, now - pressed_since)
        return _step(standing, grown + 1), why
    if quiet_since is not None and now - quiet_since >= board.world.scale_down_after:  # 4
        why = f"nothing has waited for {format_seconds(now - quiet_since)}, {load.in_flight} requests are under way: one replica less"
        return _step(standing, grown - 1), why
    if (grown, pressed_since, quiet_since) == (standing.grown, standing.pressed_since, standing.quiet_since):
        return standing, ""
    broke = (standing.pressed_since is not None and pressed_since is None) or (
        standing.quiet_since is not None and quiet_since is None
    )
    broke_off_at = now if broke else standing.broke_off_at
    standing = replace(
        standing, grown=grown, pressed_since=pressed_since, quiet_since=quiet_since, broke_off_at=broke_off_at
    )
    return standing, ""


def _since(before: float | None, holds: bool, now: float, *, again: bool) -> float | None:
    """Since when something holds without a break; None: it does not, or broke off a moment ago."""
    if not holds:
        return None
    if before is None:
        return now if again else None
    return before


def _step(standing: Standing, grown: int) -> Standing:
    return replace(standing, grown=grown, pressed_since=None, quiet_since=None)


def _still(standing: Standing, *, grown: int = 0) -> Standing:
    if (standing.grown, standing.pressed_since, standing.quiet_since) == (grown, None, None):
        return standing
    return replace(standing, grown=grown, pressed_since=None, quiet_since=None)


def _pressed_words(load: Load, seconds: float) -> str:
    replicas = "1 replica" if load.ready == 1 else f"{load.ready} replicas"
    if load.waiting >= load.ready:
        text = f"{load.waiting} {'request waits' if load.waiting == 1 else 'requests wait'} at {replicas}"
    else:
        text = f"{load.in_flight} requests are under way at {replicas}, measured to serve {load.capacity:g} at once"
    return f"{text}, so it has been for {format_seconds(seconds)}: one replica more"
