"""The steps of an adapter's update and of its way back: as of a model's (`workers.tasks.update`), with its file in place of the weights."""

from __future__ import annotations

import time
from typing import Any

from catalog import selectors as catalog
from catalog.services import adapter_updates
from cluster.domain.rollout import Close, JobView
from cluster.domain.states import JobState, StepState
from cluster.selectors import mirror as mirrored
from cluster.services import updates
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import format_bytes
from workers.jobs import Context, Piece
from workers.jobs import Kind as JobKind
from workers.tasks import serve_fetched
from workers.tasks.update import came_to, newer, replacing


@serve_fetched.patient
def registry(context: Context) -> Piece:
    """Whether the adapter's file changed at its origin, and is still an adapter of the model; else the job is done here, or has failed."""
    adapter = _adapter(context.job)
    found = adapter_updates.follow(adapter)
    if found is None:
        origin = adapter_updates.needed(adapter)
        text = f"nothing changed: the file is as it is in {origin.repository} at {origin.commit[:12]}"
        return Piece(done=True, detail=text, end=Close(JobState.DONE, "update_not_needed", text))
    return newer(found.seen.card, found.changed, before=updates.adapter_now(adapter))


@serve_fetched.patient
def plan(context: Context) -> Piece:
    """The file that follows, read at the commit that the first step found; what the step `mirror` makes a version of."""
    job = context.job
    adapter = _adapter(job)
    found = adapter_updates.follow(adapter, job.found("registry")["commit"])
    if found is None:
        text = f"the file of {adapter.name} went back to what it was while the job ran"
        raise Refused(Kind.CONFLICT, "update_overtaken", text)
    data = {**serve_fetched.planned(found.files, found.as_version), "adapter": found.facts.as_dict()}
    detail = f"{found.files.first.path}, {format_bytes(found.files.size)}, rank {found.facts.rank}"
    return Piece(done=True, detail=detail, data=data)


def mirror(context: Context) -> Piece:
    """The new file beside the old one, for as long as the adapter is there."""
    _adapter(context.job)
    return serve_fetched.mirror(context)


def back(context: Context) -> Piece:
    """What the adapter was before its last update, and that somebody still has it."""
    adapter = _adapter(context.job)
    updates.may_go_back(adapter)
    state = mirrored.version_state(adapter.previous_id)
    if not state.whole:
        text = f"no node that is heard has {adapter.previous.name} whole"
        raise Refused(Kind.UNAVAILABLE, "previous_not_held", text)
    data = {"before": updates.adapter_now(adapter), "version_id": adapter.previous_id, "adapter": adapter.former_facts}
    return Piece(done=True, detail=f"{adapter.previous.name}, whole on {', '.join(state.holders[:3])}", data=data)


def replace(context: Context) -> Piece:
    """Swap, then until every replica of the model is a new one that has answered for the adapter."""
    job = context.job
    adapter, version_id = _adapter(job), _version_id(job)
    data: dict[str, Any] = {"began": time.time(), **context.data}
    if adapter.version_id != version_id:
        version = catalog.versions().filter(id=version_id).first()
        if version is None:
            text = "the new file was removed while the job ran: begin anew"
            raise Refused(Kind.CONFLICT, "version_unknown", text)
        facts = job.found("plan").get("adapter") or job.found("back").get("adapter")
        updates.swap_adapter(
            actor=job.actor, adapter=adapter, version=version, facts=dict(facts or {}), before=_before(job), why=f"job {job.id}"
        )  # fmt: skip
        return Piece(progress=0.0, detail=f"{adapter.name} is to be {version.name}", data=data, again_in=0.5)
    return replacing(job, adapter.model, data, name=adapter.name)


def result(job: JobView) -> dict[str, Any]:
    """What the job came to."""
    told = {"model": job.args["name"], "adapter": job.args["adapter"]}
    if not _before(job):
        return {**told, "updated": False}
    answers = list(job.found("replace").get("answers", {}).values())
    return {**told, "updated": True, **came_to(job, _version_id(job)), "answers": answers}


def cleanup(job: JobView) -> None:
    """A job that did not come to its good end leaves the adapter as it was; one that was cancelled also leaves no version that it began."""
    version_id, before = _version_id(job), _before(job)
    replaced = next((step.state for step in job.steps if step.name == "replace"), StepState.WAITING)
    adapter = catalog.adapters().filter(id=job.args["adapter_id"]).first()
    if adapter is not None and before:
        try:
            if replaced is not StepState.DONE and version_id:
                why = f"job {job.id} did not succeed"
                updates.swap_adapter_back(
                    actor=job.actor, adapter=adapter, version_id=version_id, before=before, why=why
                )
        finally:
            updates.over(model_id=adapter.model_id)
    if job.cancel_requested:
        serve_fetched.forget_version(job)
    else:
        serve_fetched.forget_nothing(job)


def _adapter(job: JobView) -> Any:
    row = catalog.adapters().filter(id=job.args["adapter_id"]).first()
    if row is None:
        text = f"the adapter {job.args['adapter']} was removed meanwhile"
        raise Refused(Kind.CONFLICT, "model_not_wanted", text)
    return row


def _before(job: JobView) -> dict[str, Any]:
    return dict((job.found("registry") or job.found("back")).get("before") or {})


def _version_id(job: JobView) -> str:
    return str(job.found("back").get("version_id") or job.found("mirror").get("version_id") or "")


UPDATE = JobKind(
    steps={"registry": registry, "plan": plan, "mirror": mirror, "replace": replace}, result=result, cleanup=cleanup
)
ROLLBACK = JobKind(steps={"back": back, "replace": replace}, result=result, cleanup=cleanup)
