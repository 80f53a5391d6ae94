"""Who gives way: the fewest and least useful replicas whose room lets another start."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from cluster.domain.board import Board
from cluster.domain.feasible import of_class, passing
from cluster.domain.place import Placement, Placer, ranks
from cluster.domain.plan import running
from cluster.domain.quotas import Ledger
from cluster.domain.room import Room
from cluster.domain.shares import share_of
from cluster.domain.tally import Tally
from cluster.domain.types import ModelView, ProfileView, ReplicaView, Share
from cluster.domain.victims import (
    GRACE,
    Asker,
    Ground,
    Herd,
    asker,
    ground_of,
    like,
    may_borrow,
    model_ground,
    size_of,
)
from llmgw_site.lib.units import format_bytes

PLACES = 16
"""Places of equally dear victims that are compared on the board."""
TRIES = 64
"""Places that are tried on the board until so many work: what a sum allows, quotas or the machine's own memory may not."""
NAMED = 6
"""Replicas that a reason names one by one."""
_newest = attrgetter("id")  # ids sort by time


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A replica that gives way. `grace`: seconds in which it may finish its requests; None: as its profile says."""

    replica: ReplicaView
    ground: Ground
    grace: float | None


@dataclass(frozen=True, kw_only=True)
class Eviction:
    """Replicas to stop, and the place that is there when they are gone. Without any: others that are told to stop leave
    room enough, and it only has to be kept."""

    victims: tuple[Victim, ...]
    placement: Placement
    reason: str


def make_room(board: Board, placer: Placer, ledger: Ledger, model: ModelView, now: float) -> Eviction | None:
    """`Taker.make_room` for once."""
    return Taker(board, placer, ledger, now).make_room(model)


class Taker:
    """Seeks room that others have to leave, for the models of one plan."""

    def __init__(self, board: Board, placer: Placer, ledger: Ledger, now: float | None) -> None:
        self.board, self.placer, self.ledger, self.now = board, placer, ledger, now
        self._herd: Herd | None = None

    @property
    def herd(self) -> Herd:
        if self._herd is None:
            self._herd = Herd(self.board)
        return self._herd

    def turn_comes(self, model: ModelView) -> bool:
        """Whether another model on demand would make room for this one if it were ready and had had its turn, or if what
        is kept for it were not: whoever waits for this one may go on waiting."""
        if not model.on_demand:
            return False
        others = [
            item.id
            for item in self.board.world.models
            if item.on_demand and item.klass == model.klass and item.id != model.id
        ]
        kept = [model_id for model_id in others if self.board.claim_of(model_id) is not None]
        if not kept and not any(running(self.board, model_id) for model_id in others):
            return False
        mark = self.board.mark()
        for model_id in kept:
            self.board.claim(model_id, None)
        later = Taker(self.board, self.placer, self.ledger, None)  # as if every turn were over
        later._herd = self.herd
        found = later.make_room(model)
        self.board.back(mark)
        return found is not None

    def make_room(self, model: ModelView) -> Eviction | None:
        """Whom to stop so that one more replica of this model can start; None where nobody may be stopped for it, or
        where it would not help.

        1. profiles in the order of `Placer.place`: the first that fits the hardware and finds it in use decides
        2. room that others are about to leave is taken before anybody is stopped
        3. those who may be taken (`victims.ground_of`) are gone through by how dear they are: lower classes first, idle
           ones before busy ones, then the smallest. The first who, with those before, leave room enough decide: so the
           dearest who has to go is as cheap as can be
        4. of the places that these make, each tried on the board and pruned to those it needs: the one that costs the
           fewest requests, the least memory, the fewest replicas; then one where the weights lie; then by name
        """
        asked = asker(self.board, model, self.now)
        for equals in ranks(model.profiles):  # 1
            found = [item for profile in equals for item in [self._best(asked, profile)] if item is not None]
            if found:
                return min(found, key=lambda item: item.cost).eviction
            if any(self._busy(asked, profile) for profile in equals):
                return None
        return None

    def _busy(self, asked: Asker, profile: ProfileView) -> bool:
        return self.placer.ranked(asked.model, profile).outlook().busy

    def _best(self, asked: Asker, wanted: ProfileView) -> _Found | None:
        """The cheapest place for one way to run the model, within the limits of its owner."""
        profile = self._within(asked.model, wanted)
        if profile is None:
            return None
        possible = {room.node.id: room for room in self.placer.ranked(asked.model, profile).possible}
        if not possible:
            return None
        places = _Places(self.board, asked.model, profile, possible)
        for level, victims in enumerate(self._levels(asked, profile, possible)):
            for victim in victims:
                places.add(level, victim)
            tried = works = 0
            best: _Found | None = None
            for rooms in places.that_may_do():
                found = self._try(asked, profile, rooms, places)
                tried, works = tried + 1, works + (found is not None)
                if found is not None and (best is None or found.cost < best.cost):
                    best = found
                if tried >= TRIES or works >= PLACES:
                    break
            if best is not None:
                return best
        return None

    def _within(self, model: ModelView, profile: ProfileView) -> ProfileView | None:
        """The profile on the classes of cards that the limits of its owner leave it; None where they leave none."""
        plain = Share(node_id="", memory=profile.memory, cores=profile.threads)
        if self.ledger.over_limit(model, (plain,) * profile.span):
            return None
        if not profile.cards or not model.owner:
            return profile
        samples: dict[str, Share] = {}
        for room in self.placer.ranked(model, profile).possible:
            for card in of_class(profile, room.node.cards):
                if card.klass not in samples:
                    samples[card.klass] = like(self.board, replace(profile, card_classes=(card.klass,)), room.node.id)
            if len(samples) == len(self.ledger.classes):
                break
        left = [key for key, share in samples.items() if not self.ledger.over_limit(model, (share,) * profile.span)]
        if len(left) == len(samples):
            return profile
        return replace(profile, card_classes=tuple(sorted(left))) if left else None

    def _levels(self, asked: Asker, profile: ProfileView, possible: Container[str]) -> Iterator[Iterable[ReplicaView]]:
        """Replicas that leave already; then those that may be taken, equally dear ones together, the cheapest first.
        Of those the newest first: it has warmed up the least. Whoever is on no node that helps is passed over."""
        yield self.board.leaving
        found = []
        for other in self.board.world.models:
            other = self.board.model(other.id) or other
            if model_ground(asked, other) is not None or may_borrow(asked, other):
                found += [(dear, other.name, group) for dear, group in self.herd.levels(other).items()]
        found.sort(key=lambda item: item[:2])
        for _, alike in groupby(found, key=lambda item: item[0]):
            yield (
                now
                for item in sorted(
                    _on(possible, (item for _, _, group in alike for item in group)), key=_newest, reverse=True
                )
                if (now := self.board.replica(item.id)) is not None
                and ground_of(self.board, self.ledger, asked, now, profile) is not None
            )

    def _try(self, asked: Asker, profile: ProfileView, rooms: list[Room], places: _Places) -> _Found | None:
        """Whether these nodes have room when those on them that may be taken are gone, and who of them has to."""
        board, model = self.board, asked.model
        mark = board.mark()
        leaving, order = places.on(rooms)

        def fits() -> bool:
            return not any(passing(room, profile, model) for room in rooms)

        for replica in leaving:
            board.lift(replica.id)
        done, taken = fits(), dict[str, Victim]()
        for replica in order:
            if done:
                break
            ground = ground_of(board, self.ledger, asked, replica, profile)  # its scope may have had no more to spare
            if ground is not None:
                grace = None if ground is Ground.TURN else GRACE
                taken[replica.id] = Victim(replica=replica, ground=ground, grace=grace)
                board.lift(replica.id)
                done = fits()
        for victim in list(taken.values())[-2::-1] if done else ():  # the last one is needed: before it, it did not fit
            board.unlift(victim.replica)
            if fits():
                del taken[victim.replica.id]
            else:
                board.lift(victim.replica.id)
        found = None
        if done:
            shares = tuple(share_of(room, profile, pack=board.world.pack) for room in rooms)
            if not self.ledger.over_limit(model, shares):
                victims = tuple(taken.values())
                reason = _reason(board, model, rooms, victims, leaving)
                placement = Placement(node=rooms[0].node, profile=profile, shares=shares, reason=reason)
                eviction = Eviction(victims=victims, placement=placement, reason=reason)
                found = _Found(cost=(*_cost(board, victims), *places.key(rooms)), eviction=eviction)
        board.back(mark)
        return found


def _on(possible: Container[str], replicas: Iterable[ReplicaView]) -> Iterator[ReplicaView]:
    """Those of them that hold something of these nodes."""
    for item in replicas:
        if item.node_id in possible or (
            len(item.shares) > 1 and any(share.node_id in possible for share in item.shares)
        ):
            yield item


@dataclass(frozen=True)
class _Found:
    cost: tuple[int, ...]
    eviction: Eviction


class _Places:
    """Nodes of one way to run a model, and what those who may go would leave of each."""

    def __init__(self, board: Board, model: ModelView, profile: ProfileView, possible: dict[str, Room]) -> None:
        self.board, self.model, self.profile, self.possible = board, model, profile, possible
        self._tallies: dict[str, Tally] = {}
        self._changed: dict[str, None] = {}
        self._fabrics: dict[str, dict[str, Room]] = {}  # nodes of each with room enough, where one has to span several
        if profile.span > 1:
            for room in possible.values():
                if not passing(room, profile, model):
                    self._fabrics.setdefault(room.node.fabric, {})[room.node.id] = room

    def add(self, level: int, replica: ReplicaView) -> None:
        """Count what a replica would leave."""
        for share in replica.shares:
            room = self.possible.get(share.node_id)
            if room is not None:
                tally = self._tallies.get(share.node_id)
                if tally is None:
                    tally = self._tallies[share.node_id] = Tally(room, self.profile, self.model)
                tally.add(level, replica, share)
                self._changed[share.node_id] = None

    def that_may_do(self) -> Iterator[list[Room]]:
        """Nodes that may have room enough by what was counted since the last time, those first that cost the fewest."""
        changed = [self.possible[node_id] for node_id in self._changed if self._tallies[node_id].fits()]
        self._changed = {}
        if self.profile.span == 1:
            changed.sort(key=lambda room: self._order([room]))
            yield from ([room] for room in changed)
            return
        for room in changed:
            self._fabrics.setdefault(room.node.fabric, {})[room.node.id] = room
        for fabric in sorted({room.node.fabric for room in changed}):
            rooms = sorted(self._fabrics[fabric].values(), key=lambda room: self._order([room]))
            if len(rooms) >= self.profile.span:
                yield rooms[: self.profile.span]

    def on(self, rooms: list[Room]) -> tuple[list[ReplicaView], list[ReplicaView]]:
        """Those that leave these nodes already, and those that may be taken, the cheapest first."""
        found: dict[str, tuple[int, ReplicaView]] = {}
        for room in rooms:
            tally = self._tallies.get(room.node.id)
            for level, replica in tally.counted if tally is not None else ():
                found[replica.id] = (level, replica)
        order = sorted(found.values(), key=lambda item: item[0])
        return [item for _, item in order if not item.run], [item for _, item in order if item.run]

    def key(self, rooms: list[Room]) -> tuple[int, ...]:
        """Among equally dear places: weights at hand, then few replicas of this model, then the name."""
        away = sum(self.model.weights not in room.node.weights for room in rooms)
        return (away, sum(self.board.count(self.model.id, room.node.id) for room in rooms), rooms[0].index)

    def _order(self, rooms: list[Room]) -> tuple[int, ...]:
        counted = sum(
            len(self._tallies[room.node.id].counted) if room.node.id in self._tallies else 0 for room in rooms
        )
        return (counted, *self.key(rooms))


def _cost(board: Board, victims: Iterable[Victim]) -> tuple[int, ...]:
    """What it costs: the dearest class, requests, bytes, replicas."""
    klass = requests = size = count = 0
    for item in victims:
        other = board.model(item.replica.model_id)
        klass = max(klass, int(other.klass) if other is not None else 0)
        requests, size, count = requests + item.replica.in_flight, size + size_of(item.replica), count + 1
    return (klass, requests, size, count)


_GROUNDS = {
    Ground.CLASS: "is of a lower class",
    Ground.GROWN: "has more than its base, because of load",
    Ground.TURN: "runs on demand and had its turn",
    Ground.BORROWED: "holds more than its scope is guaranteed",
}


def _reason(
    board: Board, model: ModelView, rooms: list[Room], victims: tuple[Victim, ...], leaving: list[ReplicaView]
) -> str:
    where = ", ".join(room.node.name for room in rooms)
    if not victims:
        names = ", ".join(item.id for item in leaving[:NAMED])
        return f"{model.name} gets room on node {where} that {names} leave" + ("s" if len(leaving) == 1 else "")
    told = []
    for item in victims[:NAMED]:
        other, replica = board.model(item.replica.model_id), item.replica
        busy = (
            f"{replica.in_flight} requests" if replica.in_flight > 1 else "1 request" if replica.in_flight else "idle"
        )
        name, klass = (other.name, other.klass.name.lower()) if other is not None else (replica.model_id, "")
        told.append(
            f"{replica.id} of {name} ({klass}, {busy}, {format_bytes(size_of(replica))}), which {_GROUNDS[item.ground]}"
        )
    more = f"; and {len(victims) - NAMED} more" if len(victims) > NAMED else ""
    return f"{model.name} ({model.klass.name.lower()}) gets room on node {where} of {'; '.join(told)}{more}"
