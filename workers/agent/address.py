"""The address at which other nodes reach this one: what an administrator set, else the one that faces the controllers.

The kernel is asked which of this machine's addresses it would send from (connect(2) on a datagram socket sends nothing).
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

ELSEWHERE = ("192.0.2.1", "2001:db8::1")
"""Addresses that are nobody's (RFC 5737, RFC 3849): the way to them is the way to the outside."""
Source = Callable[[str, int], str | None]


def source(host: str, port: int) -> str | None:
    """This machine's address on the way to that host; None where there is no way."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError):  # UnicodeError: a name that cannot be one, such as a label of 70 letters
        return None


def find(controllers: Iterable[str], *, source: Source = source) -> str | None:
    """The host to advertise; None where this machine has none that others could use.

    1. the address that faces a controller, first come first; a controller on this machine is faced by loopback
    2. it is link-local, unspecified or none: the address that faces the outside
    """
    for url in controllers:  # 1
        try:
            parts = urlsplit(url)
            found = source(parts.hostname or "", parts.port or 80)
        except ValueError:  # no URL: other ways to it fail in words
            continue
        if found is not None and _usable(found, loopback=True):
            return found
    for host in ELSEWHERE:  # 2
        found = source(host, 9)
        if found is not None and _usable(found, loopback=False):
            return found
    return None


def advertised(
    *, setting: str, bound: str, port: int, controllers: Iterable[str], local: bool, source: Source = source
) -> str | None:
    """This node's base URL for others; None where none is usable now.

    setting: LLMGW_NODE_ADDRESS. bound: what the node listener binds. local: the controllers are this very machine's, so
    the way to them tells nothing of how others come here.

    1. as set
    2. the listener is bound to one address: that one, unless it is link-local
    3. else the address that faces the controllers, or the outside
    """
    if setting:  # 1
        return setting.rstrip("/")
    if not _wildcard(bound) and _usable(bound, loopback=True):  # 2
        return base_url(bound, port)
    found = find(() if local else controllers, source=source)  # 3
    return base_url(found, port) if found else None


_SIOCGIFADDR = 0x8915


def interface_of(host: str) -> str:
    """Name of this machine's network interface that has this IPv4 address; "" where none has, or it is none. Source: netdevice(7)."""
    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has no IPv4 address
                continue
        if socket.inet_ntoa(found[20:24]) == host:
            return name
    return ""


def bind_host(found: str) -> str:
    """What the node listener of a joining machine binds: loopback for loopback, else every address of that family."""
    address = ipaddress.ip_address(found)
    if address.is_loopback:
        return found
    return "0.0.0.0" if address.version == 4 else "::"  # noqa: S104 - signed calls only; it must be reached


def base_url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _usable(host: str, *, loopback: bool) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return True  # a name
    return not (address.is_link_local or address.is_unspecified) and (loopback or not address.is_loopback)


def _wildcard(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")  # noqa: S104 - asks, binds nothing
