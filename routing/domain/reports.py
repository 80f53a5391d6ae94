"""What a report adds up, and by what: rows of sums folded by the scopes that their projects are in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from routing.domain.rollups import SUMS

COLUMNS = {
    "day": "day", "month": "month", "key": "key_id", "model": "model_asked", "served": "model_served", "project": "project_id",
    "team": "project_id", "organisation": "project_id",
}  # fmt: skip
"""By what there are reports, and the column of the sums that says it; a month is known by its first day."""
MOST_ROWS = 100_000
"""Of one report: more is for whoever reads the records."""


@dataclass(frozen=True, kw_only=True)
class Project:
    """Names of a project and of what it is in, for reports. Empty: it was removed meanwhile."""

    name: str = ""
    team: str = ""
    team_name: str = ""
    organisation: str = ""
    organisation_name: str = ""


def fold(rows: Iterable[Mapping[str, Any]], by: Sequence[str], projects: Mapping[str, Project]) -> list[dict[str, Any]]:
    """One row for each combination of what it is `by`, each sum added up; what cost most first, days and months in their order.

    Each row has the values under their names; scopes by id.
    """
    found: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        key = tuple(_value(name, row, projects) for name in by)
        sums = found.setdefault(key, [0] * len(SUMS))
        for place, name in enumerate(SUMS):
            sums[place] += row[name]
    told = [{**dict(zip(by, key, strict=True)), **dict(zip(SUMS, sums, strict=True))} for key, sums in found.items()]
    return sorted(told, key=lambda row: _order(row, by))


def total(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    found = dict.fromkeys(SUMS, 0)
    for row in rows:
        for name in SUMS:
            found[name] += row[name]
    return found


def _value(name: str, row: Mapping[str, Any], projects: Mapping[str, Project]) -> Any:
    value = row[COLUMNS[name]]
    if name == "month":
        return str(value)[:7]
    if name in ("team", "organisation"):
        return getattr(projects.get(value, Project()), name)
    return value


def _order(row: Mapping[str, Any], by: Sequence[str]) -> tuple[Any, ...]:
    names = tuple(str(row[name]) for name in by)
    times = tuple(str(row[name]) for name in ("month", "day") if name in by)
    return (*times, -row["cost"], -row["requests"], *names)
