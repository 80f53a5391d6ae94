"""The figures on top of the overview, from the minutes behind us. Pure: rows in, tiles out."""

from __future__ import annotations

from collections.abc import Sequence

from llmgw_site.console.figures import middle, spark
from llmgw_site.console.selectors import Cluster, Minute
from llmgw_site.console.views import Tile

WINDOW = 30
"""Minutes that the curves show."""
RECENT = 5
"""Minutes that the figures beside them are of, the running one included."""


def tiles(now: Cluster, minutes: Sequence[Minute], *, into_minute: float) -> tuple[Tile, ...]:
    """`minutes`: oldest first, the running one last, which is `into_minute` seconds old. Curves end with the last
    whole minute, so that they do not dip at their end."""
    whole, recent = minutes[:-1], minutes[-RECENT:]
    seconds = (len(recent) - 1) * 60 + into_minute
    requests = sum(minute.requests for minute in recent)
    tokens = sum(minute.tokens for minute in recent)
    first = middle(minute.first_token_s for minute in recent)
    total, failed = sum(m.requests for m in minutes), sum(m.failed for m in minutes)
    window = f"{len(minutes)} min"
    return (
        Tile(
            title="In flight now",
            value=f"{now.in_flight}" if now.slots or now.in_flight else "",
            unit=f"of {now.slots} at once" if now.slots else "",
            note="requests at the engines" if now.slots else "",
        ),
        Tile(
            title="Requests",
            value=_number(requests * 60 / seconds) if seconds else "",
            unit="per minute",
            note=f"{total:,} in {window}" + (f", {failed:,} failed" if failed else ""),
            spark=spark([minute.requests for minute in whole]) if total else None,
        ),
        Tile(
            title="Output",
            value=_number(tokens / seconds) if tokens and seconds else "",
            unit="tokens/s",
            note=f"{sum(m.tokens for m in minutes):,} tokens in {window}",
            spark=spark([minute.tokens / 60 for minute in whole]) if total else None,
        ),
        Tile(
            title="First token",
            value="" if first is None else f"{first * 1000:,.0f}" if first < 10 else f"{first:,.1f}",
            unit="ms median" if first is None or first < 10 else "s median",
            note="" if first is None else f"of the last {RECENT} min",
            spark=spark([minute.first_token_s for minute in whole]) if total else None,
        ),
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"
