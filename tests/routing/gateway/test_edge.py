"""Addresses of nodes and engines are taken out of what clients are told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.gateway.edge import redact, redact_text

HOSTS = frozenset({b"10.0.0.5", b"gpu-1.lan", b"node1", b"fe80::1", b"127.0.0.1"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cannot reach http://10.0.0.5:8880/v1: refused", "cannot reach [internal]/v1: refused"),
        ("10.0.0.5", "[internal]"),
        ("connect to 10.0.0.5:9000.", "connect to [internal]."),
        ("tcp:10.0.0.5 and (GPU-1.LAN)", "tcp:[internal] and ([internal])"),
        ("user@10.0.0.5", "user@[internal]"),
        (r"line\n10.0.0.5\tend", r"line\n[internal]\tend"),
        (r"http:\/\/10.0.0.5\/x", r"http:\/\/[internal]\/x"),
        ("https://[fe80::1]:8880/ and fe80::1", "[internal]/ and [internal]"),
        ("http://node1/x, node1:8880", "[internal]/x, [internal]"),
        ("the node1 is a word here", "the node1 is a word here"),
        ("110.0.0.5 10.0.0.55 x10.0.0.5 10.0.0.5.nip.io", "110.0.0.5 10.0.0.55 x10.0.0.5 10.0.0.5.nip.io"),
        ("version 10.0.0 of https://example.org:8880/", "version 10.0.0 of https://example.org:8880/"),
    ],
)
def test_addresses_go_and_words_stay(text: str, told: str) -> None:
    assert redact_text(text.encode(), HOSTS).decode() == told


def test_headers_go_a_redirect_keeps_its_path_and_the_length_is_right() -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"19"),
        (b"location", b"http://10.0.0.5:8880//evil.example/x?y=1"),
        (b"x-upstream", b"10.0.0.5:9000"),
        (b"x-kept", b"10.0.0.6"),
    ]
    told, body = redact(headers, b"at 127.0.0.1:9000 x", HOSTS)
    assert body == b"at [internal] x"
    assert told == [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"location", b"/evil.example/x?y=1"),
        (b"x-kept", b"10.0.0.6"),
    ]


def test_a_redirect_elsewhere_stays() -> None:
    headers = [(b"location", b"https://example.org/x")]
    assert redact(headers, b"", HOSTS) == (headers, b"")


@given(
    before=st.sampled_from([b"", b" ", b'"', b"//", b"=", b"(", b"\\n"]),
    after=st.sampled_from([b"", b":1", b'"', b"/p", b",", b"."]),
    noise=st.binary(max_size=30),
)
def test_no_spelling_of_an_address_gets_through(before: bytes, after: bytes, noise: bytes) -> None:
    told = redact_text(noise + b" " + before + b"10.0.0.5" + after + b" " + noise, frozenset({b"10.0.0.5"}))
    assert b"10.0.0.5" not in told or b"10.0.0.5" in noise
