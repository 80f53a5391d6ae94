"""Which network addresses an outgoing request may go to, where the address came from a person or from a remote answer.

Sources: the IANA special-purpose address registries (RFC 6890), IPv4-mapped and IPv4-compatible addresses (RFC 4291
section 2.5.5), NAT64 (RFC 6052, RFC 8215), IPv4-translated (RFC 2765), 6to4 (RFC 3056), Teredo (RFC 4380), ISATAP (RFC 5214).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address

METADATA = frozenset(
    map(
        ip_address,
        ("169.254.169.254", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254"),
    )
)
"""Where clouds answer their machines' questions, credentials among the answers."""
METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal"})

_LAST_FOUR = (
    IPv6Network("64:ff9b::/96"),
    IPv6Network("64:ff9b:1::/48"),
    IPv6Network("::ffff:0:0:0/96"),
    IPv6Network("::/96"),
)
"""NAT64, its local prefix, IPv4-translated, IPv4-compatible: the IPv4 address is the last four bytes."""
_SIXTOFOUR = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
_SITE_LOCAL = IPv6Network("fec0::/10")
_SHARED = IPv4Network("100.64.0.0/10")
_THIS_NETWORK = IPv4Network("0.0.0.0/8")
_DISCARD = IPv6Network("100::/64")


def forms(address: Address) -> tuple[Address, ...]:
    """This address and every IPv4 address that is written into it: a translator on the way may go to that one."""
    if isinstance(address, IPv4Address):
        return (address,)
    number = int(address)
    inside: list[Address] = []
    if address.ipv4_mapped is not None:
        inside.append(address.ipv4_mapped)
    if number > 1 and any(address in network for network in _LAST_FOUR):  # :: and ::1 are themselves
        inside.append(IPv4Address(number & 0xFFFFFFFF))
    if address in _SIXTOFOUR:
        inside.append(IPv4Address((number >> 80) & 0xFFFFFFFF))
    if address in _TEREDO:
        inside.append(IPv4Address(~number & 0xFFFFFFFF))
    if (number >> 32) & 0xFCFFFFFF == 0x00005EFE:  # ISATAP: …:0:5efe:a.b.c.d, with or without the "universal" bit
        inside.append(IPv4Address(number & 0xFFFFFFFF))
    return (address, *inside)


def why_not(address: Address, *, private: bool) -> str:
    """Why no request may go to this address, in words that end "… is "; "" where one may.

    1. the cloud's metadata service; link-local, unspecified, multicast, broadcast and reserved ones: never
    2. loopback and private ones: only where `private` says that the operator allows them
    3. every IPv4 address inside an IPv6 one counts as the address itself
    """
    for form in forms(address):
        if form in METADATA:
            return "a cloud's metadata service"
        if form.is_unspecified or (isinstance(form, IPv4Address) and form in _THIS_NETWORK):
            return "unspecified"
        if form.is_link_local:
            return "link-local"
        if form.is_multicast:
            return "multicast"
        if isinstance(form, IPv6Address) and form in _DISCARD:
            return "reserved"
        if isinstance(form, IPv4Address) and form.is_reserved:
            return "reserved"
    if private:
        return ""
    for form in forms(address):
        if form.is_loopback:
            return "loopback"
        if isinstance(form, IPv6Address) and (form in _SITE_LOCAL or form.is_private) and len(forms(form)) == 1:
            return "private"
        if isinstance(form, IPv4Address) and (form.is_private or form in _SHARED):
            return "private"
    return ""
