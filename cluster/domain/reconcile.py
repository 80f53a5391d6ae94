"""Wanted against seen: what to do now. One function per case; the same world and time give the same plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cluster.domain import plan as plans
from cluster.domain.board import Board
from cluster.domain.claims import CLAIM_FOR, ended
from cluster.domain.feasible import Answer
from cluster.domain.place import NoPlace, Placer
from cluster.domain.plan import (
    Keep,
    Op,
    Plan,
    Release,
    Remember,
    Remove,
    Renew,
    Start,
    Stop,
    Wait,
    old,
    outdated,
    running,
)
from cluster.domain.preempt import Taker
from cluster.domain.quotas import Ledger
from cluster.domain.refusals import Verdict, feasible
from cluster.domain.restart import given_up
from cluster.domain.shares import share_of
from cluster.domain.standings import standing_now
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import Claim, ModelView, NodeView, ProfileView, ReplicaView, Share, World
from cluster.domain.victims import Ground
from cluster.domain.within import place_within

WAITING_FOR_TURN = "waiting_for_turn"
"""Code of a model on demand that has no room yet, and will."""
SHOW_AFTER = 15.0
"""Seconds that an engine may take to come back from its first failure before the model says so."""
_READY = ReplicaState.READY


def reconcile(world: World, now: float) -> Plan:
    """The plan for this moment. Models in order: highest class first, then highest priority, then those asked
    for on demand by since when, then by name.

    1. a replica of which nothing is left, or whose node was removed: Remove
    2. a model that is disabled, gone, external, wants none or has no enabled profile: Stop its replicas; one that is
       parked: those that are not ready
    3. more replicas than wanted: Stop the surplus, the least useful first. Lost and failed ones count for nothing; they
       are told to stop when enough others are ready, so a node that returns after its replicas were replaced has its
       own stopped, and one that returns before keeps them
    4. an old replica, outdated (profile or weights changed) or to move (its node or card is drained, its profile may not
       run there) or to restart, is replaced, one at a time and never below the wanted number of running ones if it can be
       helped:
       a. there is room for one more: Start the new one; when it is ready, case 3 stops the old one
       b. there is not, and it may stay on its node: Renew it in place, stop then start; with a single replica the model
          is away meanwhile
       c. neither: it stays as it is and serves, and Wait says so; a restart is given up
       While room is made for one more, it waits for that. A restart in place begins with b. One that has failed and is
       outdated or to restart is renewed in place, as long as replicas are missing
    5. fewer replicas than wanted: Start one where `place` says, not where the same has failed for good; else Wait
    6. a replica that failed, or keeps coming back from failures, or whose node is not heard: Wait with the reason.
       Starting a dead engine again is the agent's work, not ours
    """
    planner = _Planner(world, now)
    planner.remove()  # 1
    planner.claims()
    for replica in planner.board.replicas:  # 2, of models that are gone
        if planner.board.model(replica.model_id) is None and replica.run:
            planner.do(Stop(replica_id=replica.id, reason="its model is gone"))
    for model in sorted(world.models, key=_order):
        planner.model(planner.board.model(model.id) or model)  # others may have changed what is remembered of it
    return Plan(ops=tuple(planner.ops), waits=tuple(planner.waits))


def _order(model: ModelView) -> tuple[int, int, float, str]:
    """Among equals that run on demand, whoever was asked for first: else the last by name could starve."""
    asked = model.standing.asked_at if model.on_demand else None
    return (-model.klass, -max((item.priority for item in model.profiles), default=0), asked or 0.0, model.name)


class _Planner:
    """Collects the operations; each sees the world as the ones before it leave it."""

    def __init__(self, world: World, now: float) -> None:
        self.board = Board(world)
        self.placer = Placer(self.board)
        self.ledger = Ledger(self.board)
        self.taker = Taker(self.board, self.placer, self.ledger, now)
        self.now = now
        self.ops: list[Op] = []
        self.waits: list[Wait] = []

    def do(self, op: Op) -> None:
        plans.do(op, self.board)
        self.ops.append(op)

    def remove(self) -> None:
        """Case 1."""
        for replica in self.board.replicas:
            if self.board.node(replica.node_id) is None:
                self.do(Remove(replica_id=replica.id, reason="its node was removed"))
            elif not replica.run and replica.state is ReplicaState.STOPPED:
                self.do(Remove(replica_id=replica.id, reason="it has stopped"))

    def claims(self) -> None:
        """Room that is kept for nothing is given back before anything is placed."""
        for claim in self.board.claims:
            model = self.board.model(claim.model_id)
            there = running(self.board, claim.model_id)
            enough = model is not None and len(there) >= model.target
            enough = enough and model is not None and not any(old(self.board, model, item) for item in there)
            why = ended(self.board, claim, self.now, enough=enough)
            if why:
                self.do(Release(model_id=claim.model_id, reason=why))

    def model(self, model: ModelView) -> None:
        standing, why = standing_now(self.board, model, self.now)
        if standing != model.standing:
            self.do(Remember(model_id=model.id, before=model.standing, standing=standing, reason=why))
            model = self.board.model(model.id) or model
        if not model.target or not model.profiles:  # 2
            reason = "the model wants no replica" if model.profiles else "the model has no enabled profile"
            reason = "a provider answers for the model" if model.external else reason
            reason = reason if model.enabled else "the model is disabled"
            for replica in self.board.of_model(model.id):
                if replica.run:
                    self.do(Stop(replica_id=replica.id, reason=reason))
            if model.target:
                self.missing(model)  # says what is missing: a profile
            return
        if model.standing.parked_at is not None:
            self.park(model)
        self.surplus(model)  # 3
        self.replace(model)  # 4
        nowhere = self.missing(model)  # 5
        self.troubled(model, nowhere)  # 6

    def park(self, model: ModelView) -> None:
        """Case 2 of a parked model. One whose node is lost is left alone: it may prove to work when that is back."""
        for replica in self.board.of_model(model.id):
            if replica.run and self.board.state(replica) not in (_READY, ReplicaState.LOST):
                text = f"the model is parked after {model.standing.failures} failed starts in a row"
                self.do(Stop(replica_id=replica.id, reason=text))

    def surplus(self, model: ModelView) -> None:
        """Case 3. While an old replica is being replaced, its successor's start is no surplus until it is ready."""
        active = running(self.board, model.id)
        replaced = [item for item in active if old(self.board, model, item)]
        if replaced and len(active) > model.target:
            # case 4a under way: the old ones may go as soon as enough others are ready
            ready = sum(item.state is _READY for item in active if item not in replaced)
            enough = ready + len(replaced) - model.target
            for replica in sorted(replaced, key=_usefulness)[: max(0, min(enough, len(active) - model.target))]:
                self.do(Stop(replica_id=replica.id, reason=self.replaced(replica)))
        elif len(active) > model.target:
            for replica in sorted(active, key=_taken_back)[: len(active) - model.target]:
                text = f"{len(active)} replicas run and {model.target} are wanted"
                self.do(Stop(replica_id=replica.id, reason=text))
        self.useless(model)

    def replaced(self, replica: ReplicaView) -> str:
        model = self.board.model(replica.model_id)
        why = self.board.to_move(replica)
        if not why and model is not None and model.restarts(replica) and not outdated(model, replica):
            why = "it was to restart"
        return f"{why}, and another replica is ready" if why else "one with the changed profile has taken its place"

    def useless(self, model: ModelView) -> None:
        """Case 3 for replicas that are lost or have failed: told to stop once others have taken over."""
        if sum(item.state is _READY for item in running(self.board, model.id)) < model.target:
            return
        for replica in self.board.of_model(model.id):
            state = self.board.state(replica)
            if replica.run and state in (ReplicaState.LOST, ReplicaState.FAILED):
                why = "it has failed" if state is ReplicaState.FAILED else self.lost_words(replica)
                self.do(Stop(replica_id=replica.id, reason=f"{why}, and others have taken its place"))

    def replace(self, model: ModelView) -> None:
        """Case 4."""
        active = running(self.board, model.id)
        found = sorted((item for item in active if old(self.board, model, item)), key=_usefulness)
        if len(active) > model.target:
            return  # one is being replaced at this moment
        coming = any(item.state is not _READY for item in active if item not in found)
        for chosen in found:
            serving, move = chosen.state is _READY, self.board.to_move(chosen)
            if coming and (serving or move):
                continue  # one after the other
            nowhere: NoPlace | None = None
            why = move or (f"{chosen.id} runs with an older profile" if outdated(model, chosen) else "")
            if (serving or move) and (why or not model.standing.in_place):
                nowhere = self.start(model, f"{why or f'{chosen.id} is to restart'}; ")
                if nowhere is None or self.board.claim_of(model.id) is not None:  # a
                    return
            if self.renew(model, chosen, nowhere):  # b
                return
            self.stays(model, chosen, nowhere)  # c
        for replica in self.board.of_model(model.id):
            if not replica.run or self.board.state(replica) is not ReplicaState.FAILED:
                continue
            missing = len(running(self.board, model.id)) < model.target
            if missing and (outdated(model, replica) or model.restarts(replica)):
                self.renew(model, replica, None)

    def renew(self, model: ModelView, replica: ReplicaView, nowhere: NoPlace | None) -> bool:
        """Case 4b. `nowhere`: why there is no place for a second one, if it was tried."""
        found = self.fits(model, replica)
        profile = next((item for item, verdict in found if verdict.answer is Answer.OK), None)
        if profile is None:
            return False
        why = self.board.to_move(replica) or (
            "the profile or the weights changed" if outdated(model, replica) else "it was to restart"
        )
        if nowhere is not None:
            why += ", and there is no room for a second replica beside it"
        self.do(
            Renew(
                replica_id=replica.id,
                profile_id=profile.id,
                digest=profile.digest,
                generation=replica.generation + 1,
                shares=self.shares_there(replica, profile),
                reason=why,
            )
        )
        return True

    def stays(self, model: ModelView, replica: ReplicaView, nowhere: NoPlace | None) -> None:
        """Case 4c."""
        node = self.board.node(replica.node_id)
        move, name = self.board.to_move(replica), node.name if node else "?"
        if move:
            text = f"{move}; {replica.id} stays there until it has another place: {nowhere.message if nowhere else ''}"
            wait = Wait(model_id=model.id, code="waiting_to_move", message=text, replica_id=replica.id)
        elif not outdated(model, replica):
            self.give_up(model, replica, nowhere)
            return
        else:
            found = self.fits(model, replica)
            words = found[0][1].message if found else ""
            text = f"{replica.id} on node {name} runs with an older profile: for the new one {words}"
            wait = Wait(model_id=model.id, code="update_pending", message=text, replica_id=replica.id)
        self.waits.append(wait)

    def give_up(self, model: ModelView, replica: ReplicaView, nowhere: NoPlace | None) -> None:
        """Case 4c of a restart: nothing would fit, so it is left running, and nobody tries again."""
        now = self.board.model(model.id) or model
        found = self.fits(model, replica)
        words = found[0][1].message if found else ""
        text = f"the restart of {replica.id} is given up, it runs on: a new one fits nowhere beside it"
        text += f" ({nowhere.message})" if nowhere else ""
        text += f", nor in its place: {words}" if words else ""
        left = given_up(now.standing, replica)
        self.do(Remember(model_id=model.id, before=now.standing, standing=left, reason=text))

    def shares_there(self, replica: ReplicaView, profile: ProfileView) -> tuple[Share, ...]:
        """What a replica takes of the nodes where it is, as another profile."""
        mark = self.board.mark()
        self.board.lift(replica.id)
        pack = self.board.world.pack
        shares = tuple(share_of(self.board.rooms[item.node_id], profile, pack=pack) for item in replica.shares)
        self.board.back(mark)
        return shares

    def fits(self, model: ModelView, replica: ReplicaView) -> list[tuple[ProfileView, Verdict]]:
        """The model's profiles on the replica's own nodes in its place, its own profile first."""
        nodes = [node for share in replica.shares if (node := self.board.node(share.node_id)) is not None]
        if len(nodes) < len(replica.shares):
            return []
        profiles = sorted(model.profiles, key=lambda item: item.id != replica.profile_id)
        found = [(item, self.there(model, replica, item, nodes)) for item in profiles]
        return [(item, self.within_limits(model, replica, item, verdict)) for item, verdict in found]

    def there(self, model: ModelView, replica: ReplicaView, profile: ProfileView, nodes: list[NodeView]) -> Verdict:
        if profile.span != len(nodes):
            text = f"it spans {profile.span} nodes of one fabric, and {replica.id} is on {len(nodes)}"
            return Verdict(Answer.NOT_NOW, "no_fabric_now", text)
        found = [feasible(self.board, node, profile, [replica.id], model) for node in nodes]
        return next((verdict for verdict in found if verdict.answer is not Answer.OK), found[0])

    def within_limits(self, model: ModelView, replica: ReplicaView, profile: ProfileView, verdict: Verdict) -> Verdict:
        """What fits may be more than quotas let the model have."""
        if verdict.answer is not Answer.OK:
            return verdict
        over = self.ledger.over_limit(model, self.shares_there(replica, profile), instead=replica)
        return Verdict(Answer.NOT_NOW, "over_limit", over) if over else verdict

    def missing(self, model: ModelView) -> NoPlace | None:
        """Case 5. Why there is no place for one more, if one is missing."""
        while (short := model.target - len(running(self.board, model.id))) > 0:
            nowhere = self.start(model, "")
            if nowhere is None:
                continue
            failed = sum(r.run and self.board.state(r) is ReplicaState.FAILED for r in self.board.of_model(model.id))
            if short > failed:  # else case 6 says it with the failure itself
                self.waits.append(Wait(model_id=model.id, code=nowhere.code, message=nowhere.message))
            return nowhere
        return None

    def start(self, model: ModelView, why: str) -> NoPlace | None:
        """Start one more replica, or say why not."""
        there = self.board.of_model(model.id)
        failed = {(item.node_id, item.digest) for item in there if item.state is ReplicaState.FAILED}
        if model.standing.parked_at is not None:
            return NoPlace(code="model_parked", message=parked_words(model))
        claim = self.board.claim_of(model.id)
        self.board.claim(model.id, None)  # what is kept for it is for this
        found = place_within(self.placer, self.ledger, model, failed=failed)
        if isinstance(found, NoPlace):
            self.board.claim(model.id, claim)
            if found.busy and claim is None:
                self.make_room(model)
                if self.board.claim_of(model.id) is None and self.taker.turn_comes(model):
                    text = (
                        f"{found.message}; another model on demand holds such room and gives way once it had its turn"
                    )
                    return replace(found, code=WAITING_FOR_TURN, message=text)
            return found
        self.do(
            Start(
                model_id=model.id,
                profile_id=found.profile.id,
                slot=free_slot(there),
                digest=found.profile.digest,
                shares=found.shares,
                grown=self.grows(model),
                reason=why + found.reason,
            )
        )
        return None

    def grows(self, model: ModelView) -> bool:
        """Whether one more is there because of load: the base has all its replicas that need no successor."""
        mine = running(self.board, model.id)
        base = sum(not item.grown and not old(self.board, model, item) for item in mine)
        return model.standing.grown > 0 and base >= model.least

    def make_room(self, model: ModelView) -> None:
        """Stop others, and keep what they leave for this model."""
        found = self.taker.make_room(model)
        if found is None:
            return
        for victim in found.victims:
            busy = victim.replica.in_flight > 0
            op = Stop(
                replica_id=victim.replica.id, reason=found.reason, for_model=model.id, busy=busy, grace=victim.grace
            )
            self.do(op)
        claim = Claim(model_id=model.id, shares=found.placement.shares, until=self.now + CLAIM_FOR)
        self.do(Keep(claim=claim, reason=found.reason))
        for victim in found.victims:
            if victim.ground is Ground.TURN:
                self.rest(victim.replica.model_id, model)
        grounds = {victim.replica.model_id: victim.ground for victim in found.victims}
        for model_id, ground in grounds.items():
            other = self.board.model(model_id)
            turn = ground is Ground.TURN
            if other is not None and (turn or len(running(self.board, model_id)) < other.target):
                code, text = WAITING_FOR_TURN if turn else "gave_way", f"room was taken of {other.name}: {found.reason}"
                self.waits.append(Wait(model_id=model_id, code=code, message=text))

    def rest(self, model_id: str, taker: ModelView) -> None:
        """A model on demand whose last replica gave way to another comes back when it is asked for, not by itself: two of
        them would push each other out for nobody."""
        model = self.board.model(model_id)
        if model is None or model.standing.asked_at is None or running(self.board, model_id):
            return
        why = f"its room was given to {taker.name}: it starts again when it is asked for"
        standing = replace(model.standing, asked_at=None)
        self.do(Remember(model_id=model.id, before=model.standing, standing=standing, reason=why))

    def troubled(self, model: ModelView, nowhere: NoPlace | None) -> None:
        """Case 6."""
        for replica in self.board.of_model(model.id):
            state = self.board.state(replica)
            if not replica.run:
                continue
            node = self.board.node(replica.node_id)
            name = node.name if node else replica.node_id
            code = text = ""
            if state is ReplicaState.LOST:
                code = "node_offline" if node is None or node.state is NodeState.OFFLINE else "no_inference_module"
                text = f"{self.lost_words(replica)}, {replica.id} is lost with it"
            elif state is ReplicaState.FAILED:
                code = replica.code or "engine_failed"
                text = f"{replica.id} on node {name} has failed and is not tried again: {replica.message}"
                text += f" ({nowhere.message})" if nowhere else ""
            elif state is ReplicaState.BACKOFF and (
                replica.attempt > 1 or self.now - replica.state_since >= SHOW_AFTER
            ):
                code = replica.code or "engine_failing"
                text = f"{replica.id} on node {name} keeps failing, the node tries again: {replica.message}"
            if code:
                self.waits.append(Wait(model_id=model.id, code=code, message=text, replica_id=replica.id))

    def lost_words(self, replica: ReplicaView) -> str:
        node = self.board.node(replica.node_id)
        if node is None:
            return "its node was removed"
        if node.state is not NodeState.OFFLINE:
            return f"node {node.name} does not run the module inference any more"
        return f"node {node.name} is offline" + (f" and {node.maintenance_words}" if node.maintenance else "")


def parked_words(model: ModelView) -> str:
    standing = model.standing
    return (
        f"the model {model.name} is parked after {standing.failures} failed starts in a row: {standing.parked_message}; "
        f"mend what it says and change the model, or try again by `llmgw model retry {model.name}`"
    )


def free_slot(replicas: Iterable[ReplicaView]) -> int:
    """The lowest slot that no replica of the model holds."""
    taken = {item.slot for item in replicas}
    return next(number for number in range(len(taken) + 1) if number not in taken)


def _taken_back(replica: ReplicaView) -> tuple[int, bool, int, str]:
    """Sort key of a surplus: the least useful first, of equals one that was added under load, then the idlest."""
    use, name = _usefulness(replica)
    return (use, not replica.grown, replica.in_flight, name)


def _usefulness(replica: ReplicaView) -> tuple[int, str]:
    """Sort key, the least useful first: failed, trying, loading, ready; among equals the newest first."""
    order = {
        ReplicaState.STOPPED: 0,
        ReplicaState.FAILED: 0,
        ReplicaState.BACKOFF: 1,
        ReplicaState.DRAINING: 2,
        ReplicaState.PENDING: 3,
        ReplicaState.STARTING: 4,
        ReplicaState.READY: 5,
    }
    return (order.get(replica.state, 0), _newest_first(replica.id))


def _newest_first(replica_id: str) -> str:
    """Ids sort by time; this turns the order round."""
    return "".join(chr(0x10FFFF - ord(letter)) for letter in replica_id)
