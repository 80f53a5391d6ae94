"""Who gives way: the fewest and least useful replicas whose room lets another start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heapify, heappop

from cluster.domain.board import Board
from cluster.domain.eviction import Eviction, cost_of, reason_of
from cluster.domain.feasible import of_class, passing
from cluster.domain.place import Placement, Placer, Ranked, failed_there, ranks
from cluster.domain.places import NOBODY, Dearness, Places
from cluster.domain.plan import running
from cluster.domain.quotas import Ledger
from cluster.domain.room import Room
from cluster.domain.shares import share_of
from cluster.domain.states import ReplicaState
from cluster.domain.types import Claim, ModelView, ProfileView, ReplicaView, Share
from cluster.domain.victims import GRACE, Asker, Ground, Rights, Victim, asker, like
from cluster.domain.within import allowed

COMPARED = 16
"""Places where those who have to go are equally dear that are compared on the board."""


def make_room(board: Board, placer: Placer, ledger: Ledger, model: ModelView, now: float) -> Eviction | None:
    """`Taker.make_room` for once."""
    return Taker(board, placer, ledger, now).make_room(model)


class Taker:
    """Seeks room that others have to leave, for the models of one plan. `in_vain`: pairs of a model and one whose room is no
    use to it, as others would take it at once."""

    def __init__(self, board: Board, placer: Placer, ledger: Ledger, now: float | None) -> None:
        self.board, self.placer, self.ledger, self.now = board, placer, ledger, now
        self.in_vain: set[tuple[str, str]] = set()
        self._kept: set[str] = set()  # nodes where room is kept that this look does without

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
        found = later.make_room(model)
        self.board.back(mark)
        return found is not None

    def make_room(self, model: ModelView) -> Eviction | None:
        """Whom to stop so that one more replica of this model can start; None where nobody may be stopped for it, or
        where it would not help.

        1. profiles in the order of `Placer.place`: the first that fits the hardware and finds it in use decides
        2. room that others are about to leave is taken before anybody is stopped
        3. those who may be taken (`Rights.ground`) go by how dear they are: lower classes first, idle ones before busy ones,
           then the smallest. The place is taken where the dearest who has to go is the cheapest
        4. each place is tried on the board, and pruned to those it needs. Of those where the dearest are equal: the one that
           costs the fewest requests, the least memory, the fewest replicas; then one where the weights lie; then by name
        5. nowhere: room that is kept for a model is no more its own than what it runs on, see `_kept_ground`
        """
        asked = asker(self.board, model, self.now)
        return self._seek(asked) or self._seek_kept(asked)

    def _seek(self, asked: Asker) -> Eviction | None:
        for equals in ranks(asked.model.profiles):  # 1
            found = [item for profile in equals for item in [self._best(asked, profile)] if item is not None]
            if found:
                return min(found, key=lambda item: item.cost).eviction
            if any(self._busy(asked, profile) for profile in equals):
                return None
        return None

    def _seek_kept(self, asked: Asker) -> Eviction | None:
        """Case 5."""
        grounds = {claim.model_id: self._kept_ground(asked, claim) for claim in self.board.claims}
        claims = [claim for claim in self.board.claims if grounds[claim.model_id] is not None]
        found = self._seek_without(asked, claims) if claims else None
        if found is None:
            return None
        nodes = {share.node_id for share in found.placement.shares}
        there = [claim for claim in claims if nodes & {share.node_id for share in claim.shares}]
        found = self._seek_there(
            asked, there, nodes
        )  # as it is done: what is kept elsewhere counts, for guarantees, too
        for claim in there if found is not None and len(there) > 1 else ():
            fewer = [item for item in there if item is not claim]
            less = self._seek_there(asked, fewer, nodes)
            if less is not None:
                there, found = fewer, less
        if found is None:
            return None
        others = [other for claim in there if (other := self.board.model(claim.model_id)) is not None]
        borrowed = [other for other in others if grounds[other.id] is Ground.BORROWED]
        if borrowed and not self._stays_within(asked, there, found, borrowed):
            return None
        reason = f"{found.reason}, which was kept for {', '.join(other.name for other in others)}"
        return replace(found, claims=tuple(other.id for other in others), reason=reason)

    def _seek_there(self, asked: Asker, claims: Iterable[Claim], nodes: set[str]) -> Eviction | None:
        """`_seek_without` these, if one of these nodes is what it comes to."""
        found = self._seek_without(asked, claims)
        there = found is not None and nodes & {share.node_id for share in found.placement.shares}
        return found if there else None

    def _seek_without(self, asked: Asker, claims: Iterable[Claim]) -> Eviction | None:
        mark = self.board.mark()
        for claim in claims:
            self.board.claim(claim.model_id, None)
        self._kept = {share.node_id for claim in claims for share in claim.shares}
        found = self._seek(asked)
        self._kept = set()
        self.board.back(mark)
        return found

    def _stays_within(
        self, asked: Asker, claims: Iterable[Claim], found: Eviction, borrowed: Iterable[ModelView]
    ) -> bool:
        """Whether what the asking model gets is within a guarantee of its own once these claims are given up."""
        mark = self.board.mark()
        for claim in claims:
            self.board.claim(claim.model_id, None)
        for victim in found.victims:
            self.board.lift(victim.replica.id)
        shares, within = found.placement.shares, self.ledger.within_guarantee
        answer = all(within(asked.model, shares, apart_from=other.owner) for other in borrowed)
        self.board.back(mark)
        return answer

    def _kept_ground(self, asked: Asker, claim: Claim) -> Ground | None:
        """On what ground room that is kept for a model may be taken, as far as that can be told before a place is known:
        as that of its replicas. What load asks for may be taken for one of its class that has not even what it shall have
        without any; what the other is guaranteed may not be taken."""
        other = self.board.model(claim.model_id)
        if other is None or (asked.model.id, other.id) in self.in_vain or self._guaranteed(asked, claim, other):
            return None
        if other.klass < asked.model.klass:
            return Ground.CLASS
        grows = not other.on_demand and len(running(self.board, other.id)) >= other.least
        if other.klass == asked.model.klass and asked.short and grows:
            return Ground.GROWN
        if not asked.guaranteed or other.owner == asked.model.owner:
            return None
        mark = self.board.mark()
        self.board.claim(other.id, None)
        ways = (Rights(self.board, self.ledger, asked, profile) for profile in asked.model.profiles)
        lends = any(rights.lends(other, claim.shares) for rights in ways)
        self.board.back(mark)
        return Ground.BORROWED if lends else None

    def _guaranteed(self, asked: Asker, claim: Claim, other: ModelView) -> bool:
        """Whether room is kept within a guarantee in which the asking model has no part."""
        mark = self.board.mark()
        self.board.claim(claim.model_id, None)
        found = self.ledger.within_guarantee(other, claim.shares, apart_from=asked.model.owner)
        self.board.back(mark)
        return found

    def _busy(self, asked: Asker, profile: ProfileView) -> bool:
        way = allowed(self.ledger, asked.model, profile)
        return way is not None and self._ranked(asked.model, way).outlook().busy

    def _best(self, asked: Asker, wanted: ProfileView) -> _Found | None:
        """The cheapest place for one way to run the model, within the limits of its owner: cases 2 to 4."""
        profile = self._within(asked.model, wanted)
        if profile is None:
            return None
        barred = {other for model_id, other in self.in_vain if model_id == asked.model.id}
        rights = Rights(self.board, self.ledger, asked, profile, barred)
        places = Places(self.board, rights, self._ranked(asked.model, profile).possible, self._kept)
        coming = list(places.all())
        heapify(coming)
        best, compared = None, 0
        while coming and compared < COMPARED:
            least, _, rooms = heappop(coming)
            if best is not None and least > best.cost[0]:
                break
            found = self._try(rights, rooms, places)
            if found is not None:
                compared += found.cost[0] == least
                best = found if best is None or found.cost < best.cost else best
        return best

    def _ranked(self, model: ModelView, profile: ProfileView) -> Ranked:
        return self.placer.ranked(model, profile, failed_there(self.board, model))

    def _within(self, model: ModelView, profile: ProfileView) -> ProfileView | None:
        """The profile on the classes of cards that the limits of its owner leave it; None where they leave none."""
        plain = Share(node_id="", memory=profile.memory, cores=profile.threads)
        if self.ledger.over_limit(model, (plain,) * profile.span):
            return None
        if not profile.cards or not model.owner:
            return profile
        samples: dict[str, Share] = {}
        for room in self._ranked(model, profile).possible:
            for card in of_class(profile, room.node.cards):
                if card.klass not in samples:
                    samples[card.klass] = like(self.board, replace(profile, card_classes=(card.klass,)), room.node.id)
            if len(samples) == len(self.ledger.classes):
                break
        left = [key for key, share in samples.items() if not self.ledger.over_limit(model, (share,) * profile.span)]
        if len(left) == len(samples):
            return profile
        return replace(profile, card_classes=tuple(sorted(left))) if left else None

    def _try(self, rights: Rights, rooms: list[Room], places: Places) -> _Found | None:
        """Whether these nodes have room when those on them that may be taken are gone, and who of them has to."""
        board, model, profile = self.board, rights.asked.model, rights.profile
        mark = board.mark()
        trial = _Trial(rights, rooms)
        leaving, order = places.on(rooms)
        for replica in leaving:
            board.lift(replica.id)
        shares = trial.shares_of(order)
        if shares is None and trial.spared:  # quotas let only some of them go: others of their scopes first
            shares = trial.shares_of(_first(trial.spared, order))
        if shares is None and trial.taken:  # or what they leave is not of the kind that is guaranteed: others first
            shares = trial.shares_of(_first([item for item in order if item.id not in trial.taken], order))
        found = None
        if shares is not None:
            victims = tuple(trial.taken.values())
            dearest = max((places.dearness(item.replica) for item in victims), default=NOBODY)
            reason = reason_of(board, model, rooms, victims, leaving)
            placement = Placement(node=rooms[0].node, profile=profile, shares=shares, reason=reason)
            eviction = Eviction(victims=victims, placement=placement, reason=reason)
            found = _Found(cost=(dearest, cost_of(victims), places.key(rooms)), eviction=eviction)
        board.back(mark)
        return found


class _Trial:
    """Replicas are lifted on some nodes to see what that helps. `spared`: those that may not go, as their scopes have no
    more to spare then."""

    def __init__(self, rights: Rights, rooms: list[Room]) -> None:
        self.rights, self.rooms = rights, rooms
        self.taken: dict[str, Victim] = {}
        self.spared: list[ReplicaView] = []

    def fits(self) -> bool:
        return not any(passing(room, self.rights.profile, self.rights.asked.model) for room in self.rooms)

    def shares_of(self, order: Iterable[ReplicaView]) -> tuple[Share, ...] | None:
        """What the model would get if those of these went who are needed; None if that is not room enough, or more than
        quotas let it have. Whoever was taken before is had back first."""
        board, ledger = self.rights.board, self.rights.ledger
        for victim in self.taken.values():
            board.unlift(victim.replica)
        self.taken, self.spared = {}, []
        self.take(order)
        if not self.fits():
            return None
        self.prune()
        shares = self.shares()
        within = not ledger.over_limit(self.rights.asked.model, shares) and self.rights.holds(
            self.taken.values(), shares
        )
        return shares if within else None

    def shares(self) -> tuple[Share, ...]:
        pack = self.rights.board.world.pack
        return tuple(share_of(room, self.rights.profile, pack=pack) for room in self.rooms)

    def take(self, order: Iterable[ReplicaView]) -> None:
        """Lift one after the other until there is room."""
        board, gone = self.rights.board, Counter[str]()
        for replica in order:
            if self.fits():
                return
            ground = self.rights.ground(replica, gone)
            if ground is None:
                self.spared.append(replica)
                continue
            grace = None if ground is Ground.TURN else GRACE
            self.taken[replica.id] = Victim(replica=replica, ground=ground, grace=grace)
            gone[replica.model_id] += board.state(replica) is not ReplicaState.FAILED
            board.lift(replica.id)

    def prune(self) -> None:
        """Have those back who are not needed, the dearest first. The last one is: before it, it did not fit."""
        order = list(self.taken)
        for victim in list(self.taken.values())[-2::-1]:
            del self.taken[victim.replica.id]
            self.rights.board.unlift(victim.replica)
            if not self.fits() or not self.rights.holds(self.taken.values(), self.shares()):
                self.rights.board.lift(victim.replica.id)
                self.taken[victim.replica.id] = victim
        self.taken = {key: self.taken[key] for key in order if key in self.taken}


def _first(some: list[ReplicaView], order: list[ReplicaView]) -> list[ReplicaView]:
    ids = {item.id for item in some}
    return [*some, *(item for item in order if item.id not in ids)]


@dataclass(frozen=True)
class _Found:
    cost: tuple[Dearness, tuple[int, ...], tuple[int, ...]]  # of the dearest, of all together, an order among equals
    eviction: Eviction
