"""Forms with files: read while they pass, however they are cut; what could be read in two ways is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_site.lib.errors import Refused
from routing.domain.multipart import KEPT, MOST_HEADERS, Scanner, boundary_of

NAMES = st.sampled_from(["model", "file", "prompt", "x y", "é"])
VALUES = st.binary(max_size=40) | st.sampled_from([b"", b"\r\n", b"--XX", b"\r\n--X", b"\r\n--XXX\r", b"--"])
PARTS = st.lists(st.tuples(NAMES, st.booleans(), VALUES), max_size=5)


def form(parts: list[tuple[str, bool, bytes]], boundary: bytes = b"XXX") -> bytes:
    out = b""
    for name, file, value in parts:
        more = b'; filename="a.wav"\r\nContent-Type: audio/wav' if file else b""
        out += b'--%b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n' % (
            boundary,
            name.encode(),
            more,
            value,
        )
    return out + b"--" + boundary + b"--\r\n"


@given(PARTS, st.lists(st.integers(0, 1000), max_size=20))
def test_every_field_is_found_where_it_stands_however_the_form_is_cut(
    parts: list[tuple[str, bool, bytes]], places: list[int]
) -> None:
    parts = [part for part in parts if b"\r\n--XXX" not in part[2] + b"\r\n"]
    data = form(parts)
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    scanner = Scanner(b"XXX")
    found = [field for a, b in itertools.pairwise(at) for field in scanner.feed(data[a:b])]
    assert scanner.done
    assert [(field.name, field.file) for field in found] == [(name, file) for name, file, _ in parts]
    for field, (_, file, value) in zip(found, parts, strict=True):
        assert data[field.start : field.end] == value
        assert field.value == (b"" if file else value)


@given(st.binary(max_size=300), st.integers(0, 300))
def test_no_body_makes_it_fall_and_little_is_kept(body: bytes, at: int) -> None:
    scanner = Scanner(b"XXX")
    try:
        for piece in (b"--XXX\r\n", body[:at], body[at:]):
            scanner.feed(piece)
    except Refused as refused:
        assert refused.code == "invalid_multipart"  # noqa: PT017


def test_of_a_long_file_nothing_is_kept() -> None:
    scanner = Scanner(b"XXX")
    scanner.feed(form([("file", True, b"")])[:-11])
    for _ in range(100):
        assert scanner.feed(b"\r\n-" * 10_000) == []
        assert len(scanner._buffer) < 100
    field = Scanner(b"XXX").feed(form([("text", False, b"x" * 100_000)]))[0]
    assert (len(field.value), field.end - field.start) == (KEPT, 100_000)


HEAD = b"--XXX\r\nContent-Disposition: "


@pytest.mark.parametrize(
    "body",
    [
        b'preamble\r\n--XXX\r\nContent-Disposition: form-data; name="model"\r\n\r\nx\r\n--XXX--',
        b"--XXXX\r\n",
        HEAD + b"form-data\r\n\r\nx",
        HEAD + b'attachment; name="model"\r\n\r\nx',
        HEAD + b'form-data; name="model"; name="other"\r\n\r\nx',
        HEAD + b'form-data; name="mo\\"del"\r\n\r\nx',
        HEAD + b'form-data; name="x"; filename="; name=model"\r\n\r\nx',
        HEAD + b'form-data; name="a"\r\nContent-Disposition: form-data; name="model"\r\n\r\nx',
        HEAD + b'form-data; name="a"\r\n folded: x\r\n\r\nx',
        HEAD + b'form-data; name="a"; weird="model"\r\n\r\nx',
        HEAD + b"x" * (MOST_HEADERS + 1),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as caught:
        Scanner(b"XXX").feed(body)
    assert caught.value.code == "invalid_multipart"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"application/json",
        b"multipart/form-data",
        b"multipart/mixed; boundary=x",
        b"multipart/form-data; boundary=a; boundary=b",
        b'multipart/form-data; boundary="a',
        b"multipart/form-data; boundary=" + b"x" * 71,
    ],
)
def test_a_boundary_is_plain_or_refused(value: bytes) -> None:
    with pytest.raises(Refused):
        boundary_of(value)


def test_a_boundary_may_be_quoted() -> None:
    assert boundary_of(b'Multipart/Form-Data; boundary="a=b"') == b"a=b"
    assert boundary_of(b"multipart/form-data; boundary=----WebKit123") == b"----WebKit123"
