"""tests.bench.mirror.reading: what is counted is what came."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.bench.mirror.reading import Giver, ReadError, read

BODY = bytes(range(256)) * 4096


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[str], bytes]], Giver]]:
    """A server that answers each request with what it is told to."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answering(answer: Callable[[str], bytes]) -> Giver:
        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(answer(connection.recv(4096).decode()))

        threading.Thread(target=run, daemon=True).start()
        return Giver(name="it", port=listener.getsockname()[1], path="/m", headers=lambda: {"x-own": "yes"})

    yield answering
    listener.close()


def ranged(head: str) -> bytes:
    assert "x-own: yes" in head
    span = next((line.partition("=")[2] for line in head.splitlines() if line.startswith("range:")), "")
    if not span:
        return b"HTTP/1.1 200 OK\r\n\r\n" + BODY
    start, _, end = span.partition("-")
    return b"HTTP/1.1 206 Partial Content\r\n\r\n" + BODY[int(start) : int(end) + 1]


@pytest.mark.parametrize("connections", [1, 3, 4])
def test_the_whole_file_is_read_over_so_many_connections(
    serve: Callable[[Callable[[str], bytes]], Giver], connections: int
) -> None:
    assert read(serve(ranged), len(BODY), connections) > 0


@pytest.mark.parametrize("answer", [b"HTTP/1.1 404 Not Found\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nshort", b""])
def test_what_was_not_asked_for_is_no_figure(serve: Callable[[Callable[[str], bytes]], Giver], answer: bytes) -> None:
    with pytest.raises(ReadError):
        read(serve(lambda head: answer), len(BODY), 1)
