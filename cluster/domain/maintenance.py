"""Maintenance of nodes and cards: what an administrator has taken out of placement, and the words for it."""

from __future__ import annotations

from enum import StrEnum


class Maintenance(StrEnum):
    CORDONED = "cordoned"  # nothing new is placed there
    DRAINED = "drained"  # and the replicas that are there move away


def words(state: str, why: str) -> str:
    """`drained for maintenance (disk swap)`."""
    return f"{state} for maintenance" + (f" ({why})" if why else "")
