"""What nodes report of their fetches, as their rows keep it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from catalog.domain.manifests import MAX_SIZE, VERSION
from cluster.domain.fetching import FetchReport, remember
from cluster.selectors.mirror import fetch_rows, fetches_of

_MOST, _TEXT, _FAILED = 1000, 500, 32
"""Fetches, characters of a sentence, and holders that failed, that are kept of a report."""


def kept(
    before: list[dict[str, Any]] | None, reports: tuple[FetchReport, ...] | None, now: float
) -> list[dict[str, Any]] | None:
    """What a node's row is to hold after its report; the same value where nothing is new. None: it fetches nothing."""
    if reports is None:
        return None
    if not reports:
        return []
    known = [_bounded(item) for item in reports[:_MOST] if VERSION.fullmatch(item.version)]
    return fetch_rows(remember(fetches_of(before), known, now))


def _bounded(told: FetchReport) -> FetchReport:
    """What a column can hold, and pages can show, of what a node says."""
    rate = told.rate if told.rate is not None and math.isfinite(told.rate) else None
    return replace(
        told,
        size=min(max(0, told.size), MAX_SIZE),
        there=min(max(0, told.there), MAX_SIZE),
        rate=None if rate is None else min(max(0.0, rate), float(MAX_SIZE)),
        code=told.code[:64],
        message=told.message[:_TEXT],
        source=told.source[:64],
        failed=tuple(item[:64] for item in told.failed[:_FAILED]),
        shared=min(max(0, told.shared), MAX_SIZE),
    )
