"""Wanted against seen: what to do now. The same world and time give the same plan.

Each case has its file: `surplus` (3), `replacing` (4), `starting` (5), `waits` (6).
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster.domain import replacing, starting, surplus, waits
from cluster.domain.claims import ended
from cluster.domain.draft import Draft
from cluster.domain.plan import Plan, Release, Remember, Remove, Stop, old, running
from cluster.domain.standings import standing_now
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, World


def reconcile(world: World, now: float) -> Plan:
    """The plan for this moment. Models in order: highest class first, then highest priority, then those asked
    for on demand by since when, then by name. One of which a later one takes room is looked at again at once.

    1. a replica of which nothing is left, or whose node was removed: Remove
    2. a model that is disabled, gone, external, wants none or has no enabled profile: Stop its replicas; one that is
       parked: those that are not ready
    3. more replicas than wanted: Stop the surplus, the least useful first. Lost and failed ones count for nothing; they
       are told to stop when enough others are ready, so a node that returns after its replicas were replaced has its
       own stopped, and one that returns before keeps them. Of the failed ones while old replicas are being replaced, none
    4. an old replica, outdated (profile or weights changed) or to move (its node or card is drained, its profile may not
       run there) or to restart, is replaced, one at a time and never below the wanted number of running ones if it can be
       helped:
       a. there is room for one more: Start the new one; when it is ready, case 3 stops the old one
       b. there is not, and it may stay on its node: Renew it in place, stop then start; with a single replica the model
          is away meanwhile
       c. neither: it stays as it is and serves, and Wait says so; a restart is given up. Nor is it replaced by what has
          failed for good: a change that cannot start stops no replica that serves
       While room is made for one more, it waits for that. A restart in place begins with b. One that has failed and is
       outdated or to restart is renewed in place, as long as replicas are missing
    5. fewer replicas than wanted: Start one where `place` says, not where the same has failed for good; else Wait
    6. a replica that failed, or keeps coming back from failures, or whose node is not heard: Wait with the reason.
       Starting a dead engine again is the agent's work, not ours
    """
    draft = Draft(world, now)
    _remove(draft)  # 1
    _release(draft)
    for replica in draft.board.replicas:  # 2, of models that are gone
        if draft.board.model(replica.model_id) is None and replica.run:
            draft.do(Stop(replica_id=replica.id, reason="its model is gone"))
    before: list[str] = []
    for model in sorted(world.models, key=_order):
        since = len(draft.ops)
        _model(draft, draft.board.model(model.id) or model)  # others may have changed what is remembered of it
        _again(draft, before, since)
        before.append(model.id)
    return draft.plan()


def _order(model: ModelView) -> tuple[int, int, float, str]:
    """Among equals that run on demand, whoever was asked for first: else the last by name could starve."""
    asked = model.standing.asked_at if model.on_demand else None
    return (-model.klass, -max((item.priority for item in model.profiles), default=0), asked or 0.0, model.name)


def _again(draft: Draft, before: Iterable[str], since: int) -> None:
    """Case 5 once more for models that have had their turn in this plan and of which room was taken by the operations from
    `since` on, as a guarantee may have it of any class: else one of a lower class, whose turn comes, takes their next place."""
    while since < len(draft.ops):
        taken = [op.replica_id for op in draft.ops[since:] if isinstance(op, Stop) and op.for_model]
        since = len(draft.ops)
        whose = {replica.model_id for key in taken if (replica := draft.board.replica(key)) is not None}
        for model in [draft.board.model(key) for key in before if key in whose]:
            if model is not None and model.standing.parked_at is None:
                starting.missing(draft, model)


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
    surplus.surplus(draft, model)  # 3
    replacing.replace(draft, model)  # 4
    nowhere = starting.missing(draft, model)  # 5
    waits.troubled(draft, model, nowhere)  # 6


def _park(draft: Draft, model: ModelView) -> None:
    """Case 2 of a parked model. One whose node is lost is left alone: it may prove to work when that is back."""
    for replica in draft.board.of_model(model.id):
        if replica.run and draft.board.state(replica) not in (ReplicaState.READY, ReplicaState.LOST):
            text = f"the model is parked after {model.standing.failures} failed starts in a row"
            draft.do(Stop(replica_id=replica.id, reason=text))
