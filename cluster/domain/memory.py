"""What a replica takes against what it holds."""

from __future__ import annotations

from llmgw_site.lib.units import format_bytes

TOLERATED = 20
"""A replica may take one part in so many more than it holds, before that is worth a word."""
_LEARNED = "replicas that start from now on hold what was measured"


def warning(reserved: int, measured: int | None) -> str:
    """Words where a replica takes more memory than it holds; empty where all is well or nothing is told. Bytes."""
    if not _beyond(reserved, measured):
        return ""
    return (
        f"it takes {format_bytes(measured or 0)} and holds {format_bytes(reserved)}: its node may run short; {_LEARNED}"
    )


def card_warning(held: int, measured: int | None, *, learned: bool) -> str:
    """The same of its cards together. `learned`: what is measured of them replaces what was planned, as it does not for
    an engine that takes all that it is given."""
    if not _beyond(held, measured):
        return ""
    way_out = _LEARNED if learned else "declare more (card_memory)"
    text = f"it takes {format_bytes(measured or 0)} of its cards and holds {format_bytes(held)}"
    return f"{text}: others on them may fail to start or run out of memory; {way_out}"


def _beyond(held: int, measured: int | None) -> bool:
    return measured is not None and measured > held + held // TOLERATED
