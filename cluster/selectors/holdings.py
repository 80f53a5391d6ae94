"""What nodes report of weights, as decisions are made from it.

Reports are long and seldom new, and many nodes say the same: each is read once, and what follows from it is worked out
once for as long as the models are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol
from weakref import WeakValueDictionary

import orjson
from django.conf import settings
from django.db import connection

from catalog.domain.manifests import VERSION
from catalog.domain.types import ModelView
from cluster.domain.holdings import ALL_ASKED_FOR, Holding, Lie, Sought, asked_for, holding
from cluster.models import Node

_AT_ONCE = 500
"""Reports that are read in one query."""


class Told(Protocol):
    """Of a node's row, what is looked at here."""

    @property
    def id(self) -> str: ...

    @property
    def weights_mark(self) -> str: ...

    @property
    def last_seen_at(self) -> datetime | None: ...


class _Report:
    """One report, of all nodes that say it. `versions`: ids of those that are whole there; `made`: what follows from it, and for
    which models."""

    __slots__ = ("__weakref__", "made", "told", "versions")

    def __init__(self, text: str) -> None:
        self.told = {item["path"]: Lie(size=item["size"], folder=item["folder"]) for item in orjson.loads(text)}
        self.versions = frozenset(
            path for path, lie in self.told.items() if lie.size is not None and VERSION.fullmatch(path)
        )
        self.made: tuple[object, Holding] = (None, Holding())


_reports: dict[str, tuple[str, _Report]] = {}
"""By node id: the mark of the report that was read last, and the report."""
_same: WeakValueDictionary[str, _Report] = WeakValueDictionary()
"""Reports by what they say."""
_last_basis: object = None


def sought(model: ModelView) -> Sought:
    if model.version_id:
        return Sought(path=model.version_id, fetched=True)
    return Sought(path=model.weights_path, size=model.weights_size or 0, changed_at=model.updated_at)


class Holdings:
    """What nodes have of the weights of these models at this moment."""

    def __init__(self, models: Iterable[Sought], now: float) -> None:
        global _last_basis
        self._sought = tuple(sorted((item for item in models if item.path), key=lambda item: item.name))
        self._now, self._most = now, asked_for(settings.CONFIG.heartbeat)
        fresh = {item.name for item in self._sought if item.fresh(now, self._most)}
        basis = tuple((item.path, item.size, item.name in fresh) for item in self._sought)
        self._basis = _last_basis = _last_basis if _last_basis == basis else basis  # so that it is compared at a glance
        self._read = False
        self._new = [item for item in self._sought if item.name in fresh]
        self.unsaid: set[str] = set()
        """Names of new weights of which a node that is heard, and was looked at here (`of`), has not said yet whether it has
        them."""
        self.awaited = {item.name for item in self._new if item.fresh(now, ALL_ASKED_FOR)}
        """Names of those that are so new that what is not said yet is waited for."""

    def of(self, node: Told) -> Holding | None:
        """None: the node tells nothing. Some queries where a report is new, else none."""
        if not node.weights_mark:
            return None
        kept = _reports.get(node.id)
        if (kept is None or kept[0] != node.weights_mark) and not self._read:
            self._read = True
            _read_new()
            kept = _reports.get(node.id)
        if kept is None:
            return None  # taken out at this moment
        basis, found = kept[1].made
        if basis is not self._basis:
            found = holding(kept[1].told, self._sought, self._now, self._most)
            kept[1].made = self._basis, found
        if self._new and self._heard(node):
            self.unsaid |= {item.name for item in self._new if item.path not in kept[1].told}
        return found

    def _heard(self, node: Told) -> bool:
        seen = node.last_seen_at
        return seen is not None and self._now - seen.timestamp() < settings.CONFIG.stale_after


def read(nodes: Iterable[Told]) -> None:
    """Read the reports of these nodes that are new. No query where none is."""
    if any(node.weights_mark and _known(node) is None for node in nodes):
        _read_new()


def versions_of(node: Told) -> frozenset[str]:
    """Ids of the versions that a node has whole. One query where its report is new."""
    report = _known(node)
    if report is None:
        found = _rows([node.id])
        _reports.update(found)
        report = found[node.id][1] if node.id in found else None
    return report.versions if report is not None else frozenset()


def _known(node: Told) -> _Report | None:
    kept = _reports.get(node.id)
    return kept[1] if kept is not None and kept[0] == node.weights_mark else None


def _read_new() -> None:
    """Read the reports that are new; forget those of nodes that are gone."""
    global _reports
    telling = Node.objects.filter(removed_at__isnull=True).exclude(weights_mark="").order_by()
    marks = dict(telling.values_list("id", "weights_mark"))
    found = {node_id: _reports[node_id] for node_id in marks if node_id in _reports}
    new = [node_id for node_id, mark in marks.items() if node_id not in found or found[node_id][0] != mark]
    for start in range(0, len(new), _AT_ONCE):
        found |= _rows(new[start : start + _AT_ONCE])
    _reports = found


def _rows(node_ids: Sequence[str]) -> dict[str, tuple[str, _Report]]:
    found = {}
    with connection.cursor() as cursor:
        asked = ", ".join(["%s"] * len(node_ids))
        cursor.execute(f"SELECT id, weights_mark, weights FROM cluster_node WHERE id IN ({asked})", list(node_ids))  # noqa: S608
        for node_id, mark, text in cursor.fetchall():
            report = _same.get(text)
            if report is None:
                report = _same[text] = _Report(text)
            found[node_id] = mark, report
    return found
