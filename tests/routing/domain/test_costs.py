"""routing.domain.costs: whole micro-units, never a float."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.domain.costs import cost, told
from routing.domain.meter import Counts
from routing.domain.snapshot import PriceEntry

PRICE = PriceEntry(input=150_000, output=600_000, cached=75_000, currency="USD")


@pytest.mark.parametrize(
    ("price", "counts", "micro"),
    [
        (None, Counts(prompt=5, completion=5), None),
        (PRICE, None, None),
        (PRICE, Counts(), None),
        (PRICE, Counts(prompt=1_000_000, completion=0), 150_000),
        (PRICE, Counts(prompt=1_000_000, completion=1_000_000, cached=400_000), 90_000 + 30_000 + 600_000),
        (PRICE, Counts(prompt=10, cached=99), 1),  # 0.75: no more comes from the cache than was sent
        (PRICE, Counts(completion=2, estimated=True), 1),  # a cut stream: what passed of it
        (PRICE, Counts(prompt=3), 0),  # 0.45
        (PriceEntry(input=100_000, output=0), Counts(prompt=5), 1),  # half a micro-unit goes up
        (PriceEntry(input=100_000, output=0), Counts(prompt=20, cached=20), 2),  # no price of its own
        (PriceEntry(input=0, output=0), Counts(prompt=20, completion=20), 0),
    ],
)
def test_what_a_request_costs(price: PriceEntry | None, counts: Counts | None, micro: int | None) -> None:
    assert cost(price, counts) == micro


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**10))
def test_it_is_what_decimals_would_say(prompt: int, completion: int, cached: int, price: int) -> None:
    entry = PriceEntry(input=price, output=2 * price, cached=price // 2)
    cached = min(cached, prompt)
    exact = Decimal((prompt - cached) * price + cached * (price // 2) + completion * 2 * price) / 1_000_000
    micro = cost(entry, Counts(prompt=prompt, completion=completion, cached=cached))
    assert micro == int(exact.quantize(Decimal(1), ROUND_HALF_UP))


def test_it_is_told_in_whole_units() -> None:
    assert told(123, "USD") == "0.000123 USD"
    assert told(12_000_001, "") == "12.000001"
