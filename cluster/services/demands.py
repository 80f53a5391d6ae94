"""Orders that requests give: a model that nobody serves shall come up. What gateways are told of it stands in `ModelStanding`."""

from __future__ import annotations

from dataclasses import replace

from django.db import transaction
from django.db.models import F, Q

from catalog.models import Model
from cluster import signals
from cluster.domain import demand
from cluster.domain.demand import Found, Stage, Verdict
from cluster.domain.explain import public_words
from cluster.domain.plan import Plan, Wait
from cluster.domain.types import ModelView, World
from cluster.domain.waits import ASKING_NODES, ROOM_COMES, WAITING_FOR_TURN, parked_words
from cluster.models import ModelStanding
from cluster.selectors.model import model_view, replicas_now
from cluster.services.locks import plan_lock
from cluster.wire import Demand, DemandAnswer
from llmgw_site.lib.errors import Kind, Refused


def asked(order: Demand, *, now: float) -> DemandAnswer:
    """Requests wait for a model: begin an attempt where a new one comes, and say how the one that they wait for stands.

    `now`: Unix time of the database. Raises Refused `model_not_found`.
    A model that is asked for counts as used, so it does not come to rest while it loads; once the last waiting request
    has gone it no longer does.
    """
    row = Model.objects.filter(name=order.model).first()
    if row is None:
        raise _unknown(order.model)
    if order.attempt is None:
        return _begin(row, now)
    model, found = _view(row, ModelStanding.objects.filter(model_id=row.pk).first(), now)
    if demand.at_rest(model):  # it came to rest just when that attempt began
        return _begin(row, now)
    verdict = _verdict(model, found, order.attempt, now)
    if not verdict.over:
        _used(model, now)
    return _answer(verdict, order.attempt)


def _unknown(name: str) -> Refused:
    return Refused(Kind.NOT_FOUND, "model_not_found", f"there is no model {name[:200]!r}", param="model")


def _begin(row: Model, now: float) -> DemandAnswer:
    """A request has come that nobody has spoken for yet. What was answered a moment ago takes no lock."""
    model, found = _view(row, ModelStanding.objects.filter(model_id=row.pk).first(), now)
    last = found.attempt_at
    if last is not None and not demand.at_rest(model):
        verdict = _verdict(model, found, last, now)
        if verdict.over and demand.attempt_for(model, found, verdict.stage, now) == last:
            return _answer(verdict, last)
    with plan_lock():  # a plan that remembers something of the model must not take the order back
        if not Model.objects.select_for_update(no_key=True).filter(pk=row.pk).values_list("pk"):  # deleted meanwhile
            raise _unknown(row.name)
        standing = ModelStanding.objects.filter(model_id=row.pk).first()
        model, found = _view(row, standing, now)
        last = now if found.attempt_at is None else found.attempt_at
        verdict = _verdict(model, found, last, now)
        if verdict.stage in (Stage.UNWANTED, Stage.PARKED):
            return _answer(verdict, last)
        attempt = demand.attempt_for(model, found, verdict.stage, now)
        fresh = attempt != found.attempt_at
        values: dict[str, float] = {"attempt_at": attempt} if fresh else {}
        if not verdict.over or fresh:
            values["used_at"] = now
        if demand.at_rest(model):
            values["asked_at"] = now
        if values:
            ModelStanding.objects.update_or_create(model_id=row.pk, defaults=values)
            ModelStanding.objects.filter(model_id=row.pk).update(version=F("version") + 1)
        if fresh:
            model = replace(model, standing=replace(model.standing, asked_at=now))
            verdict = _verdict(model, replace(found, attempt_at=attempt), attempt, now)
            transaction.on_commit(lambda: signals.model_asked.send_robust(sender=Model, model_id=row.pk))
    return _answer(verdict, attempt)


def looked(*, world: World, plan: Plan, now: float) -> None:
    """Keep what a look of the reconciler found for models that requests wait for and that have no place.

    `now`: when the look began; attempts before that are answered by it. Written once for each attempt.
    """
    reasons: dict[str, Wait] = {}
    for wait in plan.waits:
        model = world.model(wait.model_id)
        if model is not None and model.target:
            known = reasons.get(model.id)
            if wait.code in (WAITING_FOR_TURN, ASKING_NODES, ROOM_COMES):  # who waits for it may go on waiting
                continue
            if known is None or (known.replica_id and not wait.replica_id):
                reasons[model.id] = wait
    if not reasons:
        return
    open_ones = ModelStanding.objects.filter(
        Q(why_at__isnull=True) | Q(why_at__lt=F("attempt_at")), attempt_at__lte=now
    )
    for model_id in open_ones.filter(model_id__in=reasons).values_list("model_id", flat=True):
        wait = reasons[model_id]
        ModelStanding.objects.filter(model_id=model_id).update(
            why_at=now, why_code=wait.code[:64], why_message=public_words(wait.code, wait.message)
        )


def _used(model: ModelView, now: float) -> None:
    """Not each second: every change of a standing may put a plan off that was decided from the one before."""
    used = model.standing.used_at
    if used is None or now - used >= demand.USED_EVERY:
        ModelStanding.objects.filter(model_id=model.id).update(used_at=now, version=F("version") + 1)


def _view(row: Model, standing: ModelStanding | None, now: float) -> tuple[ModelView, Found]:
    model = model_view(row, standing)
    if standing is None:
        return model, Found()
    return model, Found(
        attempt_at=standing.attempt_at,
        why_at=standing.why_at,
        code=standing.why_code,
        message=standing.why_message,
        claimed=bool(standing.claim) and standing.claim_until > now,
        parked=parked_words(model) if standing.parked_at is not None else "",
    )


def _verdict(model: ModelView, found: Found, attempt: float, now: float) -> Verdict:
    replicas = replicas_now(model.id, now)
    verdict = demand.verdict(model, replicas, found, attempt=attempt)
    if verdict.stage is Stage.STARTING:
        return replace(verdict, message=demand.progress(replicas, now))
    return verdict


def _answer(verdict: Verdict, attempt: float) -> DemandAnswer:
    return DemandAnswer(state=verdict.stage.value, attempt=attempt, code=verdict.code, message=verdict.message)
