"""Which tests stay on one worker of pytest-xdist, because they share something large that runs."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

TOP = Path(__file__).resolve().parents[1]
_MARK = re.compile(r"""xdist_group\(["'](\w+)["']\)""")


@functools.cache
def group_of(file: str) -> str:
    """The group that a file of tests names (`xdist_group("stack")`), else the conftest beside it; empty if neither does."""
    path = TOP / file
    for place in (path, path.with_name("conftest.py")):
        found = _MARK.search(place.read_text()) if place.is_file() else None
        if found:
            return found[1]
    return ""


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """`--dist loadgroup`: a group goes to one worker as a whole, every other test by itself; large groups first."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0]) or nodeid
