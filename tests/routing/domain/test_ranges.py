"""What a Range header names, over a table (RFC 9110 §14)."""

from __future__ import annotations

import pytest

from routing.domain.ranges import Asked, asked

WHOLE = Asked(0, 100)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("", WHOLE),
        ("bytes=0-99", Asked(0, 100, part=True)),
        ("bytes=0-", Asked(0, 100, part=True)),
        ("bytes=10-19", Asked(10, 20, part=True)),
        ("bytes=99-", Asked(99, 100, part=True)),
        ("bytes=90-1000000", Asked(90, 100, part=True)),
        ("bytes=-10", Asked(90, 100, part=True)),
        ("bytes=-1000", Asked(0, 100, part=True)),
        ("bytes = 5-6", Asked(5, 7, part=True)),
        ("bytes=100-", None),
        ("bytes=100-200", None),
        ("bytes=-0", None),
        ("bytes=9-5", WHOLE),
        ("bytes=1-2,5-6", WHOLE),
        ("bytes=-", WHOLE),
        ("bytes=a-b", WHOLE),
        ("items=1-2", WHOLE),
        ("bytes=1-99999999999999999999999", WHOLE),
    ],
)
def test_a_range_is_read(header: str, found: Asked | None) -> None:
    assert asked(header, 100) == found


def test_of_an_empty_file_no_range_is_there() -> None:
    assert asked("", 0) == Asked(0, 0)
    assert asked("bytes=0-", 0) is None
    assert asked("bytes=-5", 0) is None
