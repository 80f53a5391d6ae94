"""The harness's own proxy does what it says: a test that cuts a link must have cut it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.cluster.harness.links import Link, Links
from tests.processes import wait_for

HOST = f"127.{230 + os.getpid() % 20}.{os.getpid() // 20 % 250}"
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nx-request-id: one\r\n\r\n"


class Echo:
    """Answers everything with itself."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_server(address)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                handle, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=[handle], daemon=True).start()

    def _echo(self, handle: socket.socket) -> None:
        with handle:
            try:
                while data := handle.recv(4096):
                    handle.sendall(data)
            except OSError:
                pass

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def link() -> Iterator[Link]:
    links = Links(owner=lambda port: "caller")
    echo = Echo((f"{HOST}.1", 8880))
    try:
        yield links.add("one", outer=(f"{HOST}.2", 8880), inner=(f"{HOST}.1", 8880))
    finally:
        links.close()
        echo.close()


def connect(link: Link) -> socket.socket:
    return socket.create_connection(link.outer, timeout=30)


def nothing_comes(caller: socket.socket) -> None:
    """For a second, in which it would."""
    caller.settimeout(1)
    with pytest.raises(TimeoutError):
        caller.recv(10)
    caller.settimeout(30)


def test_an_open_link_passes_bytes_and_counts_request_ids_also_where_a_head_is_cut_in_two(link: Link) -> None:
    with connect(link) as caller:
        caller.sendall(REQUEST)
        assert caller.recv(4096) == REQUEST
        for part in (REQUEST[:50], REQUEST[50:]):
            caller.sendall(part)
            assert caller.recv(4096) == part
    assert link.reached == {"one": 2}


def test_a_refusing_link_refuses_and_a_silent_one_never_connects(link: Link) -> None:
    link.set("refuse")
    with pytest.raises(ConnectionRefusedError):
        connect(link)
    link.set("silent")
    with pytest.raises(TimeoutError):
        socket.create_connection(link.outer, timeout=1)
    link.set("open")
    with connect(link) as caller:
        caller.sendall(b"x")
        assert caller.recv(10) == b"x"


def test_a_blackhole_connects_and_passes_nothing_until_it_is_mended(link: Link) -> None:
    with connect(link) as caller:
        link.set("blackhole")
        caller.sendall(REQUEST)
        with connect(link) as late:
            late.sendall(b"x")
            nothing_comes(late)
        assert link.reached == {}
        link.mend()
        assert caller.recv(4096) == REQUEST


def test_a_mute_link_lets_requests_through_and_keeps_the_answers(link: Link) -> None:
    link.set("mute")
    with connect(link) as caller:
        caller.sendall(REQUEST)
        wait_for(lambda: link.reached == {"one": 1}, what="the request to have passed")
        nothing_comes(caller)
        assert link.reset() == 1
        with pytest.raises(ConnectionResetError):
            caller.recv(10)
    wait_for(lambda: link.connections == 0, what="the pair to go")


def test_a_slow_link_takes_its_time(link: Link) -> None:
    link.slow(rate=2000)
    with connect(link) as caller:
        began = time.monotonic()
        caller.sendall(b"x" * 1000)
        got = b""
        while len(got) < 1000:
            got += caller.recv(4096)
        assert time.monotonic() - began > 0.4


def test_a_shunned_source_is_cut_and_others_are_not(link: Link) -> None:
    with connect(link) as caller:
        link.shun("somebody else")
        caller.sendall(b"x")
        assert caller.recv(10) == b"x"
        link.shun("caller")
        caller.sendall(b"x")
        nothing_comes(caller)
        link.mend()
        assert caller.recv(10) == b"x"


def test_what_is_gone_behind_a_link_is_a_reset(link: Link) -> None:
    link.inner = (f"{HOST}.3", 8880)
    with pytest.raises(ConnectionResetError), connect(link) as caller:
        caller.recv(10)
