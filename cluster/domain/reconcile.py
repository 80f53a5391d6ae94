"""Wanted against seen: what to do now. The same world and time give the same plan.

Each case has its file: `surplus` (3), `replacing` (4), `starting` (5), `waits` (6), `regroup` (7).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from cluster.domain import regroup, replacing, starting, surplus, waits
from cluster.domain.claims import ended
from cluster.domain.draft import Draft, Moment
from cluster.domain.plan import Plan, Release, Remember, Remove, Stop, old, running
from cluster.domain.standings import standing_now
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, World

TRIED = 200
"""Pairs of models that one plan finds to make room in vain; more of them wait for the next."""


def reconcile(world: World, now: float) -> Plan:
    """The plan for this moment. Models in order: highest class first, then highest priority, then those asked
    for on demand by since when, then by name; what load asks for, when all of a class have had what they shall have
    without. One of which a later one takes room is looked at again at once.

    1. a replica of which nothing is left, or whose node was removed: Remove
    2. a model that is disabled, gone, external, wants none or has no enabled profile: Stop its replicas; one that is
       parked: those that are not ready
    3. more replicas than wanted: Stop the surplus, the least useful first. Lost and failed ones count for nothing; they
       are told to stop when enough others are ready, so a node that returns after its replicas were replaced has its
       own stopped, and one that returns before keeps them. Of the failed ones while old replicas are being replaced, none;
       nor an outdated one that loads and may serve by now, while nothing of the present definition does
    4. an old replica, outdated (profile or weights changed) or to move (see `moving.why_to_move`) or to restart, is
       replaced, one at a time and never below the wanted number of running ones if it can be helped:
       a. there is room for one more: Start the new one; when it is ready, case 3 stops the old one
       b. there is not, and it may stay on its node: Renew it in place, stop then start; with a single replica the model
          is away meanwhile
       In an update (`Standing.vetted`) a new one counts as ready, for case 3 and for the next to be replaced, when it has answered.
       c. neither: it stays as it is and serves, and Wait says so; a restart is given up. Nor is it replaced by what has
          failed for good: a change that cannot start stops no replica that serves
       While room is made for one more, or replicas of the model leave some, it waits for that, and Wait says so. A restart
       in place begins with b. One that has failed and is outdated or to restart is renewed in place, as long as replicas are
       missing
    5. fewer replicas than wanted: Start one where `place` says, not where the same has failed for good; else Wait
    6. a replica that failed, or keeps coming back from failures, or whose node is not heard: Wait with the reason.
       Starting a dead engine again is the agent's work, not ours
    7. a replica over several nodes that has lost a node or a part, before 3: see `regroup`
    """
    draft = Draft(world, now)
    _remove(draft)  # 1
    _release(draft)
    for replica in draft.board.replicas:  # 2, of models that are gone
        if draft.board.model(replica.model_id) is None and replica.run:
            draft.do(Stop(replica_id=replica.id, reason="its model is gone"))
    order = _order(world.models)
    moments: list[Moment] = []
    while len(moments) < len(order):
        turn, done = order[len(moments)], len(moments)
        moments.append(draft.moment())
        model = draft.board.model(turn.model_id)  # others may have changed what is remembered of it
        if model is not None:
            _more(draft, model) if turn.more else _model(draft, model)
        _again(draft, islice(order, done), moments[-1])
        _undo(draft, moments)
    return draft.plan()


@dataclass(frozen=True)
class _Turn:
    """`more`: a second one, for what load asks for beyond what the model shall have without."""

    model_id: str
    more: bool


def _order(models: Iterable[ModelView]) -> list[_Turn]:
    """Among equals that run on demand, whoever was asked for first: else the last by name could starve."""
    found = []
    for model in models:
        asked = model.standing.asked_at if model.on_demand else None
        place = (-max((item.priority for item in model.profiles), default=0), asked or 0.0, model.name)
        found.append(((-model.klass, False, *place), _Turn(model.id, more=False)))
        found.append(((-model.klass, True, *place), _Turn(model.id, more=True)))
    return [turn for _, turn in sorted(found, key=lambda item: item[0])]


def _again(draft: Draft, turns: Iterable[_Turn], since: Moment) -> None:
    """Case 5 once more for models that have had their turn in this plan and of which room was taken since then, as a
    guarantee may have it of any class: else one of a lower class, whose turn comes, takes their next place. Where room is
    kept no longer, for all of them: more of it may be left than whoever took it needs."""
    taken, freed = since.taken, since.freed
    if taken == len(draft.taken) and freed == draft.freed:
        return  # nearly always: who had their turn before is not even listed
    before = [turn.model_id for turn in turns]
    while taken < len(draft.taken) or freed < draft.freed:
        whose = {item.loser for item in draft.taken[taken:]} if freed == draft.freed else set(before)
        taken, freed = len(draft.taken), draft.freed
        for model in [draft.board.model(key) for key in before if key in whose]:
            if model is not None and model.standing.parked_at is None:
                starting.missing(draft, model)


def _undo(draft: Draft, moments: list[Moment]) -> None:
    """Where this plan made room for a model in vain (`Draft.in_vain`) it goes on from before, and those who had to leave
    that room are not asked for that model again.

    A ring of three is enough for that: the first takes the second's room by its class, the second has it back from the third
    as its scope is guaranteed it, and the third, which may have what load asks for, takes what was kept for the first. All
    three would stop and start for ever, and each be where it was.
    """
    model_id = draft.in_vain(moments[-1].taken)
    if not model_id or len(draft.taker.in_vain) >= TRIED:
        return
    mine = [number for number, item in enumerate(draft.taken) if item.taker == model_id]
    draft.taker.in_vain |= {(model_id, draft.taken[number].loser) for number in mine}
    while moments[-1].taken > mine[0]:
        moments.pop()
    draft.back(moments.pop())


def _remove(draft: Draft) -> None:
    """Case 1."""
    for replica in draft.board.replicas:
        if draft.board.node(replica.node_id) is None:
            draft.do(Remove(replica_id=replica.id, reason="its node was removed"))
        elif not replica.run and replica.state is ReplicaState.STOPPED:
            draft.do(Remove(replica_id=replica.id, reason="it has stopped"))


def _release(draft: Draft) -> None:
    """Room that is kept for nothing is given back before anything is placed."""
    for claim in draft.board.claims:
        model = draft.board.model(claim.model_id)
        there = running(draft.board, claim.model_id)
        enough = model is not None and len(there) >= model.target
        enough = enough and model is not None and not any(old(draft.board, model, item) for item in there)
        why = ended(draft.board, claim, draft.now, enough=enough)
        if why:
            draft.do(Release(model_id=claim.model_id, reason=why))


def _model(draft: Draft, model: ModelView) -> None:
    standing, why = standing_now(draft.board, model, draft.now)
    if standing != model.standing:
        draft.do(Remember(model_id=model.id, before=model.standing, standing=standing, reason=why))
        model = draft.board.model(model.id) or model
    if not model.target or not model.profiles:  # 2
        reason = "the model wants no replica" if model.profiles else "the model has no enabled profile"
        reason = "a provider answers for the model" if model.external else reason
        reason = reason if model.enabled else "the model is disabled"
        for replica in draft.board.of_model(model.id):
            if replica.run:
                draft.do(Stop(replica_id=replica.id, reason=reason))
        if model.target:
            starting.missing(draft, model)  # says what is missing: a profile
        return
    if model.standing.parked_at is not None:
        _park(draft, model)
    regroup.regroup(draft, model)  # 7
    surplus.surplus(draft, model)  # 3
    replacing.replace(draft, model)  # 4
    waits.troubled(draft, model, starting.missing(draft, model, at_most=model.least))  # 5, 6


def _more(draft: Draft, model: ModelView) -> None:
    """Case 5, for what load asks for."""
    if model.target > model.least and model.profiles and len(running(draft.board, model.id)) >= model.least:
        starting.missing(draft, model)


def _park(draft: Draft, model: ModelView) -> None:
    """Case 2 of a parked model. One whose node is lost is left alone: it may prove to work when that is back."""
    for replica in draft.board.of_model(model.id):
        if replica.run and draft.board.state(replica) not in (ReplicaState.READY, ReplicaState.LOST):
            text = f"the model is parked after {model.standing.failures} failed starts in a row"
            draft.do(Stop(replica_id=replica.id, reason=text))
