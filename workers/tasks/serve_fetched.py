"""The first steps of a serve job whose weights are fetched: look at the source, plan, fetch, check, offer it.

`workers.tasks.serve` waits for the replica and asks it, as for weights that lie on the nodes. Nothing is kept between two
looks but what the steps note; each finds what is done already and goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any

from django.conf import settings

from catalog import selectors as catalog
from catalog.domain import sources as words
from catalog.domain.columns import known_fields
from catalog.domain.facts import ModelFacts, facts_from_dict
from catalog.domain.manifests import ManifestFile, manifest_from_dict
from catalog.domain.repository import FileSet, Format, RepoFile
from catalog.domain.sources import FromAddresses, FromRepository
from catalog.services import origins, served, sources, versions
from catalog.services.registry import Seen
from cluster import selectors
from cluster.domain import serving
from cluster.domain.board import Board
from cluster.domain.offers import Plan, Variant, plan, variant
from cluster.domain.rollout import JobView
from cluster.domain.serving import Build, way_name
from cluster.domain.states import StepState
from cluster.selectors import mirror as mirrored
from cluster.selectors.kept import kept
from cluster.services import jobs
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import format_bytes, format_seconds
from workers.jobs import Context, Piece
from workers.tasks import existing

SLOTS = 2
"""Requests at once of the profile, where the job's arguments name none."""
PATIENCE = 300.0
"""Seconds for which a source that does not answer is asked again; one that says when to come back is asked then."""
NEXT_LOOK = 1.0
CLOCKS = 1.0
"""Seconds by which this machine's clock may differ from the database's."""
NO_MIRROR = 60.0
"""Seconds for which a node's refusal to fetch stands until the job believes it: nodes may just be starting."""
WRONG = 15.0
"""Seconds for which files that are not what was published are believed to be an accident of the way: they came twice then."""
LIMITED = "registry_limited"
"""What a node is told that asks too often: it comes back when it may, however long that is."""
PASSING = frozenset(
    {
        "registry_failed",
        "registry_unreachable",
        "address_failed",
        "fetch_broken",
        "weights_no_source",
        "manifest_unavailable",
    }
)
"""Codes of what mostly passes by itself, as a network that is away: believed after PATIENCE only."""


def patient(step: Callable[[Context], Piece]) -> Callable[[Context], Piece]:
    """A step that asks a registry: what time cures is waited for, seen on the step."""

    @wraps(step)
    def run(context: Context) -> Piece:
        try:
            return step(context)
        except Refused as refused:
            if refused.retry_after is None:
                raise
            now = time.time()
            since = float(context.data.get("troubled_since", now))
            if refused.kind is not Kind.LIMITED and now - since > PATIENCE:
                raise
            data = {"troubled_since": since}
            return Piece(detail=refused.message, data=data, again_in=max(1.0, refused.retry_after))

    return run


@patient
def registry(context: Context) -> Piece:
    """The commit, and that the files that were asked for are there and may be read; that the name is free."""
    args = context.job.args
    source = _source(args)
    _name_is_free(args)
    seen, found = sources.look(source, **_words(args))
    _projectors(seen, found, args)  # one that there is not is refused before anything else is done
    sets = ", ".join(dict.fromkeys(item.quantization or item.format.value for item in found[:12]))
    count = len(seen.card.files)
    plain = "1 file" if count == 1 else f"{count} files"
    where = f"{seen.card.id} at {seen.card.commit[:12]}" if seen.card.commit else plain
    data: dict[str, Any] = {"repository": seen.card.id if seen.card.commit else "", "commit": seen.card.commit}
    if seen.card.commit and isinstance(source, FromRepository) and source.revision in words.NEWEST:
        data["asked_at"] = selectors.database_now()
    return Piece(done=True, detail=f"{where}: {sets}{' and more' if len(found) > 12 else ''}", data=data)


@patient
def plan_it(context: Context) -> Piece:
    """Its file and its way, unless told; what a version and a catalogue entry are made of."""
    args = context.job.args
    source = _pinned(context.job)
    wanted = _wanted(args)
    seen, shapes = sources.shapes(source, **_words(args), projector=wanted)
    projectors = _projectors(seen, [item for item, _ in shapes], args)
    variants = [variant(item, facts, seen.projectors, wanted) for item, facts in shapes]
    chosen = serving.choose(
        _plans(variants, args), way=str(args.get("way") or ""), fallbacks=bool(args.get("fallbacks"))
    )
    files, facts = next((item, facts) for item, facts in shapes if item.first.path == chosen.variant.name)
    if len(shapes) > 1:  # the shape was read from the smallest file: now from this one
        beside = projectors[files.first.path]
        _, ((files, facts),) = sources.shapes(
            source,
            file=files.first.path,
            format=files.format.value,
            projector=beside.path if beside else "none",
        )
    known(chosen.offers[0].way.engine, facts)
    projector = projectors[files.first.path]
    urls = {item.name: item.url for item in source.files} if isinstance(source, FromAddresses) else {}
    data = planned(files, facts, projector=projector, urls=urls)
    data |= {"way": way_name(chosen.offers[0].way), "profiles": list(serving.profiles(chosen))}
    _weights_are_the_models(args, data, commit=context.job.found("registry")["commit"])
    size = sum(item["size"] for item in data["files"])
    sees = f" with {projector.name}" if projector else ""
    detail = f"{files.first.path}{sees}, {format_bytes(size)}, on {data['way']} ({chosen.offers[0].way.engine})"
    further = [way_name(offer.way) for offer in chosen.offers[1:]]
    detail += f"; else on {', '.join(further)}" if further else ""
    return Piece(done=True, detail=detail, data=data)


def planned(
    files: FileSet, facts: ModelFacts, *, projector: RepoFile | None = None, urls: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What the step `mirror` makes a version of. `urls`: of files that come from plain addresses, by path."""
    every = [*files.files, *([projector] if projector else [])]
    return {
        "name": files.first.path, "format": files.format.value, "quantization": facts.quantization or files.quantization,
        "first": files.first.path if files.format is Format.GGUF else "", "projector": projector.path if projector else "",
        "files": [{"path": f.path, "size": f.size, "sha256": f.sha256, "blob": f.blob, "url": (urls or {}).get(f.path, "")} for f in every],
        "facts": facts.as_dict(),
    }  # fmt: skip


def mirror(context: Context) -> Piece:
    """The version exists, and a node has all of it. A node that cannot have it ends the job with its reason."""
    job, found = context.job, context.job.found("plan")
    version_id = str(context.data.get("version_id") or "")
    data = dict(context.data)
    if not version_id:
        begun = float(data.get("begun") or selectors.database_now())
        context.tell(data={"begun": begun})  # so that what is younger is known to be this job's, also after a crash
        made = versions.keep(
            actor=job.actor,
            format=Format(found["format"]),
            files=_files(found),
            first=found["first"],
            facts=facts_from_dict(found["facts"]),
            quantization=found["quantization"],
            projector=found["projector"],
            registry=settings.CONFIG.registry if job.found("registry")["commit"] else "",
            repository=job.found("registry")["repository"],
            commit=job.found("registry")["commit"],
        )
        version_id = str(made.pk)
        data = {"version_id": version_id, "ours": _since(made, begun)}
        context.tell(data=data)
    try:
        state = mirrored.version_state(version_id)
    except Refused:  # removed at this moment: once more from the beginning
        return Piece(progress=0.0, detail="the weights were removed meanwhile: they are fetched anew", data={})
    if state.whole:
        where = ", ".join(state.holders[:3])
        shared = f", {format_bytes(data['shared'])} of it were here already" if data.get("shared") else ""
        return Piece(done=True, detail=f"{format_bytes(state.size)}, whole and checked on {where}{shared}", data=data)
    share = state.there / state.size if state.size else 0.0
    text = f"{format_bytes(state.there)} of {format_bytes(state.size)}"
    if state.shared:
        data["shared"] = state.shared
        text += f" ({format_bytes(state.shared)} were here already)"
    if state.code:
        now = time.time()
        patience = PATIENCE if state.code in PASSING else WRONG if state.code == "file_wrong" else NO_MIRROR
        before = data.get("refused_since")
        # what comes anew has its own time
        since = {f"{patience:g}": now, **(before if isinstance(before, dict) else {})}
        if state.code != LIMITED and now - since[f"{patience:g}"] > patience:
            raise Refused(Kind.UNAVAILABLE, state.code, state.message or "a node refused to fetch the weights")
        said = f"{text}: {state.message}" if state.message else text
        return Piece(progress=share, detail=said, data={**data, "refused_since": since}, again_in=NEXT_LOOK)
    data.pop("refused_since", None)
    if state.rate:
        left = (state.size - state.there) / state.rate
        text += f", {format_bytes(int(state.rate))}/s, {format_seconds(left)} left"
    return Piece(progress=share, detail=text, data=data, again_in=NEXT_LOOK)


def check(context: Context) -> Piece:
    """An engine here knows the architecture, and the hardware still holds it, in use by others or not."""
    found = context.job.found("plan")
    facts = facts_from_dict(found["facts"])
    version = catalog.versions().filter(id=context.job.found("mirror")["version_id"]).first()
    if version is None:
        text = "the weights were removed while the job ran: begin anew"
        raise Refused(Kind.CONFLICT, "version_unknown", text)
    first = found["profiles"][0]
    known(first["engine"], facts)
    size = sum(
        item["size"] for item in found["files"] if item["path"].endswith((".gguf", ".safetensors"))
    )  # as planned
    planned = Variant(
        name=found["name"], format=Format(found["format"]), size=size, facts=facts, quantization=found["quantization"]
    )
    chosen = serving.choose(_plans([planned], context.job.args), way=found["way"])
    offer = chosen.offers[0]
    parts = [f"{format_bytes(offer.card_memory)} of cards"] if offer.card_memory else []
    parts.append(f"{format_bytes(offer.memory)} of memory")
    free = "free now" if offer.free_now else "in use now"
    return Piece(done=True, detail=f"the engine knows {facts.architecture or 'it'}; {', '.join(parts)}, {free}")


def catalogue(context: Context) -> Piece:
    """The model with its ways; one that serves these weights already, as was asked for, is taken."""
    job, found = context.job, context.job.found("plan")
    name, version_id = str(job.args["name"]), job.found("mirror")["version_id"]
    begun = context.data.get("begun")
    model = catalog.models_with_profiles().filter(name=name).first()
    if model is not None:
        if model.version_id != version_id:
            raise _taken(name)
        added = begun is not None and _since(model, begun)
        if not added:  # else somebody had the name meanwhile
            existing.agrees(job.args, planned=len(found["profiles"]))
        if not model.enabled:
            served.enable(actor=job.actor, model=model, why=f"job {job.id}")
        return Piece(done=True, detail=f"{name} is in the catalogue", data={"model_id": model.pk, "added": added})
    version = catalog.versions().filter(id=version_id).first()
    if version is None:
        raise Refused(Kind.CONFLICT, "version_unknown", "the weights were removed while the job ran: begin anew")
    context.tell(data={"begun": begun or selectors.database_now()})  # as in `mirror`
    first, *others = found["profiles"]
    on_demand = bool(job.args.get("on_demand"))
    replicas = int(job.args.get("replicas") or 1)
    model = served.add_model(
        actor=job.actor,
        name=name,
        version=version,
        description=str(job.args.get("description", "")),
        replicas=0 if on_demand else replicas,
        max_replicas=replicas if on_demand else None,
        facts=facts_from_dict(version.facts),
        profile=first,
        further=others,
    )
    asked = job.found("registry")
    if asked.get("asked_at"):
        origins.fetched(model, commit=asked["commit"], asked_at=asked["asked_at"])
    ways = f"{1 + len(others)} ways" if others else "one way"
    return Piece(done=True, detail=f"{name} added with {ways}", data={"model_id": model.pk, "added": True})


def cleanup(job: JobView) -> None:
    """A job that was cancelled leaves neither the model that it added nor the version that it began, where nobody else uses
    it. One that failed leaves what was fetched: tried again, it goes on from there (for a day: `cluster.services.weights`)."""
    if not job.cancel_requested:
        forget_nothing(job)
        return
    model = _added(job)
    if model is not None:
        with suppress(Refused):  # something else was built on it meanwhile
            served.remove(actor=job.actor, model=model)
    forget_version(job)


def forget_nothing(job: JobView) -> None:
    """Remove the version that a failed job began where its nodes got no byte of it: they would go on trying."""
    done = any(step.name == "mirror" and step.state is StepState.DONE for step in job.steps)
    version_id = str(job.found("mirror").get("version_id") or "")
    if done or not version_id:
        return
    for item in kept(version_id):
        if item.fetchers and not item.holders and not any(fetcher.there for fetcher in item.fetchers):
            forget_version(job)


def forget_version(job: JobView) -> None:
    """Remove the version that the step `mirror` of a cancelled job began, noted or not, where nobody else uses it."""
    version = _began(job)
    if version is None or jobs.others_with(version_id=version.pk, job_id=job.id):
        return
    with suppress(Refused):  # a model needs it by now
        versions.remove(actor=job.actor, version=version)


def _added(job: JobView) -> Any:
    """The model that the step `catalogue` added; None: it added none."""
    made, rows = job.found("catalogue"), catalog.models_with_profiles()
    if "model_id" in made:
        return rows.filter(id=made["model_id"]).first() if made.get("added") else None
    if "begun" not in made:
        return None
    found = rows.filter(name=job.args["name"], version_id=job.found("mirror")["version_id"]).first()
    return found if found is not None and _since(found, made["begun"]) else None


def _began(job: JobView) -> Any:
    """The version that the step `mirror` made; None: it made none."""
    made, rows = job.found("mirror"), catalog.versions()
    if "version_id" in made:
        return rows.filter(id=made["version_id"]).first() if made.get("ours") else None
    if "begun" not in made:
        return None
    known = job.found("registry")
    young = [
        row for row in rows.filter(repository=known["repository"], commit=known["commit"]) if _since(row, made["begun"])
    ]
    return next((row for row in young if manifest_from_dict(row.manifest).files == _files(job.found("plan"))), None)


def _since(row: Any, begun: float) -> bool:
    return bool(row.created_at.timestamp() >= begun - CLOCKS)


def _files(planned: Mapping[str, Any]) -> tuple[ManifestFile, ...]:
    return tuple(ManifestFile(**known_fields(ManifestFile, item)) for item in planned["files"])


STEPS = {"registry": registry, "plan": plan_it, "mirror": mirror, "check": check, "catalogue": catalogue}


def _source(args: Any) -> FromRepository | FromAddresses:
    found = words.source(args["source"], args.get("checksums") or (), registry=settings.CONFIG.registry)
    assert not isinstance(found, words.FromPath)  # such a job has other steps
    return found


def _pinned(job: JobView) -> FromRepository | FromAddresses:
    """The source at the commit that the first step found."""
    commit = job.found("registry")["commit"]
    if not commit:
        return _source(job.args)
    return FromRepository(repository=job.found("registry")["repository"], revision=commit)


def _words(args: Any) -> dict[str, str]:
    return {name: str(args.get(given) or "") for name, given in
            (("quantization", "quantization"), ("file", "file"), ("format", "file_format"))}  # fmt: skip


def _wanted(args: Any) -> str:
    return str(args.get("projector") or "auto")


def _projectors(seen: Seen, sets: Sequence[FileSet], args: Any) -> dict[str, RepoFile | None]:
    """Of each set, by its first file. One that is named is for GGUF, where there is some."""
    wanted = _wanted(args)
    some = any(item.format is Format.GGUF for item in sets)
    return {
        item.first.path: None if some and item.format is not Format.GGUF else sources.projector(seen, item, wanted)
        for item in sets
    }


def _plans(variants: list[Variant], args: Any) -> tuple[Plan, ...]:
    board = Board(selectors.world(selectors.database_now()))
    vectors = bool(variants) and variants[0].facts.embeddings
    return plan(
        board, variants, context=int(args.get("context") or 0), slots=int(args.get("slots") or (1 if vectors else SLOTS)),
        klass=str(args.get("gpu_class") or ""), tp=int(args.get("tp") or 0),
    )  # fmt: skip


def known(engine: str, facts: ModelFacts) -> None:
    """Refuse an architecture that no engine of the nodes can load, where they tell."""
    builds = [
        Build(node=node.name, version=item.get("version", ""), architectures=item.get("architectures", ()))
        for node in selectors.nodes()
        for item in node.engines
        if item["kind"] == engine and not item.get("problem")
    ]
    if why := serving.unknown_to_all(builds, facts.architecture):
        raise Refused(Kind.UNAVAILABLE, "architecture_unknown", why)


def _name_is_free(args: Any) -> None:
    """Before anything is fetched: a name that stands for other weights is no name for these."""
    model = catalog.models_with_profiles().filter(name=args["name"]).select_related("version").first()
    if model is not None and (model.version is None or not _same_source(model.version, args)):
        raise _taken(args["name"])
    existing.agrees(args)


def _weights_are_the_models(args: Any, planned: Mapping[str, Any], *, commit: str) -> None:
    """Once it is known what there is to fetch: a model of this name has just that."""
    model = catalog.models_with_profiles().filter(name=args["name"]).select_related("version").first()
    if model is not None and (
        model.version is None
        or (model.version.commit, model.version.projector) != (commit, planned["projector"])
        or manifest_from_dict(model.version.manifest).files != _files(planned)
    ):
        raise _taken(args["name"])
    existing.agrees(args, planned=len(planned["profiles"]))


def _same_source(version: Any, args: Any) -> bool:
    source = _source(args)
    return bool(version.repository == (source.repository if isinstance(source, FromRepository) else ""))


def _taken(name: str) -> Refused:
    text = (
        f"the catalogue has a model {name} with other weights: choose another name, or see `llmgw model update {name}`"
    )
    return Refused(Kind.CONFLICT, "model_exists", text, param="name")
