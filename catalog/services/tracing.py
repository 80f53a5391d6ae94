"""Looks for where weights come from, where nobody said it: on request, and by itself, one at a time of models, adapters, and versions that
nothing needs.

Nothing is fetched for it but what repositories say of their files. What came of it stands with them (`origins.come_from`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from django.db import IntegrityError
from django.db.models import Q
from django.utils import timezone

from catalog.domain.cards import RepoCard, same_commit
from catalog.domain.tracing import MOST, Clues, Match, Missing, checked, clues, held, next_to_trace, origin_of
from catalog.models import Adapter, Model, Version
from catalog.models.origins import Traced
from catalog.registry.client import Registry
from catalog.services import origins, registry
from catalog.services.origins import Known, Subject
from llmgw_site.lib.errors import Kind, Refused

Sizes = Mapping[str, int | None]
ELSEWHERE = frozenset({"revision_unknown", "repository_unknown", "repository_disabled", "repository_gated"})
"""Codes of a repository that is not there, or not for us."""
APART = 60.0
"""Seconds between two searches that nobody asked for, of whatever controller."""


def trace(*, actor: str, of: Subject, sizes: Sizes | None = None, thorough: bool = False) -> Known:
    """Look for where the weights of a model, a version or an adapter come from, and keep what came of it. `sizes` as in `origins.give`. `thorough`: look also at
    what comes after the first that has the files. Raises Refused `origin_not_found` with what was looked at, `origin_ambiguous` (only if
    thorough), as `origins.give`, or as the registry refuses.

    1. the repository that the path names, at the commit that it names
    2. repositories whose names have the words of the file, the most downloaded first: at that commit, else at their newest

    A search takes a while: an origin that somebody gives meanwhile stands.
    """
    origins.without(of)
    before = _given(of)
    try:
        found = _search(of, dict(sizes or origins.sizes_of(of)), thorough)
    except Refused as refused:
        told = {"traced_at": timezone.now(), "trace_code": refused.code, "trace_message": refused.message}
        origins.table(of).objects.update_or_create(pk=of.pk, defaults=told)
        raise
    if _given(of) not in ((), before) and (known := origins.known(of)) is not None:
        return known
    newest = not clues(origins.path_of(of)).commit
    return origins.keep(of, found.card, found.paths, actor=actor, given_by="", newest=newest)


def _given(of: Subject) -> tuple[str, ...]:
    """The origin that somebody gave by hand; empty: nobody did."""
    rows = origins.table(of).objects.filter(pk=of.pk).exclude(given_by="")
    return next(iter(rows.values_list("given_by", "repository", "commit")), ())


def trace_next(sizes_of: Callable[[Model], Sizes | None], *, now: float) -> tuple[Subject, Known | None] | None:
    """Look for the origin of that whose turn it is; with what was found, or None for nothing. None: it is nobody's turn.

    `sizes_of`: bytes of a model's files as nodes report them; `now`: Unix seconds of the database's clock.
    """
    found = {item.pk: (item, getattr(item, "origin", None)) for item in _without_origin()}
    missing = [_missing(item, row) for item, row in found.values()]
    if any(abs(now - item.looked_at) < APART for item in missing):
        return None
    chosen = next_to_trace(missing, now)
    if chosen is None:
        return None
    of, row = found[chosen]
    try:
        if not _claimed(of, row, now):
            return None
        return of, trace(actor="worker", of=of, sizes=sizes_of(of) if isinstance(of, Model) else None, thorough=True)
    except (Refused, IntegrityError):  # the second: it was removed meanwhile
        return of, None


def _without_origin() -> Iterator[Subject]:
    """Enabled models, the adapters of such that are files on nodes, and versions from plain addresses that nothing needs."""
    unknown = Q(origin__isnull=True) | Q(origin__repository="")
    plain = Q(version__isnull=True) | Q(version__registry="")
    models = Model.objects.filter(unknown, plain, provider__isnull=True, enabled=True)
    # one whose version was looked for before it was made has its origin
    yield from models.exclude(version__origin__repository__gt="").select_related("version", "origin").order_by("id")
    adapters = Adapter.objects.filter(unknown, version__isnull=True, model__enabled=True)
    yield from adapters.select_related("origin").order_by("id")
    versions = Version.objects.filter(unknown, registry="", models__isnull=True, adapters__isnull=True)
    yield from versions.select_related("origin").order_by("id")


def _missing(of: Subject, row: Traced | None) -> Missing:
    at = row.traced_at.timestamp() if row is not None and row.traced_at is not None else 0.0
    return Missing(id=of.pk, looked_at=at, code=row.trace_code if row is not None else "")


def _claimed(of: Subject, row: Traced | None, now: float) -> bool:
    """Whether this controller is the one that looks: none that looked at the same moment does."""
    at, rows = datetime.fromtimestamp(now, UTC), origins.table(of).objects
    if row is None:
        return bool(rows.get_or_create(pk=of.pk, defaults={"traced_at": at})[1])
    return bool(rows.filter(pk=of.pk, traced_at=row.traced_at).update(traced_at=at))


def _search(of: Subject, files: dict[str, int | None], thorough: bool) -> Match:
    if not files or all(size is None for size in files.values()):
        checked(RepoCard(id="-", commit=""), files)  # says why
    found, digests = clues(origins.path_of(of)), origins.digests_of(of)
    name_it = of.pk if isinstance(of, Version) else of.name
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
    origin = origin_of(matches, name_it)
    if origin is not None:
        return origin
    where = (
        f"looked at {', '.join(looked[:5])}" + (f" and {len(looked) - 5} more" if len(looked) > 5 else "")
        if looked
        else "found none to look at"
    )
    text = f"no repository has {', '.join(sorted(files)[:3])} at that size ({where}): name it, `llmgw model origin {name_it} --repository OWNER/REPOSITORY`"
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
