"""The weights that the cluster keeps: each version with its files, who has it, who fetches it, and what needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from catalog.domain.tracing import names
from catalog.models import Model, Version
from cluster.domain.states import JOB_TERMINAL, NodeState
from cluster.models import JobStep, Node
from cluster.selectors import clock as look_at_clock
from cluster.selectors import holdings, node_state_of


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A node that has all of a version. `heard`: it can give it to others now."""

    node: str
    heard: bool


@dataclass(frozen=True, kw_only=True)
class Fetcher:
    """A node that fetches a version, or would. Bytes; `rate` bytes a second, None: nothing moves. `shared`: of those that are there,
    those that other versions gave. `code`, `message`: why it does not get on."""

    node: str
    there: int
    size: int
    rate: int | None
    code: str
    message: str
    source: str
    shared: int

    @property
    def share(self) -> float:
        return min(1.0, self.there / self.size) if self.size else 0.0


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A version. `users`: what needs it, in words (`model tiny`). Of one from plain addresses `origin` is the repository that its or a
    model's files were traced to, or that was named for it, and `trace` what came of looking for it (`catalog.models.Origin.trace`)."""

    id: str
    name: str
    registry: str
    repository: str
    commit: str
    format: str
    quantization: str
    size: int
    projector: str
    created_at: datetime
    files: tuple[Mapping[str, Any], ...]
    holders: tuple[Holder, ...]
    fetchers: tuple[Fetcher, ...]
    users: tuple[str, ...]
    origin: str
    trace: str

    @property
    def whole(self) -> bool:
        return any(item.heard for item in self.holders)

    @property
    def furthest(self) -> Fetcher | None:
        return max(self.fetchers, key=lambda item: (item.rate is not None, item.there), default=None)


WORDS = {
    "models": "model",
    "former_models": "earlier version of",
    "adapters": "adapter",
    "former_adapters": "earlier version of adapter",
}
"""What needs a version, by the relation."""


FETCHING = ("mirror", "back")
"""Steps of jobs that note the version which they are about."""


def kept(version_id: str = "") -> tuple[Kept, ...]:
    """All versions, the newest first; or only this one. A query for versions, one for nodes, one for each kind of
    user, jobs too, and some where reports of weights are new."""
    rows = Version.objects.order_by("-created_at", "id")
    rows = rows.filter(id=version_id) if version_id else rows
    relations = [item.get_accessor_name() or "" for item in Version._meta.related_objects if not item.one_to_one]
    listening, now = look_at_clock()
    jobs = jobs_with()
    holders: dict[str, list[Holder]] = {}
    fetchers: dict[str, list[Fetcher]] = {}
    columns = ("name", "last_seen_at", "weights_mark", "fetches")
    nodes = list(Node.objects.filter(removed_at__isnull=True).only(*columns).order_by("name"))
    holdings.read(nodes)
    for node in nodes:
        heard = node_state_of(node, listening, now) is not NodeState.OFFLINE
        for version in holdings.versions_of(node) if node.weights_mark else ():
            holders.setdefault(version, []).append(Holder(node=node.name, heard=heard))
        for item in (node.fetches or ()) if heard else ():
            fetchers.setdefault(item["version"], []).append(_fetcher(node.name, item))
    return tuple(
        Kept(
            id=row.pk, name=row.name, registry=row.registry, repository=row.repository, commit=row.commit, format=row.format,
            quantization=row.quantization, size=row.size, projector=row.projector, created_at=row.created_at,
            files=tuple(row.manifest["files"]), holders=tuple(holders.get(row.pk, ())),
            fetchers=tuple(fetchers.get(row.pk, ())),
            **_origin(row),
            users=(
                *(f"{WORDS.get(name, name)} {user}" for name in relations for user in getattr(row, name).all()),
                *(f"job {job}" for job in sorted(jobs.get(row.pk, ()))),
            ),
        )
        for row in rows.select_related("origin").prefetch_related(*relations, "models__origin")
    )  # fmt: skip


def jobs_with() -> dict[str, set[str]]:
    """Ids of the open jobs that fetch a version or go on with it, by its id. One query."""
    steps = JobStep.objects.exclude(job__state__in=sorted(JOB_TERMINAL)).filter(name__in=FETCHING).order_by()
    found: dict[str, set[str]] = {}
    for job_id, data in steps.values_list("job_id", "data"):
        if data.get("version_id"):
            found.setdefault(data["version_id"], set()).add(job_id)
    return found


def _origin(row: Version) -> dict[str, str]:
    found = [] if row.registry else [getattr(item, "origin", None) for item in (*row.models.all(), row)]
    some = [item for item in found if item is not None and (item.repository or item.trace)]
    some.sort(key=lambda item: not item.repository)  # what was found of one was maybe sought of another in vain
    told = some[0] if some else None
    return {"origin": told.repository if told else "", "trace": told.trace if told else ""}


def _fetcher(node: str, item: Mapping[str, Any]) -> Fetcher:
    return Fetcher(
        node=node, there=item.get("there", 0), size=item.get("size", 0), rate=item.get("rate"), code=item.get("code", ""),
        message=item.get("message", ""), source=item.get("source", ""),
        shared=item.get("shared", 0),
    )  # fmt: skip


def weights_sizes(model: Model) -> dict[str, int | None] | None:
    """The bytes of a model's files by name, as nodes report them; None: the catalogue or this machine knows better.

    Of one file or the first of a set nodes tell the size of the whole: only that of a single file says something.
    """
    found = names(model.weights_path) if model.weights_path else ()
    if len(found) != 1:
        return None
    told = {
        item["size"]
        for node in Node.objects.filter(removed_at__isnull=True)
        for item in node.weights or ()
        if item["path"] == model.weights_path and item["size"]
    }
    return {found[0]: told.pop()} if len(told) == 1 else None
