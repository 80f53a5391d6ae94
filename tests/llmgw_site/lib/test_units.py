"""llmgw_site.lib.units: sizes and spans as people write and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_site.lib.units import exact_bytes, format_bytes, format_money, format_seconds, parse_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4096", 4096),
        ("512MiB", 512 << 20),
        ("1.5 GiB", 3 << 29),
        ("20 MB", 20_000_000),
        (" 1k ", 1024),
        ("2T", 2 << 40),
    ],
)
def test_sizes_are_read(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "-1", "1 XB", "MiB", "1e6", "1,5 GiB", "0x10", "9" * 400, "1." + "9" * 400])
def test_what_is_no_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="512MiB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (8 << 30, "8 GiB"),
        (3 << 40, "3 TiB"),
        (1536 << 20, "1536 MiB"),
        (98362433, "98362433"),
        (1 << 10, "1024"),
    ],
)
def test_a_form_gets_a_size_back_as_it_was(count: int, text: str) -> None:
    assert exact_bytes(count) == text
    assert parse_bytes(text) == count


@given(st.integers(0, 1 << 60))
def test_what_is_shown_is_read_back_within_a_tenth(count: int) -> None:
    assert abs(parse_bytes(format_bytes(count)) - count) <= count / 10 + 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0421, "42 ms"),
        (1.26, "1.3 s"),
        (59, "59 s"),
        (75, "1 min 15 s"),
        (3600, "1 h 0 min"),
        (86399, "23 h 59 min"),
        (86400, "1 d 0 h"),
        (332 * 86400 + 7200, "332 d 2 h"),
    ],
)
def test_spans_are_shown(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("micro", "told"),
    [
        (0, "0.00 EUR"),
        (1, "0.000001 EUR"),
        (9_999, "0.009999 EUR"),
        (10_000, "0.01 EUR"),
        (1_005_000, "1.01 EUR"),  # as a float it is a little less, and would be 1.00
        (1_004_999, "1.00 EUR"),
        (999_995_000, "1,000.00 EUR"),
        (12_345_678_901_234_567, "12,345,678,901.23 EUR"),  # no float has all of these digits
        (90_071_992_547_409_930_000, "90,071,992,547,409.93 EUR"),
    ],
)
def test_money_is_told_to_the_cent_and_never_by_a_float(micro: int, told: str) -> None:
    assert format_money(micro, "EUR") == told
