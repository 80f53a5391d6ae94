"""How far the fetching of weights is: who has a version, who fetches it, and why nobody does."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.models import Version
from cluster.models import Node
from llmgw_site.lib.errors import Kind, Refused


@dataclass(frozen=True, kw_only=True)
class VersionState:
    """A version as nodes report it. `whole`: a node that is heard has all of it, so that others can get it.

    `size`, `there`: bytes of it, and bytes on the node that is furthest; `rate`: bytes a second there, None: nothing moves.
    `holders`: names of the nodes that have it. `code` and `message`: why nothing moves, where that is known.
    """

    version_id: str
    whole: bool = False
    size: int = 0
    there: int = 0
    rate: float | None = None
    code: str = ""
    message: str = ""
    holders: tuple[str, ...] = ()


def version_state(version_id: str) -> VersionState:
    """Raises Refused `version_unknown`."""
    size = Version.objects.filter(id=version_id).values_list("size", flat=True).first()
    if size is None:
        raise Refused(Kind.NOT_FOUND, "version_unknown", f"there are no weights {version_id[:60]}", param="version")
    told = Node.objects.filter(removed_at__isnull=True).order_by("name").values_list("name", "weights", "fetches")
    holders, best = [], None
    for name, weights, fetches in told:
        if any(item["path"] == version_id and item["size"] is not None for item in weights):
            holders.append(name)
        for item in fetches:
            if item["version"] == version_id and (best is None or item["there"] > best["there"]):
                best = item
    if holders or best is None:
        there = size if holders else 0
        return VersionState(version_id=version_id, whole=bool(holders), size=size, there=there, holders=tuple(holders))
    return VersionState(
        version_id=version_id,
        size=size,
        there=best["there"],
        rate=best["rate"],
        code=best["code"],
        message=best["message"],
    )
