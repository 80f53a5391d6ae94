"""Looks for where models' weights come from, where nobody said it: on request, and by itself, one model at a time.

Nothing is fetched for it but what repositories say of their files. What came of it stands with the model (`origins.traced`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from django.db.models import Q
from django.utils import timezone

from catalog.domain.cards import RepoCard, same_commit
from catalog.domain.tracing import MOST, Clues, Match, Missing, checked, clues, held, next_to_trace, origin_of
from catalog.models import Model, Origin
from catalog.registry.client import Registry
from catalog.services import origins, registry
from catalog.services.origins import Known
from llmgw_site.lib.errors import Kind, Refused

Sizes = Mapping[str, int | None]
ELSEWHERE = frozenset({"revision_unknown", "repository_unknown", "repository_disabled", "repository_gated"})
"""Codes of a repository that is not there, or not for us."""
APART = 60.0
"""Seconds between two searches that nobody asked for, of whatever controller."""


def trace(*, actor: str, model: Model, sizes: Sizes | None = None, thorough: bool = False) -> Known:
    """Look for where a model's weights come from, and keep what came of it. `sizes` as in `origins.give`. `thorough`: look also at
    what comes after the first that has the files. Raises Refused `origin_not_found` with what was looked at, `origin_ambiguous` (only if
    thorough), as `origins.give`, or as the registry refuses.

    1. the repository that the path names, at the commit that it names
    2. repositories whose names have the words of the file, the most downloaded first: at that commit, else at their newest
    """
    origins.without(model)
    try:
        found = _search(model, dict(sizes or origins.sizes_of(model)), thorough)
    except Refused as refused:
        told = {"traced_at": timezone.now(), "trace_code": refused.code, "trace_message": refused.message}
        Origin.objects.update_or_create(model_id=model.pk, defaults=told)
        raise
    return origins.keep(model, found.card, found.paths, actor=actor, given_by="")


def trace_next(sizes_of: Callable[[Model], Sizes | None], *, now: float) -> tuple[Model, Known | None] | None:
    """Look for the origin of the model whose turn it is; with what was found, or None for nothing. None: it is nobody's turn.

    `sizes_of`: bytes of a model's files as nodes report them; `now`: Unix seconds of the database's clock.
    """
    models = list(_without_origin())
    rows = {row.model_id: row for row in Origin.objects.filter(model__in=models)}
    missing = [_missing(model, rows.get(model.pk)) for model in models]
    if any(abs(now - item.looked_at) < APART for item in missing):
        return None
    chosen = next_to_trace(missing, now)
    model = next((item for item in models if item.pk == chosen), None)
    if model is None or not _claimed(model, rows.get(model.pk), now):
        return None
    try:
        return model, trace(actor="worker", model=model, sizes=sizes_of(model), thorough=True)
    except Refused:
        return model, None


def _without_origin() -> Iterator[Model]:
    rows = Model.objects.filter(Q(version__isnull=True) | Q(version__registry=""), provider__isnull=True, enabled=True)
    return iter(rows.exclude(origin__in=Origin.objects.exclude(repository="")).select_related("version").order_by("id"))


def _missing(model: Model, row: Origin | None) -> Missing:
    at = row.traced_at.timestamp() if row is not None and row.traced_at is not None else 0.0
    return Missing(model_id=model.pk, looked_at=at, code=row.trace_code if row is not None else "")


def _claimed(model: Model, row: Origin | None, now: float) -> bool:
    """Whether this controller is the one that looks: none that looked at the same moment does."""
    at = datetime.fromtimestamp(now, UTC)
    if row is None:
        return Origin.objects.get_or_create(model_id=model.pk, defaults={"traced_at": at})[1]
    return bool(Origin.objects.filter(model_id=model.pk, traced_at=row.traced_at).update(traced_at=at))


def _search(model: Model, files: dict[str, int | None], thorough: bool) -> Match:
    if not files or all(size is None for size in files.values()):
        checked(RepoCard(id="-", commit=""), files)  # says why
    found, digests = clues(_path(model)), origins.digests_of(model)
    looked: list[str] = []
    matches: list[Match] = []
    with registry.opened() as hub:
        for name in _candidates(hub, found):
            looked.append(name)
            card = _card(hub, name, found.commit)
            paths = held(card, files, digests) if card is not None else None
            if card is not None and paths is not None:
                at_commit = bool(found.commit) and same_commit(found.commit, card.commit)
                matches.append(Match(card=card, paths=paths, named=at_commit or name == found.repository))
                if matches[-1].named or not thorough:
                    break
    origin = origin_of(matches, model.name)
    if origin is not None:
        return origin
    where = (
        f"looked at {', '.join(looked[:5])}" + (f" and {len(looked) - 5} more" if len(looked) > 5 else "")
        if looked
        else "found none to look at"
    )
    text = f"no repository has {', '.join(sorted(files)[:3])} at that size ({where}): name it, `llmgw model origin {model.name} --repository OWNER/REPOSITORY`"
    raise Refused(Kind.NOT_FOUND, "origin_not_found", text, param="repository")


def _candidates(hub: Registry, found: Clues) -> tuple[str, ...]:
    names = [found.repository] if found.repository else []  # 1
    if found.words:  # 2
        names += [card.id for card in hub.search(text=found.words, sort="downloads", limit=MOST).repositories]
    return tuple(dict.fromkeys(names))[:MOST]


def _card(hub: Registry, name: str, commit: str) -> RepoCard | None:
    """A repository at the commit that was meant, else as it is now; None: it is not there, or not for us."""
    for revision in filter(None, (commit, "main")):
        try:
            return hub.card(name, revision)
        except Refused as refused:
            if refused.code not in ELSEWHERE:
                raise
    return None


def _path(model: Model) -> str:
    return model.weights_path or str(
        (model.version.manifest.get("files") or [{"path": ""}])[0]["path"] if model.version else ""
    )
