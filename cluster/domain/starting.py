"""Case 5 of the reconciler: one replica more, in a free place or in room that others make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cluster.domain.claims import CLAIM_FOR, shortened
from cluster.domain.draft import Draft, Taken
from cluster.domain.place import NoPlace, failed_there
from cluster.domain.plan import Keep, Release, Remember, Start, Stop, Wait, old, running
from cluster.domain.states import ReplicaState
from cluster.domain.types import Claim, ModelView, ReplicaView
from cluster.domain.victims import LOADING, Ground
from cluster.domain.waits import ASKING_NODES, TAKEN, WAITING_FOR_TURN, parked_words
from cluster.domain.within import place_within


def missing(draft: Draft, model: ModelView, *, at_most: int | None = None) -> NoPlace | None:
    """Case 5. Why there is no place for one more, if one is missing of as many as it shall have, or of `at_most`."""
    wanted = model.target if at_most is None else min(model.target, at_most)
    short = wanted - len(running(draft.board, model.id))  # counted once: some models have thousands
    while short > 0:
        nowhere = start(draft, model, "")
        if nowhere is None:
            short -= 1
            continue
        failed = sum(r.run and draft.board.state(r) is ReplicaState.FAILED for r in draft.board.of_model(model.id))
        if short > failed:  # else case 6 says it with the failure itself
            draft.waits.append(Wait(model_id=model.id, code=nowhere.code, message=nowhere.message))
        return nowhere
    return None


def start(draft: Draft, model: ModelView, why: str) -> NoPlace | None:
    """Start one more replica, or say why not."""
    if model.standing.parked_at is not None:
        return NoPlace(code="model_parked", message=parked_words(model))
    if model.asking:  # else all its replicas would go to the node that is the first to say
        return NoPlace(
            code=ASKING_NODES, message=f"nodes are being asked whether they have the weights of {model.name}"
        )
    claim = draft.board.claim_of(model.id)
    draft.board.claim(model.id, None)  # what is kept for it is for this
    found = place_within(draft.placer, draft.ledger, model, failed=failed_there(draft.board, model))
    if isinstance(found, NoPlace):
        draft.board.claim(model.id, claim)
        if claim is not None and (shorter := shortened(draft.board, claim, draft.now)) != claim:
            draft.do(Keep(claim=shorter, reason=""))
        if found.busy and claim is None:
            make_room(draft, model)
            if draft.board.claim_of(model.id) is None and draft.taker.turn_comes(model):
                text = f"{found.message}; another model on demand holds such room and gives way once it had its turn"
                return replace(found, code=WAITING_FOR_TURN, message=text)
        return found
    draft.freed += claim is not None and claim.shares != found.shares
    draft.do(
        Start(
            model_id=model.id,
            profile_id=found.profile.id,
            slot=free_slot(draft.board.of_model(model.id)),
            digest=found.profile.digest,
            shares=found.shares,
            grown=_grows(draft, model),
            reason=why + found.reason,
        )
    )
    return None


def _grows(draft: Draft, model: ModelView) -> bool:
    """Whether one more is there because of load: the base has all its replicas that need no successor."""
    if not model.standing.grown:
        return False
    mine = running(draft.board, model.id)
    base = sum(not item.grown and not old(draft.board, model, item) for item in mine)
    return base >= model.least


def make_room(draft: Draft, model: ModelView) -> None:
    """Stop others, and keep what they leave for this model."""
    found = draft.taker.make_room(model)
    if found is None:
        return
    whose = dict.fromkeys((*found.claims, *(item.replica.model_id for item in found.victims)))
    draft.taken += [Taken(model.id, other) for other in whose]
    for model_id in found.claims:
        draft.do(Release(model_id=model_id, reason=found.reason, for_model=model.id))
    for victim in found.victims:
        busy = victim.replica.in_flight > 0
        loading, other = victim.replica.state in LOADING, draft.board.model(victim.replica.model_id)
        op = Stop(
            replica_id=victim.replica.id,
            reason=found.reason,
            for_model=model.id,
            busy=busy,
            loading=loading,
            used_at=other.standing.used_at if loading and other is not None else None,
            grace=victim.grace,
        )
        draft.do(op)
    claim = Claim(model_id=model.id, shares=found.placement.shares, until=draft.now + CLAIM_FOR)
    draft.do(Keep(claim=claim, reason=found.reason))
    for victim in found.victims:
        if victim.ground is Ground.TURN:
            _rest(draft, victim.replica, model)
    grounds = {victim.replica.model_id: victim.ground for victim in found.victims}
    for model_id, ground in grounds.items():
        other = draft.board.model(model_id)
        turn = ground is Ground.TURN
        if other is not None and (turn or len(running(draft.board, model_id)) < other.target):
            code, text = WAITING_FOR_TURN if turn else "gave_way", f"{TAKEN}{other.name}: {found.reason}"
            draft.waits.append(Wait(model_id=model_id, code=code, message=text))


def _rest(draft: Draft, victim: ReplicaView, taker: ModelView) -> None:
    """A model on demand whose last replica gave way to another comes back when it is asked for, not by itself: two of
    them would push each other out for nobody. That a load of it was given up is remembered."""
    model = draft.board.model(victim.model_id)
    if model is None or model.standing.asked_at is None or running(draft.board, model.id):
        return
    why = f"its room was given to {taker.name}: it starts again when it is asked for"
    gave_up = model.standing.gave_up or victim.state in LOADING
    standing = replace(model.standing, asked_at=None, gave_up=gave_up)
    draft.do(Remember(model_id=model.id, before=model.standing, standing=standing, reason=why))


def free_slot(replicas: Iterable[ReplicaView]) -> int:
    """The lowest slot that no replica of the model holds."""
    taken = {item.slot for item in replicas}
    return next(number for number in range(len(taken) + 1) if number not in taken)
