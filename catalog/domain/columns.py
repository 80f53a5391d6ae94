"""Values that a column or another process keeps, of this version of the program or of a newer one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def known_fields(kind: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is kept of a dataclass the fields that this version knows: while a cluster is upgraded, and after an upgrade was
    taken back, what a newer version wrote is read by an older one."""
    return {name: data[name] for name in kind.__dataclass_fields__ if name in data}
