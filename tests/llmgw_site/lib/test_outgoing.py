"""The guard in front of outgoing requests, with real servers on loopback addresses and a name service of the test's own."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpcore
import httpx
import pytest

from llmgw_site.lib import deadlines, outgoing
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.outgoing import Guard, GuardedTransport
from tests.routing.gateway.certificates import a_certificate

NAMES: dict[str, list[str]] = {
    "hub.test": ["127.0.0.1"],
    "two.test": ["127.0.0.9", "127.0.0.1"],
    "mixed.test": ["169.254.169.254", "127.0.0.1"],
    "inner.test": ["10.0.0.5"],
    "metadata.test": ["169.254.169.254"],
    "six.test": ["::ffff:169.254.169.254"],
}


class Server:
    """Answers with what it was asked for: host, path and Authorization; /to?URL redirects there."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                host, auth = self.headers.get("Host", ""), self.headers.get("Authorization", "")
                outer.asked.append((host, self.path, auth))
                to = self.path.partition("/to?")[2]
                body = f"{host} {self.path}".encode()
                self.send_response(302 if to else 200)
                if to:
                    self.send_header("Location", to)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_port
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def client() -> Iterator[Callable[..., httpx.Client]]:
    made: list[httpx.Client] = []

    def make(*, private: bool = True, proxies: dict[str, str] | None = None, **options: object) -> httpx.Client:
        guard = Guard(private=private, resolve=lambda host, port: lookup(host), proxies=proxies or {})
        made.append(httpx.Client(transport=GuardedTransport(guard), trust_env=False, timeout=60, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for item in made:
        item.close()


def lookup(host: str) -> list[str]:
    if host not in NAMES:
        return outgoing.resolve(host, 80) if not host.endswith(".test") else no_such_name()
    return NAMES[host]


def no_such_name() -> list[str]:
    raise socket.gaierror("no such name")


def test_a_request_goes_to_the_address_that_was_judged_under_its_own_name(server: Server, client) -> None:
    answer = client().get(f"http://hub.test:{server.port}/a?b=c")
    assert answer.text == f"hub.test:{server.port} /a?b=c"
    assert str(answer.request.url) == f"http://hub.test:{server.port}/a?b=c"


def test_the_next_address_is_tried_where_nobody_listens(server: Server, client) -> None:
    assert client().get(f"http://two.test:{server.port}/").status_code == 200


def test_of_several_addresses_only_the_allowed_are_used(server: Server, client) -> None:
    assert client().get(f"http://mixed.test:{server.port}/").status_code == 200


@pytest.mark.parametrize(
    ("url", "private", "code", "words"),
    [
        ("http://metadata.test/", True, "address_refused", "a cloud's metadata service, which llmgw never reaches for"),
        ("http://six.test/", True, "address_refused", "a cloud's metadata service"),
        ("http://[::ffff:169.254.169.254]/", True, "address_refused", "a cloud's metadata service"),
        ("http://metadata.google.internal./", True, "address_refused", "a cloud's metadata service"),
        ("http://inner.test/x?token=secret", False, "address_refused", "private: LLMGW_PRIVATE_ADDRESSES=1 allows"),
        ("http://127.0.0.1/", False, "address_refused", "loopback: LLMGW_PRIVATE_ADDRESSES=1 allows"),
        ("http://2130706433/", False, "address_refused", "loopback"),
        ("http://0x7f.1/", False, "address_refused", "loopback"),
        ("http://nowhere.test/", True, "host_unresolved", "nowhere.test has no address"),
        ("file:///etc/passwd", True, "url_refused", "no http or https address"),
        ("ftp://hub.test/", True, "url_refused", "no http or https address"),
        ("http://me:word@hub.test/", True, "url_refused", "a user or password in it"),
    ],
)
def test_what_must_not_be_reached_is_refused_with_why(client, url: str, private: bool, code: str, words: str) -> None:
    with pytest.raises(Refused) as refused:
        client(private=private).get(url)
    assert refused.value.code == code
    assert words in refused.value.message
    assert "secret" not in refused.value.message
    assert "word@" not in refused.value.message


def test_a_redirect_is_judged_like_any_other_address(server: Server, client) -> None:
    with pytest.raises(Refused) as refused:
        client(follow_redirects=True).get(f"http://hub.test:{server.port}/to?http://metadata.test/latest/")
    assert refused.value.code == "address_refused"
    assert [path for _, path, _ in server.asked] == ["/to?http://metadata.test/latest/"]


def test_a_name_that_changes_its_address_leads_nowhere_else(server: Server) -> None:
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])
    guard = Guard(private=True, resolve=lambda host, port: next(answers), proxies={})
    with httpx.Client(transport=GuardedTransport(guard), trust_env=False, timeout=60) as one:
        assert one.get(f"http://hub.test:{server.port}/").status_code == 200
        with pytest.raises(Refused):
            one.get(f"http://hub.test:{server.port}/")


def test_a_token_stays_with_the_host_that_it_is_for(server: Server, client) -> None:
    one = client(follow_redirects=True, headers={"Authorization": "Bearer secret"})
    one.get(f"http://hub.test:{server.port}/to?http://two.test:{server.port}/file")
    assert [(host.partition(":")[0], auth) for host, _, auth in server.asked] == [
        ("hub.test", "Bearer secret"),
        ("two.test", ""),
    ]


def test_a_proxy_is_used_and_does_not_open_what_is_refused(server: Server, client) -> None:
    one = client(proxies={"http": f"http://127.0.0.1:{server.port}"})
    assert one.get("http://only-outside.test/file").status_code == 200  # this machine cannot resolve it
    assert server.asked == [("only-outside.test", "http://only-outside.test/file", "")]
    for url in ("http://metadata.test/", "http://169.254.169.254/"):
        with pytest.raises(Refused):
            one.get(url)
    assert len(server.asked) == 1


def test_no_proxy_names_hosts_that_are_asked_directly(server: Server, client) -> None:
    one = client(proxies={"http": "http://127.0.0.1:9", "no": "hub.test"})
    assert one.get(f"http://hub.test:{server.port}/").status_code == 200


def test_without_a_proxy_nothing_is_asked_that_has_no_judged_address(server: Server) -> None:
    guard = Guard(private=True, resolve=lambda host, port: [], proxies={})
    guard.addresses = lambda url: ()  # type: ignore[method-assign]
    with httpx.Client(transport=GuardedTransport(guard), trust_env=False) as one, pytest.raises(AssertionError):
        one.get(f"http://127.0.0.1:{server.port}/")
    assert server.asked == []


class Trickle:
    """Sends `head` at once and then, byte by byte, more of the headers for ever; or a body when it is told to, if `head` is whole."""

    def __init__(self, head: bytes, tls: ssl.SSLContext | None = None) -> None:
        self._head = head
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.go_on, self.trickles = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError), self._listener.accept()[0] as plain:
            handle = plain if self._tls is None else self._tls.wrap_socket(plain, server_side=True)
            with handle:
                handle.recv(4096)
                handle.sendall(self._head)
                if self._head.endswith(b"\r\n\r\n"):
                    self.go_on.wait(60)
                    handle.sendall(b"late")
                    return
                while True:  # until nobody listens any more
                    handle.sendall(b"a")
                    self.trickles.set()
                    time.sleep(0.01)

    def close(self) -> None:
        self.go_on.set()
        with contextlib.suppress(OSError):  # closing alone wakes nobody who waits for a connection
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.thread.join(20)


@pytest.fixture
def trickle() -> Iterator[Callable[..., Trickle]]:
    made: list[Trickle] = []

    def make(*args: Any) -> Trickle:
        made.append(Trickle(*args))
        return made[-1]

    yield make
    for item in made:
        item.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nx-more: ", b"HTTP/1.1 100 Continue\r\nx-more: ", b"HTT"])
@pytest.mark.parametrize("tls", [False, True])
def test_a_head_that_trickles_is_cut_when_its_time_is_over(
    trickle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, tls: bool
) -> None:
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*a_certificate(tmp_path, "127.0.0.1")[1:])
    server = trickle(head, context)
    guard = Guard(private=True, resolve=lambda host, port: lookup(host), proxies={})
    # its time is over when something has come, however long the handshake took, which is within it
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 1000 * server.trickles.is_set())
    monkeypatch.setattr(deadlines, "time", clock)
    transport = GuardedTransport(guard, verify=False, head=60)
    with (
        httpx.Client(transport=transport, trust_env=False, timeout=60) as one,
        pytest.raises(httpx.ReadTimeout, match="no whole head of an answer within 60 s"),
    ):
        one.get(f"http{'s' * tls}://hub.test:{server.port}/")
    server.thread.join(60)
    assert not server.thread.is_alive()  # the connection was closed


def test_what_follows_the_head_has_the_time_that_its_reader_gives_it(trickle) -> None:
    server = trickle(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
    transport = GuardedTransport(Guard(private=True, proxies={}), head=60)
    with (
        httpx.Client(transport=transport, trust_env=False, timeout=20) as one,
        one.stream("GET", f"http://127.0.0.1:{server.port}/") as answer,
    ):
        assert transport._deadline.left(20) == 20
        server.go_on.set()
        assert answer.read() == b"late"
    with pytest.raises(httpcore.ReadTimeout, match="within 0 s"), transport._deadline.within(0):
        transport._deadline.left(None)
