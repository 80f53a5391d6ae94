"""What an edge keeps to itself: addresses of nodes and engines are taken out of the errors that clients are sent.

Answers of engines pass byte for byte. Errors, wherever they come from, and redirects go through here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from urllib.parse import urlsplit

from cluster.domain.modules import ModuleMap
from routing.gateway.headers import Headers
from routing.gateway.table import View

INSTEAD = b"[internal]"
_CANDIDATE = re.compile(
    rb"(\\[bfnrt])?"  # an escape of JSON's before it is no part of it
    rb"([a-z][a-z0-9+.-]*://)?"
    rb"(\[[0-9a-f:.]+\]|[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*|[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)"
    rb"(:\d{1,5}(?!\w|\.\w))?",
    re.IGNORECASE,
)
"""Whatever may be a host, with a scheme before and a port behind it. Looked up afterwards: there may be thousands."""


def hosts_of(nodes: ModuleMap | None, view: View) -> frozenset[bytes]:
    """Hosts of every node in the map and of every engine here, in lower case."""
    found = {seat.host for route in view.routes.values() for seat in route.seats}
    for node in nodes.nodes if nodes is not None else ():
        try:
            found.add(urlsplit(node.address).hostname or "")
        except ValueError:
            continue
    return frozenset(host.lower().encode() for host in found if host)


def redact_text(text: bytes, hosts: Collection[bytes]) -> bytes:
    """`text` without these hosts.

    1. an IP address, or a name with a dot   wherever it stands by itself, with its scheme and port
    2. a plain name such as `node1`          only within a URL or with a port: else it may be any word
    """

    def instead(match: re.Match[bytes]) -> bytes:
        escape, scheme, host, port = match.groups()
        host = host.lower().strip(b"[]")
        plain = b"." not in host and b":" not in host
        if host not in hosts or (plain and not scheme and not port):
            return match[0]
        return (escape or b"") + INSTEAD

    return _CANDIDATE.sub(instead, text)


def redact(headers: Iterable[tuple[bytes, bytes]], body: bytes, hosts: Collection[bytes]) -> tuple[Headers, bytes]:
    """Headers and body of an error answer without these hosts; the length is put right.

    1. a redirect to one of them      its path alone, which the client resolves against the edge
    2. another header that names one  is left out
    """
    body = redact_text(body, hosts)
    out: Headers = []
    for name, value in headers:
        if name == b"content-length":
            out.append((name, b"%d" % len(body)))
        elif redact_text(value, hosts) == value:
            out.append((name, value))
        elif name == b"location":  # 1
            out.append((name, _path_of(value)))
    return out, body


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

    def __call__(self, headers: Headers, body: bytes) -> tuple[Headers, bytes]:
        nodes, view = self._nodes(), self._view()
        if self._of[0] is not nodes or self._of[1] is not view:
            self._hosts, self._of = hosts_of(nodes, view), (nodes, view)
        return redact(headers, body, self._hosts) if self._hosts else (headers, body)
