"""Whose request it is that came by a proxy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network


def client(peer: str, forwarded: Sequence[str], trusted: Iterable[Network]) -> str:
    """The address that a request came from. `peer`: who holds the connection; `forwarded`: the lines of X-Forwarded-For, to which
    each proxy adds on the right whom it heard.

    1. the peer is no proxy that is trusted: it is the peer, whatever it says
    2. else the last that such a proxy heard and that is none of them; what stands further left anybody could have written
    3. all of them are: the first of these
    """
    networks = tuple(trusted)
    found = _address(peer)
    if found is None or not _within(found, networks):  # 1
        return peer
    told = [part.strip() for line in forwarded for part in line.split(",")]
    for text in reversed(told):
        heard = _address(_bare(text))
        if heard is None:
            break  # nobody that could be named: it is whoever said so
        found = heard
        if not _within(heard, networks):  # 2
            break
    return str(found)  # 2, 3


def _bare(text: str) -> str:
    """Without its port, which some proxies add: `192.0.2.1:4711`, `[2001:db8::1]:4711`."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def _within(address: IPv4Address | IPv6Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)
