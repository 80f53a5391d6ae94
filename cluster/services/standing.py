"""Orders about a model that runs: restart it, try it again, how many of it there shall be."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction
from django.db.models import F
from django.dispatch import receiver

from catalog.models import Model
from catalog.models.served import MAX_REPLICAS
from catalog.services import events, rows, served
from catalog.signals import model_changing
from cluster import selectors, signals
from cluster.domain.headroom import placeable
from cluster.domain.parking import unparked
from cluster.domain.place import ranks
from cluster.domain.plan import Keep, Plan
from cluster.domain.reconcile import reconcile
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, ReplicaView, World
from cluster.domain.waits import parked_words
from cluster.models import ModelStanding
from cluster.selectors.model import model_view, replicas_now
from cluster.services.locks import plan_lock
from llmgw_site.lib.errors import Kind, Refused


def restart(*, actor: str, model: Model, in_place: bool = False, why: str = "") -> int:
    """Have each replica of a model replaced by a new one, one after the other. How many there are to replace.

    A new one is started beside the old, which then drains; where only the old one is in the way it stops first;
    `in_place`: it stops first in any case. Raises Refused `model_parked` or `nothing_to_restart`.
    """
    with plan_lock():
        row = rows.lock(model)  # who deletes it meanwhile comes before or after this, not in between
        view, replicas = _held(row, selectors.database_now())
        if view.standing.parked_at is not None:
            raise Refused(Kind.CONFLICT, "model_parked", parked_words(view))
        names = tuple(sorted(item.name_now for item, _ in replicas if item.run))
        if not names or not view.target:
            text = f"no replica of {view.name} runs, so there is nothing to restart"
            raise Refused(Kind.CONFLICT, "nothing_to_restart", text)
        _write(view, restarting=list(names), in_place=in_place)
        how = "in place, " if in_place else ""
        what = f"{len(names)} replicas, one after the other" if len(names) > 1 else "1 replica"
        text = f"restart of {view.name} asked for: {how}{what}"
        _tell(actor, "model_restart", view, text, why)
    return len(names)


def retry(*, actor: str, model: Model, why: str = "") -> None:
    """Try a model again that is parked or fails to start. Raises Refused `nothing_to_retry`.

    1. parked: no more, and what failed is forgotten; on demand it is awake as if asked for, so that the outcome is seen
    2. replicas that failed, or that their node tries again after a pause: started anew at once
    """
    with plan_lock():
        row = rows.lock(model)  # who deletes it meanwhile comes before or after this, not in between
        now = selectors.database_now()
        view, replicas = _held(row, now)
        stuck = (ReplicaState.FAILED, ReplicaState.BACKOFF)
        names = tuple(item.name_now for item, state in replicas if item.run and state in stuck)
        was_parked = view.standing.parked_at is not None
        if not names and not was_parked:
            text = f"{view.name} is not parked, and no replica of it fails to start: there is nothing to try again"
            raise Refused(Kind.CONFLICT, "nothing_to_retry", text)
        fresh = unparked(view.standing)
        _write(
            view,
            failures=0,
            parked_at=fresh.parked_at,
            parked_digest=fresh.parked_digest,
            parked_code=fresh.parked_code,
            parked_message=fresh.parked_message,
            asked_at=now if view.on_demand else None,
            restarting=sorted({*view.standing.restarting, *names}),
        )
        told = f"{view.name} was parked and is tried again" if was_parked else f"{view.name} is tried again at once"
        _tell(actor, "model_retry", view, told, why)


@dataclass(frozen=True)
class Sized:
    """What a model was set to, and the tokens a second that one replica of it was measured to give."""

    replicas: int
    most: int | None
    each: float


def scale(*, actor: str, model: Model, why: str = "", **changes: Any) -> Model:
    """Set how many replicas a model has at least and at most, and when one on demand rests: `replicas`,
    `max_replicas`, `rest_after`, each of them optional.

    Raises Refused `min_not_placeable`, see `vet_size`.
    """
    if "replicas" in changes and "max_replicas" not in changes and model.max_replicas is not None:
        changes["max_replicas"] = max(model.max_replicas, changes["replicas"])
    return served.update(actor=actor, model=model, why=why, **changes)


@receiver(model_changing)
def vet_size(*, model: Model, asked: Model, **kwargs: Any) -> None:
    """Refuse a larger minimum that placement cannot meet, whoever sets it and however: `min_not_placeable`, with how many
    replicas find a place now, or could be given one, and why not more."""
    least = asked.replicas
    if not asked.enabled or asked.external or least <= model.replicas:
        return
    found, wait = _placed(asked)
    if wait:
        wanted = "1 replica" if least == 1 else f"{least} replicas"
        text = f"{model.name} cannot have {wanted} now, there is a place for {found or 'none'}: {wait}"
        raise Refused(
            Kind.CONFLICT, "min_not_placeable", text, param="replicas", extra={"placeable": found, "why": wait}
        )


def target(*, actor: str, model: Model, tps: float, why: str = "") -> Sized:
    """Size a model for so many tokens a second, by what one replica of it was measured to give.

    Raises Refused `not_measured`, or `min_not_placeable` with how many replicas find a place.
    """
    view = _now(model)[1]
    each = _each(view)
    if not each:
        text = (
            f"nobody has measured how many tokens a second a replica of {view.name} gives: measure it (`llmgw bench {view.name}`), or say it "
            f"(measured_tps of its profile, `llmgw model target {view.name} --tps {tps:.10g} --each N`)"
        )
        raise Refused(Kind.CONFLICT, "not_measured", text)
    replicas = max(1, math.ceil(tps / each))
    if replicas > MAX_REPLICAS:
        text = f"{tps:g} tokens/s take {replicas} replicas of {each:g} each, and a model has {MAX_REPLICAS} at most: aim lower"
        raise Refused(Kind.CONFLICT, "min_not_placeable", text, param="tps")
    try:
        row = scale(actor=actor, model=model, replicas=replicas, why=why or f"sized for {tps:g} tokens/s")
    except Refused as refused:
        if refused.code != "min_not_placeable":
            raise
        found = refused.extra or {}
        text = f"{tps:g} tokens/s take {replicas} replicas of {each:g} each, and there is a place for "
        text += f"{found.get('placeable') or 'none'}: {found.get('why', '')}"
        raise Refused(refused.kind, refused.code, text, param="tps", extra=refused.extra) from None
    return Sized(replicas=row.replicas, most=row.max_replicas, each=each)


def _each(view: ModelView) -> float:
    """Tokens a second of one replica by the first profile that was measured."""
    for equals in ranks(view.profiles):
        for profile in equals:
            if profile.rate > 0:
                return profile.rate * (profile.cards * profile.span or profile.threads or 1)
    return 0.0


def _placed(row: Model) -> tuple[int, str]:
    """How many replicas a model could be given if it were to be as this row says, and why not all of them: what the
    reconciler would have at once, else also those for which others would give way, which it does one after the other.

    Decided without any lock: what is written later is an order, and the reconciler does what it can. A node that has not
    said yet whether it has the weights is none that has not: a model is often sized in the moment it is added.
    """
    world, view = _now(row, waits=False)
    asked = replace(view, enabled=True, base=row.replicas, most=row.max_replicas)
    world = replace(world, models=tuple(asked if item.id == view.id else item for item in world.models))
    now = selectors.database_now()
    plan: Plan = reconcile(world, now)
    waits = any(item.model_id == view.id and not item.replica_id for item in plan.waits)
    keeps = any(isinstance(op, Keep) and op.claim.model_id == view.id for op in plan.ops)
    if not waits and not keeps:
        return asked.base, ""
    return placeable(world, asked, now, most=asked.base)


def _now(model: Model, *, waits: bool = True) -> tuple[World, ModelView]:
    world = selectors.world(waits=waits)
    view = world.model(model.pk)
    if view is None:
        raise Refused(Kind.NOT_FOUND, "not_found", "This model was removed meanwhile.")
    return world, view


def _held(row: Model, now: float) -> tuple[ModelView, list[tuple[ReplicaView, ReplicaState]]]:
    """A model and its replicas, read under the plan lock: of the cluster no more, since nodes and planners wait meanwhile."""
    standing = ModelStanding.objects.filter(model_id=row.pk).first()
    return model_view(row, standing), replicas_now(row.pk, now)


def _write(view: ModelView, **values: Any) -> None:
    """Under the plan lock: no plan that was decided before is committed after it without a look at this."""
    ModelStanding.objects.update_or_create(model_id=view.id, defaults=values)
    ModelStanding.objects.filter(model_id=view.id).update(version=F("version") + 1)
    transaction.on_commit(lambda: signals.model_asked.send_robust(sender=Model, model_id=view.id))


def _tell(actor: str, kind: str, view: ModelView, text: str, why: str) -> None:
    events.append(actor=actor, kind=kind, subject_kind="model", subject_id=view.id, message=text, why=why)
