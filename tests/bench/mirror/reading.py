"""The client of both contenders: GET over a plain socket, read into one buffer, throw away, count."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

BUFFER = 1 << 20
PATIENCE = 60.0
MOST_HEAD = 64 << 10


class ReadError(Exception):
    """The answer was not what was asked for."""


@dataclass(frozen=True, kw_only=True)
class Giver:
    """Who gives the file. `headers`: of one request, made anew each time."""

    name: str
    port: int
    path: str
    headers: Callable[[], Mapping[str, str]] = field(default=dict)


def read(giver: Giver, size: int, connections: int) -> float:
    """Seconds until the whole file was read over so many connections, a part of it over each. Raises ReadError."""
    step = -(-size // connections)
    spans = [(start, min(start + step, size)) for start in range(0, size, step)]
    problems: list[Exception] = []

    def one(span: tuple[int, int]) -> None:
        try:
            _part(giver, *span, whole=connections == 1)
        except (OSError, ReadError) as error:
            problems.append(error)

    threads = [threading.Thread(target=one, args=(span,)) for span in spans]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    if problems:
        raise ReadError(f"{giver.name}: {problems[0]}")
    return took


def _part(giver: Giver, start: int, end: int, *, whole: bool) -> None:
    lines = [f"GET {giver.path} HTTP/1.1", f"host: 127.0.0.1:{giver.port}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in giver.headers().items()]
    lines += [] if whole else [f"range: bytes={start}-{end - 1}"]
    with socket.create_connection(("127.0.0.1", giver.port), timeout=PATIENCE) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            piece = connection.recv(4096)
            if not piece or len(head) > MOST_HEAD:
                raise ReadError(f"no answer: {head[:200]!r}")
            head += piece
        head, _, first = head.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200" if whole else b"HTTP/1.1 206"):
            raise ReadError(head.decode("latin-1")[:300])
        left, buffer = end - start - len(first), bytearray(BUFFER)
        while left:
            count = connection.recv_into(buffer, min(left, BUFFER))
            if not count:
                raise ReadError(f"{left} bytes are missing")
            left -= count
