"""What an edge keeps to itself: addresses of nodes and engines are taken out of what clients are sent.

What an engine generates passes byte for byte. Headers, redirects and errors, wherever they come from, go through here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from cluster.domain.modules import ModuleMap
from routing.gateway.headers import Headers
from routing.gateway.table import View

INSTEAD = b"[internal]"
_CANDIDATE = re.compile(
    rb"(\\(?:[bfnrt]|u[0-9a-f]{4})|%[0-9a-f]{2})?"  # an escape of JSON's or of a URL's before it is no part of it
    rb"([a-z][a-z0-9+.-]{0,15}://)?"  # bounded: else a long text takes time by the square of its length
    rb"(\[[0-9a-f:.]+\]|[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*|[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)"
    rb"(:\d{1,5}(?!\w|\.\w))?",
    re.IGNORECASE,
)
"""Whatever may be a host, with a scheme before and a port behind it. Looked up afterwards: there may be thousands."""


def hosts_of(nodes: ModuleMap | None, view: View) -> frozenset[bytes]:
    """Hosts of every node in the map and of every engine here, in lower case; an IPv6 address in each usual spelling."""
    found = {seat.host for route in view.routes.values() for seat in route.seats}
    for node in nodes.nodes if nodes is not None else ():
        try:
            found.add(urlsplit(node.address).hostname or "")
        except ValueError:
            continue
    for host in [host for host in found if ":" in host]:
        try:
            address = ipaddress.IPv6Address(host.partition("%")[0])  # a zone is its machine's own word
        except ValueError:
            continue
        parts = address.exploded.split(":")
        found |= {address.compressed, address.exploded, ":".join(f"{int(part, 16):x}" for part in parts)}
    return frozenset(host.lower().encode() for host in found if host)


def redact_text(text: bytes, hosts: Collection[bytes]) -> bytes:
    """`text` without these hosts.

    1. an IP address, or a name with a dot   wherever it stands by itself, with its scheme and port
    2. a plain name such as `node1`          only within a URL or with a port: else it may be any word
    """

    def instead(match: re.Match[bytes]) -> bytes:
        escape, scheme, host, port = match.groups()
        host = host.lower().strip(b"[]")
        after = b""
        if b":" in host:
            host, after = _without_tail(host, hosts)
        plain = b"." not in host and b":" not in host
        if host not in hosts or (plain and not scheme and not port):
            return match[0]
        return (escape or b"") + INSTEAD + after

    return _CANDIDATE.sub(instead, text)


def _without_tail(host: bytes, hosts: Collection[bytes]) -> tuple[bytes, bytes]:
    """What of colons, dots and hex digits is the address, and the rest: punctuation goes on, a port does not.

    An IPv4 address may be written as one of IPv6 (RFC 4291 §2.5.5.2).
    """
    bare = host.rstrip(b".:")
    for found in (host, bare, bare.rpartition(b":")[0]):
        for spelling in (found, found.removeprefix(b"::ffff:")):
            if spelling in hosts:
                return spelling, host[len(bare) :] if found is not host else b""
    return host, b""


def redact_header(name: bytes, value: bytes, hosts: Collection[bytes]) -> bytes | None:
    """The header's value as a client may see it; None: it is left out.

    1. it names none of these hosts, or is the client's own word   as it is
    2. a redirect to one of them   its path alone, which the client resolves against the edge
    3. another header that names one   is left out
    """
    if name == b"x-request-id" or redact_text(value, hosts) == value:  # 1
        return value
    return _path_of(value) if name == b"location" else None  # 2, 3


def _path_of(location: bytes) -> bytes:
    try:
        url = urlsplit(location)
    except ValueError:
        return b"/"
    path = b"/" + url.path.lstrip(b"/")  # two slashes would name a host
    return path + (b"?" + url.query if url.query else b"")


class Redactor:
    """Takes the addresses out that map and engines have at this moment; remembers them until these change."""

    def __init__(self, nodes: Callable[[], ModuleMap | None], view: Callable[[], View]) -> None:
        self._nodes = nodes
        self._view = view
        self._of: tuple[ModuleMap | None, View | None] = (None, None)
        self._hosts: frozenset[bytes] = frozenset()
        self._known: dict[tuple[bytes, bytes], bytes | None] = {}  # most answers have the same few headers

    def text(self, text: bytes) -> bytes:
        """An error's body, or a piece of a stream that has an error event in it."""
        hosts = self._look()
        return redact_text(text, hosts) if hosts else text

    def headers(self, headers: Headers) -> Headers:
        """Headers of any answer."""
        if not self._look():
            return headers
        known, out = self._known, []
        for item in headers:
            if item[0] in _OURS:
                out.append(item)
                continue
            try:
                value = known[item]
            except KeyError:
                if len(known) >= MOST_KNOWN:
                    known.clear()
                value = redact_header(*item, self._hosts)
                if item[0] not in _EACH_ITS_OWN:
                    known[item] = value
            if value is not None:
                out.append(item if value is item[1] else (item[0], value))
        return out

    def _look(self) -> frozenset[bytes]:
        nodes, view = self._nodes(), self._view()
        if self._of[0] is not nodes or self._of[1] is not view:
            self._hosts, self._of = hosts_of(nodes, view), (nodes, view)
            self._known.clear()
        return self._hosts


MOST_KNOWN = 512
_OURS = frozenset((b"x-request-id", b"content-length"))
"""Headers that the gateway itself has set, and what the client calls its request."""
_EACH_ITS_OWN = frozenset((b"set-cookie", b"etag"))
"""Headers that differ from answer to answer: not worth remembering."""
