"""routing.domain.forwarded: whose request it is that came by a proxy."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from routing.domain.forwarded import client

TRUSTED = tuple(ip_network(text) for text in ("10.0.0.0/8", "2001:db8:1::/48"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "says"),
    [
        ("192.0.2.9", ["203.0.113.1"], "192.0.2.9"),  # no proxy of ours: it may say what it likes
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.1"], "203.0.113.1"),
        ("10.0.0.1", ["198.51.100.7, 203.0.113.1"], "203.0.113.1"),  # the left one is the client's own word
        ("10.0.0.1", ["198.51.100.7", "203.0.113.1, 10.0.0.2"], "203.0.113.1"),  # two proxies, two lines
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),  # somebody within
        ("10.0.0.1", ["203.0.113.1:4711"], "203.0.113.1"),
        ("10.0.0.1", ["[2001:db8::7]:4711"], "2001:db8::7"),
        ("2001:db8:1::1", ["2001:db8::7"], "2001:db8::7"),
        ("::ffff:10.0.0.1", ["203.0.113.1"], "203.0.113.1"),  # a listener of both families
        ("10.0.0.1", ["203.0.113.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.1, <script>, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("unknown", ["203.0.113.1"], "unknown"),
    ],
)
def test_only_what_trusted_proxies_heard_counts(peer: str, forwarded: list[str], says: str) -> None:
    assert client(peer, forwarded, TRUSTED) == says
    assert client(peer, forwarded, ()) == peer
