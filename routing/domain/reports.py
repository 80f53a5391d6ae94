"""What a report adds up, and by what: rows of sums folded by the scopes that their projects are in. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from routing.domain.rollups import SUMS

COLUMNS = {
    "day": "day", "month": "month", "key": "key_id", "model": "model_asked", "served": "model_served",
    "target": "alias_target", "project": "project_id", "team": "project_id", "organisation": "project_id",
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


def project_names(projects: Mapping[str, Project]) -> dict[str, str]:
    """By id: the name, behind its team's where another project has the same, and that one's organisation's where even so."""
    names = {id: item.name for id, item in projects.items()}
    names = _longer(names, {id: f"{item.team_name}/{item.name}" for id, item in projects.items()})
    return _longer(names, {id: f"{item.organisation_name}/{names[id]}" for id, item in projects.items()})


def _longer(names: Mapping[str, str], instead: Mapping[str, str]) -> dict[str, str]:
    """`names`, of which those that stand there several times are replaced."""
    often = Counter(names.values())
    return {id: name if often[name] == 1 else instead[id] for id, name in names.items()}


def fold(
    rows: Iterable[tuple[Any, ...]], columns: Sequence[str], by: Sequence[str], projects: Mapping[str, Project]
) -> list[dict[str, Any]]:
    """One row for each combination of what it is `by`, each sum added up; what cost most first, days and months in their order.

    `rows` have the values of `columns`, and behind them the sums. Each row told has the values under their names; scopes by id.
    """
    places = [(columns.index(COLUMNS[name]), _reading(name, projects)) for name in by]
    width, found = len(columns), dict[tuple[Any, ...], tuple[int, ...]]()
    for row in rows:
        key = tuple(row[place] if read is None else read(row[place]) for place, read in places)
        before = found.get(key)
        found[key] = row[width:] if before is None else tuple(a + b for a, b in zip(before, row[width:], strict=True))
    times = [by.index(name) for name in ("month", "day") if name in by]
    ordered = sorted(found.items(), key=lambda item: _order(item[0], item[1], times))
    names = (*by, *SUMS)
    return [dict(zip(names, (*key, *sums), strict=True)) for key, sums in ordered]


def total(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    found = dict.fromkeys(SUMS, 0)
    for row in rows:
        for name in SUMS:
            found[name] += row[name]
    return found


def _reading(name: str, projects: Mapping[str, Project]) -> Callable[[Any], Any] | None:
    """What is made of a column's value; None: nothing."""
    if name == "month":
        return lambda value: str(value)[:7]
    if name in ("team", "organisation"):
        return lambda value: getattr(projects.get(value, _GONE), name)
    return None


_GONE = Project()
_COST, _REQUESTS = SUMS.index("cost"), SUMS.index("requests")


def _order(key: tuple[Any, ...], sums: tuple[int, ...], times: Sequence[int]) -> tuple[Any, ...]:
    return (*(str(key[place]) for place in times), -sums[_COST], -sums[_REQUESTS], *map(str, key))
