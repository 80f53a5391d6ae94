"""What a replica takes against what it holds."""

from __future__ import annotations

from llmgw_site.lib.units import format_bytes

TOLERATED = 20
"""A replica may take one part in so many more than it holds, before that is worth a word."""


def warning(reserved: int, measured: int | None) -> str:
    """Words where a replica takes more memory than it holds; empty where all is well or nothing is told. Bytes."""
    if measured is None or measured <= reserved + reserved // TOLERATED:
        return ""
    return (
        f"it takes {format_bytes(measured)} and holds {format_bytes(reserved)}: its node may run short; "
        "replicas that start from now on hold what was measured"
    )
