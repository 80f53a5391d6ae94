"""The steps of an update and of the way back: what follows, fetch it beside the old, swap, see each new replica answer.

The reconciler replaces the replicas; an old one goes when a new one has answered (`cluster.services.updates`). A job that does not
come to its good end leaves the model as it was.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from catalog import selectors as catalog
from catalog.domain.cards import RepoCard
from catalog.domain.facts import facts_from_dict
from catalog.services import origins
from cluster import selectors
from cluster.domain.rollout import Close, JobView
from cluster.domain.states import JobState, ReplicaState, StepState
from cluster.domain.types import NOTHING_STARTED
from cluster.selectors import mirror as mirrored
from cluster.services import updates
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import format_bytes
from workers import smoke
from workers.jobs import Context, Piece
from workers.jobs import Kind as JobKind
from workers.tasks import serve_fetched

ATTEMPTS = 3
"""Starts of a new replica's engine after which the job gives up."""
SILENT = 60.0
"""Seconds in which a new replica that is ready has to answer."""
NO_ROOM = 120.0
"""Seconds for which "the new one fits nowhere" stands until the job believes it: nodes may just be reporting in."""
LEAVE = 60.0
"""Seconds for which the job waits for nodes to say that their old replicas take no requests any more: one may have fallen silent."""
ASK = 15.0
"""Seconds that one look may spend on asking."""


@serve_fetched.patient
def registry(context: Context) -> Piece:
    """Whether the files of the model changed at their origin; else the job is done here."""
    model = _model(context.job)
    found = origins.follow(model)
    if found is None:
        row = origins.known(model)
        where = f"{row.repository} at {row.commit[:12]}" if row else "its origin"
        text = f"nothing changed: the files are as they are in {where}"
        return Piece(done=True, detail=text, end=Close(JobState.DONE, "update_not_needed", text))
    return newer(found.seen.card, found.changed, model_id=model.pk, before=updates.served_now(model))


def newer(card: RepoCard, changed: Sequence[str], **more: Any) -> Piece:
    """The end of the first step: files that are others there."""
    data = {"repository": card.id, "commit": card.commit, "changed": list(changed), **more}
    return Piece(done=True, detail=f"{card.id} at {card.commit[:12]}: {', '.join(changed[:5])}", data=data)


@serve_fetched.patient
def plan(context: Context) -> Piece:
    """The files that follow, and their shape; what the step `mirror` makes a version of."""
    job = context.job
    model = _model(job)
    found = origins.follow(model, job.found("registry")["commit"])
    if found is None:
        text = f"the files of {model.name} went back to what they were while the job ran"
        raise Refused(Kind.CONFLICT, "update_overtaken", text)
    data = serve_fetched.planned(found.files, found.facts, projector=found.projector)
    size = sum(item["size"] for item in data["files"])
    return Piece(done=True, detail=f"{found.files.first.path}, {format_bytes(size)}", data=data)


def mirror(context: Context) -> Piece:
    """The new files beside the old ones, for as long as the model is there."""
    _model(context.job)
    return serve_fetched.mirror(context)


def check(context: Context) -> Piece:
    """An engine here knows the architecture of the new files."""
    job = context.job
    facts = facts_from_dict(job.found("plan")["facts"])
    engines = sorted({item.engine for item in _model(job).profiles.all() if item.enabled})
    for engine in engines:
        serve_fetched.known(engine, facts)
    return Piece(
        done=True, detail=f"{facts.architecture or 'the architecture'} is known to {', '.join(engines) or 'nobody yet'}"
    )


def back(context: Context) -> Piece:
    """What the model served before its last update, and that somebody still has it."""
    model = _model(context.job)
    updates.may_go_back(model)
    state = mirrored.version_state(model.previous_id)
    if not state.whole:
        text = f"no node that is heard has {model.previous.name} whole, {format_bytes(state.there)} of {format_bytes(state.size)} are there"
        raise Refused(Kind.UNAVAILABLE, "previous_not_held", text)
    data = {"model_id": model.pk, "before": updates.served_now(model), "version_id": model.previous_id}
    return Piece(done=True, detail=f"{model.previous.name}, whole on {', '.join(state.holders[:3])}", data=data)


def replace(context: Context) -> Piece:
    """Swap, then until every replica is a new one that has answered. Raises Refused where a new one fails to start or to answer."""
    job = context.job
    model, version_id, before = _model(job), _version_id(job), _before(job)
    data: dict[str, Any] = {"began": time.time(), **context.data}
    if model.version_id != version_id:
        version = catalog.versions().filter(id=version_id).first()
        if version is None:
            raise Refused(
                Kind.CONFLICT, "version_unknown", "the new weights were removed while the job ran: begin anew"
            )
        updates.swap(actor=job.actor, model=model, version=version, before=before, why=f"job {job.id}")
        return Piece(progress=0.0, detail=f"{model.name} is to serve {version.name}", data=data, again_in=0.5)
    return replacing(job, model, data, name=model.name)


def replacing(job: JobView, model: Any, data: dict[str, Any], *, name: str) -> Piece:
    """How far the replicas of a model are replaced by new ones that have answered; `name`: of the model or the adapter that each is asked
    for. Raises Refused where a new one fails to start or to answer."""
    now = selectors.database_now()
    world = selectors.world(now)
    decided, statuses = selectors.statuses(world, now)
    view, status = world.model(model.pk), statuses.get(model.pk)
    if view is None or status is None:
        raise _gone(job)
    digests = {item.digest for item in view.profiles}
    rows = [row for row in selectors.replicas_of(model.pk) if row.run]
    new, old = [row for row in rows if row.digest in digests], [row for row in rows if row.digest not in digests]
    for row in new:
        _vet(row)
    vetted = set(view.standing.vetted or ())
    until = time.monotonic() + ASK
    for row in new:
        if row.state == ReplicaState.READY and _name(row) not in vetted and time.monotonic() < until:
            _ask(model, row, data, name)
            vetted |= {_name(row)} if _name(row) in data.get("answers", {}) else set()
    waits = [item for item in decided.waits if item.model_id == model.pk and item.code == "update_pending"]
    data["no_room"] = data.get("no_room") or now if waits and not new else None
    if data["no_room"] and now - data["no_room"] > NO_ROOM:
        raise Refused(Kind.UNAVAILABLE, "update_pending", waits[0].message)
    if view.standing.parked_at is not None:
        raise Refused(Kind.UPSTREAM, "model_parked", status.reason)
    answered = sum(_name(row) in vetted for row in new)
    if not old and answered == len(new) and (new or not view.target):
        data.setdefault("left_at", now)
        asked = selectors.still_asked(model.pk) if now - data["left_at"] < LEAVE else 0
        if asked:
            text = f"{answered} of {answered} replaced, {asked} old one{'s' if asked != 1 else ''} may still be asked"
            return Piece(progress=0.99, detail=text, data=data, again_in=0.5)
        said = f"{answered} replica{'s' if answered != 1 else ''} replaced, each has answered"
        return Piece(
            done=True, detail=said if new else "no replica runs: it is loaded with the next request", data=data
        )
    total = max(len(old), answered, view.target, 1)  # an old one that drains beside the one in its place is none more
    text = f"{answered} of {total} replaced" + (
        f", {_doing(new, vetted)}" if new else f": {status.reason}" if status.reason else ""
    )
    return Piece(progress=min(0.99, answered / total), detail=text, data=data, again_in=0.5)


def _vet(row: Any) -> None:
    """A new replica that does not start ends the update. What could not even begin is looked at again by its node."""
    failed = row.state == ReplicaState.FAILED
    tried = row.state == ReplicaState.BACKOFF and row.attempt >= ATTEMPTS and row.code not in NOTHING_STARTED
    if failed or tried:
        why = row.message.rstrip(".") or "no reason given"
        text = f"the new version does not start on node {row.node.name}: {why}; its last words are with the replica {row.id}"
        raise Refused(
            Kind.UPSTREAM, row.code or "engine_failed", text, extra={"replica_id": row.id, "log_tail": row.log_tail}
        )


def _ask(model: Any, row: Any, data: dict[str, Any], asked: str) -> None:
    """Ask this very replica something, through its node; note that it answered."""
    name = _name(row)
    since = data.setdefault("silent", {}).setdefault(name, time.time())
    try:
        answer = smoke.ask(model=asked, key="", embeddings=model.embeddings, node=row.node, replica=row.id)
    except smoke.NotYet as reason:
        if time.time() - since > SILENT:
            text = f"the new version is loaded on node {row.node.name} and does not answer: {reason}"
            raise Refused(Kind.UPSTREAM, "smoke_test_failed", text, extra={"replica_id": row.id}) from None
        return
    updates.answered(model=model, name=name)
    data.setdefault("answers", {})[name] = {"text": answer.text[:200], "tokens_per_second": answer.tokens_per_second}


def _doing(new: list[Any], vetted: set[str]) -> str:
    row = next((item for item in new if _name(item) not in vetted), None)
    if row is None:
        return "old ones finish their requests"
    told = f" ({row.message})" if row.message else ""
    return f"a new one on {row.node.name} is {row.state}{told}"


def _name(row: Any) -> str:
    """`cluster.domain.types.ReplicaView.name_now`."""
    return f"{row.id}:{row.generation}"


def _model(job: JobView) -> Any:
    model_id = _model_id(job)
    rows = catalog.models_with_profiles().select_related("version", "previous")
    model = (rows.filter(id=model_id) if model_id else rows.filter(name=str(job.args["name"]))).first()
    if model is None:
        raise _gone(job)
    return model


def _gone(job: JobView) -> Refused:
    return Refused(Kind.CONFLICT, "model_not_wanted", f"the model {job.args['name']} was removed meanwhile")


def _first(job: JobView) -> Any:
    """What the first step found: of an update `registry`, of a rollback `back`."""
    return job.found("registry") or job.found("back")


def _model_id(job: JobView) -> str:
    return str(_first(job).get("model_id") or "")


def _before(job: JobView) -> dict[str, Any]:
    return dict(_first(job)["before"])


def _version_id(job: JobView) -> str:
    return str(job.found("back").get("version_id") or job.found("mirror").get("version_id") or "")


def result(job: JobView) -> dict[str, Any]:
    """What the job came to."""
    if not _model_id(job):
        return {"model": job.args["name"], "updated": False}
    answers = list(job.found("replace").get("answers", {}).values())
    return {"model": job.args["name"], "updated": True, **came_to(job, _version_id(job)), "answers": answers}


def came_to(job: JobView, version_id: str) -> dict[str, Any]:
    """The version that is served now, its commit where it has one, and, of an update, the files that changed."""
    found, version = job.found("registry"), catalog.versions().filter(id=version_id).first()
    commit = found.get("commit") or (version.commit if version is not None else "")
    told = {"version_id": version_id, "commit": commit, "changed": found.get("changed", [])}
    return {name: value for name, value in told.items() if value}


def cleanup(job: JobView) -> None:
    """A job that did not come to its good end leaves the model as it was; one that was cancelled also leaves no version that it began."""
    model_id, version_id = _model_id(job), _version_id(job)
    if not model_id:
        return
    replaced = next((step.state for step in job.steps if step.name == "replace"), StepState.WAITING)
    model = catalog.models_with_profiles().filter(id=model_id).first()
    if model is not None:
        try:
            if replaced is not StepState.DONE and version_id:
                updates.swap_back(
                    actor=job.actor,
                    model=model,
                    version_id=version_id,
                    before=_before(job),
                    why=f"job {job.id} did not succeed",
                )
        finally:  # also where it cannot serve what it served before: else its replicas would never be replaced again
            updates.over(model_id=model_id)
    if job.cancel_requested:
        serve_fetched.forget_version(job)
    else:
        serve_fetched.forget_nothing(job)


UPDATE = JobKind(
    steps={"registry": registry, "plan": plan, "mirror": mirror, "check": check, "replace": replace},
    result=result,
    cleanup=cleanup,
)
ROLLBACK = JobKind(steps={"back": back, "replace": replace}, result=result, cleanup=cleanup)
