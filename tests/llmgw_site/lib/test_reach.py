"""Which addresses may be reached: tables of the special-purpose registries, and every way to write one inside another."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_site.lib.reach import forms, why_not

NEVER = {
    "169.254.169.254": "a cloud's metadata service",
    "100.100.100.200": "a cloud's metadata service",
    "168.63.129.16": "a cloud's metadata service",
    "fd00:ec2::254": "a cloud's metadata service",
    "::ffff:169.254.169.254": "a cloud's metadata service",
    "64:ff9b::a9fe:a9fe": "a cloud's metadata service",
    "2002:a9fe:a9fe::1": "a cloud's metadata service",
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "::": "unspecified",
    "169.254.1.1": "link-local",
    "fe80::1": "link-local",
    "fe80::5efe:8.8.8.8": "link-local",
    "224.0.0.1": "multicast",
    "ff02::1": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "100::1": "reserved",
}
OPERATOR = {
    "127.0.0.1": "loopback",
    "127.8.9.10": "loopback",
    "::1": "loopback",
    "::127.0.0.1": "loopback",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:0:127.0.0.1": "loopback",
    "10.0.0.1": "private",
    "172.31.255.255": "private",
    "192.168.1.1": "private",
    "100.64.0.1": "private",
    "198.18.0.1": "private",
    "fc00::1": "private",
    "fec0::1": "private",
    "64:ff9b:1::a00:1": "private",
    "64:ff9b::a00:1": "private",
    "2002:a00:1::": "private",
    "2a00::5efe:10.0.0.1": "private",
    "2001:0:4136:e378:8000:63bf:f5ff:fffe": "private",  # Teredo, the client's 10.0.0.1 inverted
}
PUBLIC = [
    "8.8.8.8",
    "2001:4860:4860::8888",
    "64:ff9b::808:808",
    "2002:808:808::1",
    "::ffff:8.8.8.8",
    "172.32.0.1",
    "100.128.0.1",
    "2a00::5efe:8.8.8.8",
]


@pytest.mark.parametrize(("address", "reason"), NEVER.items())
@pytest.mark.parametrize("private", [False, True])
def test_some_addresses_are_never_reached(address: str, reason: str, private: bool) -> None:
    assert why_not(ip_address(address), private=private) == reason


@pytest.mark.parametrize(("address", "reason"), OPERATOR.items())
def test_loopback_and_private_addresses_are_the_operators_to_allow(address: str, reason: str) -> None:
    assert why_not(ip_address(address), private=False) == reason
    assert why_not(ip_address(address), private=True) == ""


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_reached(address: str) -> None:
    assert why_not(ip_address(address), private=False) == ""


WAYS = {
    "mapped": lambda four: IPv6Address(0xFFFF << 32 | int(four)),
    "translated": lambda four: IPv6Address(0xFFFF << 48 | int(four)),
    "nat64": lambda four: IPv6Address(int(IPv6Address("64:ff9b::")) | int(four)),
    "local nat64": lambda four: IPv6Address(int(IPv6Address("64:ff9b:1::")) | int(four)),
    "6to4": lambda four: IPv6Address(0x2002 << 112 | int(four) << 80 | 1),
    "teredo": lambda four: IPv6Address(0x20010000 << 96 | (int(four) ^ 0xFFFFFFFF)),
    "isatap": lambda four: IPv6Address(int(IPv6Address("2a00::5efe:0:0")) | int(four)),
}


@given(four=st.ip_addresses(v=4), way=st.sampled_from(sorted(WAYS)), private=st.booleans())
def test_an_address_inside_another_counts_as_itself(four: IPv4Address, way: str, private: bool) -> None:
    wrapped = WAYS[way](four)
    assert four in forms(wrapped)
    if reason := why_not(four, private=private):
        assert why_not(wrapped, private=private) == reason
