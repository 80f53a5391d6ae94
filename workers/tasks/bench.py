"""The steps of a bench job: choose a replica of each profile and kind of hardware, load it more and more, keep what came of it."""

from __future__ import annotations

from typing import Any

from catalog import selectors as catalog
from catalog.services import profiles
from cluster import selectors
from cluster.domain.bench import MOST, Level, found, level, next_load
from cluster.domain.rollout import JobView
from cluster.domain.states import ReplicaState
from cluster.services import measuring
from llmgw_site.lib.errors import Kind, Refused
from workers import loading, node_calls
from workers.jobs import Context, Piece
from workers.jobs import Kind as JobKind

OBJECTIVE = 2.0
"""Seconds until the first token, where the job's arguments name none."""
SECONDS = 10.0
"""Of one try, where the job's arguments name none."""


def choose(context: Context) -> Piece:
    """One ready replica of each profile and kind of hardware. It waits for none: an idle model is woken by a request, not by this."""
    model = _model(context.job)
    if model.embeddings or model.external:
        what = "answers with vectors" if model.embeddings else "is answered by a provider"
        raise Refused(
            Kind.INVALID, "bench_not_possible", f"{model.name} {what}: only chats of own engines are measured"
        )
    rows = [row for row in selectors.replicas_of(model.pk) if row.run and row.state == ReplicaState.READY]
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        hardware = measuring.hardware_of(row)
        groups.setdefault(
            (row.digest, hardware),
            {"node": row.node.name, "node_id": row.node_id, "profile_id": row.profile_id, "digest": row.digest,
             "hardware": hardware, "slots": row.slots or 1},
        )  # fmt: skip
    if not groups:
        text = f"no replica of {model.name} is ready: ask it something or scale it up, and measure then"
        raise Refused(Kind.CONFLICT, "bench_not_possible", text)
    chosen = list(groups.values())
    detail = ", ".join(f"{item['hardware']} on {item['node']}" for item in chosen)
    return Piece(done=True, detail=detail, data={"model_id": model.pk, "groups": chosen})


def measure(context: Context) -> Piece:
    """One try of one group; the job is put down after each, so that others get their turn."""
    job, model = context.job, _model(context.job)
    objective, seconds = _objective(job), float(job.args.get("seconds") or SECONDS)
    groups = job.found("choose")["groups"]
    tried: list[list[dict[str, Any]]] = [*context.data.get("tried", [])] or [[] for _ in groups]
    for at, group in enumerate(groups):
        levels = [level(item) for item in tried[at]]
        most = min(MOST, int(job.args.get("most") or 4 * group["slots"]))
        load = next_load(levels, objective=objective, most=most)
        if load is None:
            continue
        rows = [
            row
            for row in selectors.replicas_of(model.pk)
            if row.state == ReplicaState.READY and row.node_id == group["node_id"]
        ]
        if not any(row.digest == group["digest"] for row in rows):
            raise Refused(
                Kind.CONFLICT,
                "bench_broken_off",
                f"the replica on {group['node']} is not ready any more: measure again",
            )
        got = loading.load(
            node_calls.caller(rows[0].node),
            model=model.name,
            at_once=load,
            replicas=len(rows),
            seconds=seconds,
            seed=len(levels),
        )
        tried[at] = [*tried[at], got.as_dict()]
        return Piece(progress=_progress(tried, at), detail=_words(group, got), data={"tried": tried}, again_in=0.2)
    best = [found([level(item) for item in levels], objective=objective) for levels in tried]
    detail = "; ".join(
        f"{group['hardware']}: {one.tps:.0f} tokens/s, up to {one.at_once} at once"
        for group, one in zip(groups, best, strict=True)
    )
    data = {"tried": tried, "found": [vars(one) for one in best]}
    return Piece(done=True, detail=detail, data=data)


def _progress(tried: list[list[dict[str, Any]]], at: int) -> float:
    """Nobody knows how many tries it takes: each leaves half of what was left of its group."""
    return (at + 1 - 0.7 ** len(tried[at])) / len(tried)


def _words(group: dict[str, Any], got: Level) -> str:
    failed = f", {got.failed} failed" if got.failed else ""
    return f"{group['hardware']}, {got.at_once} at once: {got.tps:.1f} tokens/s, first token within {got.first_s:.2f} s{failed}"


def keep(context: Context) -> Piece:
    """Write down what was measured: for each hardware, and for each profile the least of its hardware, which the scheduler counts with."""
    job = context.job
    groups, best = job.found("choose")["groups"], job.found("measure")["found"]
    of_profiles: dict[str, list[dict[str, Any]]] = {}
    for group, one in zip(groups, best, strict=True):
        measuring.keep_throughput(
            digest=group["digest"], hardware=group["hardware"], tps=one["tps"], at_once=one["at_once"], first_s=one["first_s"],
            objective=_objective(job),
        )  # fmt: skip
        of_profiles.setdefault(group["profile_id"] or "", []).append(one)
    kept = 0
    for row in catalog.profiles().filter(id__in=list(of_profiles)):
        values = of_profiles[row.pk]
        profiles.update(
            actor=job.actor, profile=row, why=f"measured by job {job.id}", measured_tps=min(item["tps"] for item in values),
            measured_concurrency=float(min(item["at_once"] for item in values)),
        )  # fmt: skip
        kept += 1
    return Piece(done=True, detail=f"kept for {kept} profile{'s' if kept != 1 else ''}")


def _objective(job: JobView) -> float:
    return float(job.args.get("ttft") or OBJECTIVE)


def _model(job: JobView) -> Any:
    model = catalog.models_with_profiles().filter(name=str(job.args["name"])).first()
    if model is None:
        raise Refused(Kind.NOT_FOUND, "not_found", f"the model {job.args['name']} was removed")
    return model


def result(job: JobView) -> dict[str, Any]:
    """What was found, by hardware."""
    groups, best = job.found("choose")["groups"], job.found("measure")["found"]
    told = [
        {"hardware": group["hardware"], "node": group["node"], **one} for group, one in zip(groups, best, strict=True)
    ]
    return {"model": job.args["name"], "ttft": _objective(job), "measured": told}


def cleanup(job: JobView) -> None:
    """Nothing stays behind: requests end with the try that made them."""


KIND = JobKind(steps={"choose": choose, "measure": measure, "keep": keep}, result=result, cleanup=cleanup)
