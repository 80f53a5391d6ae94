"""How long a server's `/healthz` takes all the while: `python -m tests.bench.health PORT` asks until its input ends, each time
over a new connection, then prints one line of JSON. A process of its own, so that nothing but the server makes it wait."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

PAUSE = 0.05
"""Seconds from one answer to the next question."""
PATIENCE = 10.0
_ASK = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@dataclass
class Health:
    """Spans in seconds, from the opening of a connection to the end of the answer."""

    asked: int = 0
    worst: float = 0.0
    p99: float = 0.0
    p90: float = 0.0
    wrong: list[str] = field(default_factory=list)  # what came instead of 200


@contextmanager
def watched(port: int) -> Iterator[Health]:
    """Asked while the block runs; what was found is there after it."""
    found = Health()
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.health", str(port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield found
        said, _ = child.communicate(timeout=3 * PATIENCE)
        found.__dict__.update(json.loads(said))
    finally:
        child.kill()
        child.wait()


def _ask(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as handle:
        handle.sendall(_ASK)
        answer = b""
        while piece := handle.recv(4096):
            answer += piece
    return answer


def main(port: int) -> None:
    found, spans = Health(), []
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        began = time.perf_counter()
        try:
            answer = _ask(port)
        except OSError as error:
            answer = repr(error).encode()
        spans.append(time.perf_counter() - began)
        if not answer.startswith(b"HTTP/1.1 200 "):
            found.wrong.append(answer[:200].decode("latin-1"))
    spans.sort()
    found.asked = len(spans)
    if spans:
        found.worst = spans[-1]
        found.p99, found.p90 = (spans[len(spans) * share // 100] for share in (99, 90))
    sys.stdout.write(json.dumps(asdict(found)) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
