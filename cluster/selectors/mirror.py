"""How far the fetching of weights is: who has a version, who is to fetch it from whom, and why nobody does.

Nodes ask with every heartbeat, so what follows from all their reports is worked out once a second and only while a node lacks
something: a cluster that has no versions, or whose nodes have all that they need, is not looked at.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any

import orjson
from django.db import connection

from catalog.domain.columns import known_fields
from catalog.models import Event, Version
from cluster.domain.fetching import Fetch, FetchOrder, Sharing, Site
from cluster.domain.modules import Module, ModuleState
from cluster.domain.states import NodeState
from cluster.models import ClusterIdentity, Node, Replica
from cluster.selectors import database_now, holdings, listening_of, node_state_of
from llmgw_site.lib.errors import Kind, Refused

EVERY, SHARE = 1.0, 20
"""Seconds for which what was worked out holds; longer where it took more than this part of them."""
MARK = "(SELECT CAST(COUNT(*) AS varchar) || ' ' || COALESCE(MAX(v.id), '') FROM catalog_version v)"
"""Changes with the table of versions, as an SQL expression."""
NO_VERSIONS = "0 "
"""The mark of an empty table."""


@dataclass(frozen=True, kw_only=True)
class VersionState:
    """A version as nodes report it. `whole`: a node that is heard has all of it, so that others can get it.

    `size`, `there`: bytes of it, and bytes on the node that is furthest, `shared` of them from other versions; `rate`: bytes a second
    there, None: nothing moves.
    `holders`: names of the nodes that have it; `fetching`: of those that are getting it. `code` and `message`: why nothing
    moves, where that is known.
    """

    version_id: str
    whole: bool = False
    size: int = 0
    there: int = 0
    shared: int = 0
    rate: float | None = None
    code: str = ""
    message: str = ""
    holders: tuple[str, ...] = ()
    fetching: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a node is told of weights. `kept`: versions that are not to be removed there; `removed`: of those that it has the ones that
    somebody removed, as the log says. Of any other the database may have been restored from before it was made."""

    fetches: tuple[FetchOrder, ...] = ()
    kept: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class _Board:
    """All nodes that are heard and know how to fetch, at one moment, and what follows for each version."""

    def __init__(self, now: float, mark: str = "") -> None:
        began = time.monotonic()
        self.now, self.mark = now, mark
        self.sizes: dict[str, int] = dict(Version.objects.order_by("id").values_list("id", "size"))
        self.sites = list(_sites(now)) if self.sizes else []
        self._sharings: dict[str, Sharing] = {}
        self.least = SHARE * (time.monotonic() - began)
        self.good_for = max(EVERY, self.least)

    def sharing(self, version: str) -> Sharing:
        if version not in self._sharings:
            self._sharings[version] = Sharing(version, self.sites, self.now)
        return self._sharings[version]


_board: _Board | None = None
_lock = Lock()


def orders_for(node: Node, rows: Iterable[Replica], *, mark: str, now: float) -> Orders:
    """What a node is told with its heartbeat, after that was written to its row. `rows`: its replicas. `mark`: changes with the
    table of versions.

    1. it does not know how to fetch: nothing
    2. it runs the module `data`: it shall have every version. Another one: those that replicas run with which are there
    3. of these it fetches what it lacks; while it has not said yet what it has, nothing
    """
    if node.fetches is None:  # 1
        return Orders()
    data = _runs_data(node.modules)
    if mark == NO_VERSIONS:
        return Orders(removed=_removed(holdings.versions_of(node)) if data and node.weights_mark else ())
    used: set[str] = set()
    wanted: set[str] = set()
    for row in rows:
        named = _versions_of(row.serve)
        used |= named
        if row.run:
            wanted |= named
    if not data and not used:
        return Orders()
    with _lock:
        board = _current(mark, now) if data else None
        if board is not None:  # 2
            wanted |= board.sizes.keys()
            used |= board.sizes.keys()
        has = holdings.versions_of(node) if node.weights_mark else frozenset()
        missing = wanted - has if node.weights_mark else set()  # 3
        found: list[FetchOrder] = []
        if missing:
            board = board or _current(mark, now)
            site = site_of(node)
            found = [board.sharing(version).order(site) for version in sorted(missing) if version in board.sizes]
    return Orders(fetches=tuple(found), kept=tuple(sorted(used)), removed=_removed(has - used) if data else ())


def _removed(versions: Collection[str]) -> tuple[str, ...]:
    """Which of these somebody removed. One query where there are any."""
    if not versions:
        return ()
    rows = Event.objects.filter(subject_kind="version", subject_id__in=versions, kind="version_removed").order_by()
    return tuple(sorted(set(rows.values_list("subject_id", flat=True))))


def versions_mark() -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {MARK}")
        return str(cursor.fetchone()[0])


def forget() -> None:
    """Look at all reports anew at the next question."""
    global _board
    with _lock:
        _board = None


def news() -> None:
    """A node has other weights now: look anew as soon as that costs no more than its part of this process's time."""
    with _lock:
        if _board is not None:
            _board.good_for = _board.least


def data_nodes() -> list[str]:
    """Ids of the nodes that fetch and keep every version. One query."""
    rows = Node.objects.filter(removed_at__isnull=True, fetches__isnull=False).order_by("id")
    return [node_id for node_id, modules in rows.values_list("id", "modules") if _runs_data(modules)]


def fetching_nodes() -> list[str]:
    """Ids of the nodes that have orders which are not whole yet. One query."""
    rows = Node.objects.filter(removed_at__isnull=True, fetches__isnull=False).exclude(fetches=[])
    return list(rows.order_by("id").values_list("id", flat=True))


def version_state(version_id: str, *, now: float | None = None) -> VersionState:
    """Raises Refused `version_unknown`. Four queries, however many nodes and versions; some more where reports are new."""
    board = _Board(database_now() if now is None else now)
    size = board.sizes.get(version_id)
    if size is None:
        raise Refused(Kind.NOT_FOUND, "version_unknown", f"there are no weights {version_id[:60]}", param="version")
    return _state(board.sharing(version_id), board, size)


def _state(sharing: Sharing, board: _Board, size: int) -> VersionState:
    version = sharing.version
    getting = [(site, site.fetches[version]) for site in board.sites if version in site.fetches]
    moving = tuple(sorted(site.name for site, fetch in getting if fetch.moving))
    holders = tuple(sorted(site.name for site in sharing.holders.values()))
    if holders:
        return VersionState(
            version_id=version, whole=True, size=size, there=size, holders=holders, fetching=moving
        )  # fmt: skip
    first = sharing.elected
    if first is None:
        told = sharing.order(Site(id="", name=""))
        return VersionState(version_id=version, size=size, code=told.code, message=told.message)
    fetch = first.fetches.get(version) or Fetch(version=version)
    text = f"node {first.name}: {fetch.message}" if fetch.failed_at and fetch.message else ""
    return VersionState(
        version_id=version, size=size, there=fetch.there, shared=fetch.shared, rate=fetch.rate, code=fetch.code if text else "", message=text,
        fetching=moving,
    )  # fmt: skip


def fetches_of(rows: list[dict[str, Any]] | None) -> tuple[Fetch, ...]:
    """Fetches as a column keeps them."""
    return tuple(Fetch(**known_fields(Fetch, item)) for item in rows or ())


def fetch_rows(fetches: Iterable[Fetch]) -> list[dict[str, Any]]:
    return [asdict(item) for item in fetches]


def site_of(node: Node) -> Site:
    """A node of which `fetches` is not None."""
    return _site(node, node.name, node.address, node.modules, node.fetches or [])


def _site(
    told: holdings.Told, name: str, address: str, modules: list[dict[str, Any]], fetches: list[dict[str, Any]]
) -> Site:
    return Site(
        id=told.id,
        name=name,
        address=address,
        data=_runs_data(modules),
        has=holdings.versions_of(told) if told.weights_mark else frozenset(),
        fetches={item.version: item for item in fetches_of(fetches)},
    )


def _sites(now: float) -> Iterator[Site]:
    """Nodes that are heard and know how to fetch. Two queries, and some where reports are new."""
    listening = listening_of(ClusterIdentity.objects.filter(id=ClusterIdentity.ONLY).first())
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, name, address, modules, weights_mark, last_seen_at, fetches FROM cluster_node "
            "WHERE removed_at IS NULL AND fetches IS NOT NULL ORDER BY id"
        )
        found = cursor.fetchall()
    rows = []
    for node_id, name, address, modules, mark, seen, fetches in found:
        row = _Row(node_id, mark, seen.replace(tzinfo=UTC) if seen is not None and seen.tzinfo is None else seen)
        if node_state_of(row, listening, now) is NodeState.ONLINE:
            rows.append((row, name, address, modules, fetches))
    holdings.read([row for row, *_ in rows])
    read: dict[str, Any] = {}  # most nodes say the same
    for row, name, address, modules, fetches in rows:
        for text in (modules, fetches):
            if text not in read:
                read[text] = orjson.loads(text)
        yield _site(row, name, address, read[modules], read[fetches])


@dataclass(frozen=True)
class _Row:
    """Of a node's row, what its state and its report are found by."""

    id: str
    weights_mark: str
    last_seen_at: datetime | None


def _current(mark: str, now: float) -> _Board:
    """Under the lock."""
    global _board
    if _board is None or _board.mark != mark or not 0 <= now - _board.now < _board.good_for:
        _board = _Board(now, mark)
    return _board


def _runs_data(modules: Iterable[Mapping[str, Any]]) -> bool:
    return any(item["name"] == Module.DATA and item.get("state") == ModuleState.RUNNING for item in modules)


def _versions_of(serve: Mapping[str, Any]) -> set[str]:
    """Versions that an engine needs, of what a row keeps of it."""
    files = [serve.get("weights") or {}, *(item["weights"] for item in serve.get("adapters") or ())]
    return {item["version"] for item in files if item.get("version")}
