"""Addresses of nodes and engines are taken out of what clients are told."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.modules import MapNode, ModuleMap
from routing.gateway.edge import MOST_KNOWN, Redactor, hosts_of, redact_header, redact_text
from routing.gateway.table import View

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
        (r"\u201c10.0.0.5\u201d", r"\u201c[internal]\u201d"),
        ("next=http%3A%2F%2F10.0.0.5%3A80", "next=http%3A%2F%2F[internal]%3A80"),
        ("from ::ffff:10.0.0.5", "from [internal]"),
        ("fe80::1: refused; fe80::1, fe80::1.", "[internal]: refused; [internal], [internal]."),
        ("fe80::1:8880 and fe80::12 and fe80::1:2:3", "[internal] and fe80::12 and fe80::1:2:3"),
        ("https://[fe80::1]:8880/ and fe80::1", "[internal]/ and [internal]"),
        ("http://node1/x, node1:8880", "[internal]/x, [internal]"),
        ("the node1 is a word here", "the node1 is a word here"),
        ("110.0.0.5 10.0.0.55 x10.0.0.5 10.0.0.5.nip.io", "110.0.0.5 10.0.0.55 x10.0.0.5 10.0.0.5.nip.io"),
        ("version 10.0.0 of https://example.org:8880/", "version 10.0.0 of https://example.org:8880/"),
    ],
)
def test_addresses_go_and_words_stay(text: str, told: str) -> None:
    assert redact_text(text.encode(), HOSTS).decode() == told


@pytest.mark.parametrize("pattern", ["a+", "a.", "a..", "f", "f:", ":", "[::", "\\n", "%2f", "a-", "_", "x://"])
def test_a_text_takes_time_in_proportion_to_its_length(pattern: str) -> None:
    def seconds(count: int) -> float:
        text = (pattern * count)[:count].encode()
        began = time.process_time()
        redact_text(text, HOSTS)
        return time.process_time() - began

    seconds(1000)
    assert min(seconds(64 << 10) for _ in range(2)) < 64 * max(min(seconds(4 << 10) for _ in range(3)), 0.002)


def test_an_ipv6_address_goes_in_each_usual_spelling() -> None:
    nodes = (
        MapNode(node_id="a", name="a", address="http://[FD00:0::a:1]:8880", public_key=""),
        MapNode(node_id="b", name="b", address="http://[fe80::1%25eth0]:8880", public_key=""),
    )
    hosts = hosts_of(ModuleMap(version="1", made_at=0.0, nodes=nodes), View())
    for text in (b"fd00::a:1", b"FD00:0::A:1", b"fd00:0:0:0:0:0:a:1", b"[fd00::a:1]:8880", b"fe80::1", b"fe80::1:8880"):
        assert redact_text(b"at " + text + b" now", hosts) == b"at [internal] now"


def test_headers_that_name_an_address_go_and_a_redirect_keeps_its_path() -> None:
    def told(name: bytes, value: bytes) -> bytes | None:
        return redact_header(name, value, HOSTS)

    assert told(b"location", b"http://10.0.0.5:8880//evil.example/x?y=1") == b"/evil.example/x?y=1"
    assert told(b"location", b"https://example.org/x") == b"https://example.org/x"
    assert told(b"location", b"//10.0.0.5") == b"/"
    assert told(b"x-upstream", b"10.0.0.5:9000") is None
    assert told(b"x-kept", b"10.0.0.6") == b"10.0.0.6"
    assert told(b"x-request-id", b"10.0.0.5") == b"10.0.0.5"  # what the client calls its request


def test_what_is_internal_follows_map_and_engines() -> None:
    maps = [ModuleMap(version="1", made_at=0.0)]
    redactor = Redactor(lambda: maps[-1], View)
    headers = [(b"content-type", b"text/plain"), (b"x-from", b"n1.lan:1"), (b"content-length", b"1")]
    assert redactor.headers(headers) is headers
    node = MapNode(node_id="n", name="n", address="https://N1.lan:8880", public_key="")
    maps.append(ModuleMap(version="2", made_at=0.0, nodes=(node, replace(node, address="http://[broken"))))
    for _ in range(2):
        assert redactor.headers(headers) == [headers[0], headers[2]]
    assert redactor.text(b"at n1.lan:8880") == b"at [internal]"
    maps.append(ModuleMap(version="3", made_at=0.0))
    assert redactor.headers(headers) == headers
    maps.append(ModuleMap(version="4", made_at=0.0, nodes=(node,)))
    for number in range(2 * MOST_KNOWN):
        assert redactor.headers([(b"x-n", b"%d" % number)])
    assert len(redactor._known) <= MOST_KNOWN


@given(
    before=st.sampled_from([b"", b" ", b'"', b"//", b"=", b"(", b"\\n"]),
    after=st.sampled_from([b"", b":1", b'"', b"/p", b",", b"."]),
    noise=st.binary(max_size=30),
)
def test_no_spelling_of_an_address_gets_through(before: bytes, after: bytes, noise: bytes) -> None:
    told = redact_text(noise + b" " + before + b"10.0.0.5" + after + b" " + noise, frozenset({b"10.0.0.5"}))
    assert b"10.0.0.5" not in told or b"10.0.0.5" in noise
