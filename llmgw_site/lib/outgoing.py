"""The one guard in front of every address that a person or a remote answer can name: registries, files, redirects.

A name is resolved once, its addresses are judged (`reach`), and the request goes to one of those that were judged: a second
look at the name cannot lead elsewhere. Each redirect is a request of its own and goes through the same door. TLS is
verified against the name. Answers are read no further than asked, and their heads within HEAD seconds, however they trickle.

Where a proxy is configured (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY), it makes the connection, and the operator's
network may resolve outer names only there: what this machine can resolve is judged all the same.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from threading import Lock
from urllib.request import getproxies, proxy_bypass

import httpx

from llmgw_site.lib.deadlines import Deadline
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.reach import METADATA_NAMES, Address, why_not

SCHEMES = frozenset({"http", "https"})
HEAD = 60.0
"""Seconds of one request until the head of its answer is whole, from its first connection on; a redirect is a request of its
own. What follows of an answer is bounded by who reads it."""
Resolve = Callable[[str, int], Sequence[str]]


def resolve(host: str, port: int) -> list[str]:
    """Addresses of a name, in the order in which the system prefers them. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(item[4][0]).partition("%")[0] for item in found))


class Guard:
    """What an outgoing request may reach. `private`: loopback and private networks, too. `proxies` as the environment's."""

    def __init__(self, *, private: bool, resolve: Resolve = resolve, proxies: dict[str, str] | None = None) -> None:
        self._private = private
        self._resolve = resolve
        self._proxies = getproxies() if proxies is None else proxies

    def addresses(self, url: httpx.URL) -> tuple[Address, ...]:
        """Where a request for `url` may go; () is: only through its proxy, which alone can resolve the name. Raises Refused.

        1. `url_refused`         not http or https, no host, a user or password in it
        2. `host_unresolved`     no address for that name, and no proxy that might know it
        3. `address_refused`     none of its addresses may be reached
        """
        if url.scheme not in SCHEMES or not url.host or url.userinfo:  # 1
            what = "has a user or password in it" if url.userinfo else "is no http or https address of a host"
            raise Refused(
                Kind.INVALID, "url_refused", f"{shown(url)} {what}: give one like https://host/path", param="url"
            )
        host = url.host.rstrip(".").lower()
        if host in METADATA_NAMES:
            raise self._refused(url, "a cloud's metadata service")
        try:
            found = [ip_address(text) for text in self._texts(host, url)]
        except (OSError, UnicodeError, ValueError):  # 2
            if self.proxy(url):
                return ()
            text = f"{host} has no address that this machine can find: check the name, and this machine's name service"
            raise Refused(Kind.UPSTREAM, "host_unresolved", text, param="url", retry_after=30.0) from None
        reasons = [(address, why_not(address, private=self._private)) for address in found]
        allowed = tuple(address for address, reason in reasons if not reason)
        if not allowed:  # 3
            raise self._refused(url, reasons[0][1] if reasons else "no address at all")
        return allowed

    def _texts(self, host: str, url: httpx.URL) -> Sequence[str]:
        try:
            return (str(ip_address(host)),)
        except ValueError:
            return self._resolve(host, url.port or {"http": 80, "https": 443}[url.scheme])

    def proxy(self, url: httpx.URL) -> str:
        """The proxy that requests for `url` go through; "" where none does."""
        found = self._proxies.get(url.scheme) or self._proxies.get("all") or ""
        return "" if not found or proxy_bypass(url.host, self._proxies) else found  # type: ignore[call-arg]

    def _refused(self, url: httpx.URL, reason: str) -> Refused:
        out = "" if reason not in ("loopback", "private") else ": LLMGW_PRIVATE_ADDRESSES=1 allows such addresses"
        text = f"{shown(url)} was not asked: {url.host} is {reason}{out or ', which llmgw never reaches for'}"
        return Refused(Kind.FORBIDDEN, "address_refused", text, param="url")


def shown(url: httpx.URL) -> str:
    """`url` as it may be shown and logged: without user, password and query, which may hold secrets."""
    bare = url.copy_with(username=None, password=None, query=None, fragment=None)
    return str(bare)[:300]


class GuardedTransport(httpx.BaseTransport):
    """An httpx transport whose requests pass a `Guard`; for one piece of work, then closed.

    Every name has connections of its own: two names at one address must not share one that was verified for the first.
    """

    def __init__(self, guard: Guard, *, verify: bool = True, head: float = HEAD) -> None:
        self._guard = guard
        self._verify = verify
        self._head = head
        self._deadline = Deadline()
        self._kept: dict[tuple[str, str, str], httpx.HTTPTransport] = {}
        self._lock = Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        addresses = self._guard.addresses(url)
        proxy = self._guard.proxy(url)
        transport = self._transport(url, proxy)
        with self._deadline.within(self._head):
            return self._answer(request, transport, None if proxy else addresses)

    def _answer(
        self, request: httpx.Request, transport: httpx.HTTPTransport, addresses: tuple[Address, ...] | None
    ) -> httpx.Response:
        """From the first of these addresses that takes the connection; None: through the proxy."""
        url = request.url
        if addresses is None:
            return transport.handle_request(request)
        request.headers.setdefault("Host", url.netloc.decode("ascii"))
        request.extensions = {**request.extensions, "sni_hostname": url.host}
        for at, address in enumerate(addresses, start=1):
            request.url = url.copy_with(host=str(address))
            try:
                response = transport.handle_request(request)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if at == len(addresses):
                    raise
            else:
                return response
            finally:
                request.url = url  # what redirects and messages are made from
        raise AssertionError("a guard without addresses lets nothing through")

    def _transport(self, url: httpx.URL, proxy: str) -> httpx.HTTPTransport:
        key = (url.scheme, url.host, proxy)
        with self._lock:
            if key not in self._kept:
                kept = self._kept[key] = httpx.HTTPTransport(verify=self._verify, trust_env=False, proxy=proxy or None)
                self._deadline.carry(kept)
            return self._kept[key]

    def close(self) -> None:
        with self._lock:
            kept, self._kept = list(self._kept.values()), {}
        for transport in kept:
            transport.close()
