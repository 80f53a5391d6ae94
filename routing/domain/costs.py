"""What a request costs: tokens times the price of its model, in whole micro-units of the cluster's currency.

A price is micro-units for a million tokens: 0.15 USD a million is 150,000. So nothing here is ever a float, and sums of
costs are exact.
"""

from __future__ import annotations

from routing.domain.meter import Counts
from routing.domain.snapshot import PriceEntry

MILLION = 1_000_000


def cost(price: PriceEntry | None, counts: Counts | None) -> int | None:
    """Micro-units; None is not known. Tokens that nobody counted are not charged: a cut answer costs what passed of it, and
    its prompt as many tokens as that has at least.

    1. no price, or nothing was counted: not known
    2. tokens of the prompt that came from the engine's cache cost their own price, where there is one
    3. half a micro-unit is rounded up, once for the whole request
    """
    if price is None or counts is None or (counts.prompt is None and counts.completion is None):  # 1
        return None
    sent = counts.prompt or 0
    from_cache = min(counts.cached or 0, sent)  # 2
    each = price.input if price.cached is None else price.cached
    total = (sent - from_cache) * price.input + from_cache * each + (counts.completion or 0) * price.output
    return (2 * total + MILLION) // (2 * MILLION)  # 3


def told(micro: int, currency: str) -> str:
    """An amount as headers and refusals tell it: `0.000123 USD`."""
    return f"{micro // MILLION}.{micro % MILLION:06d} {currency}".rstrip()
