"""Processes of the tests: free ports, waiting for a condition, and proof that nothing was left behind."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from workers.agent.process import environ_of

T = TypeVar("T")
REST = 0.15
"""Seconds: so long at most `wait_for` rests between two looks that are work."""


FIRST_PORT, PORTS, SHARES = 10000, 13000, 4
"""Below the ports of replicas' parts and of engines, which are taken at random, and of the kernel's own range for connections;
a share of them for each xdist worker. A port is often bound only seconds after it was chosen: nobody else comes by it meanwhile."""


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    mine = PORTS // SHARES
    first = FIRST_PORT + (int(worker.removeprefix("gw")) + 1 if worker else 0) % SHARES * mine
    for _ in range(mine):
        port = first + (os.getpid() * 97 + _turn() * 7) % mine  # spread: another run may be under way
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port from {first} on")


def reserved(port: int = 0) -> socket.socket:
    """Bound to a port of 127.0.0.1, and nobody listens: connections are refused, and nobody else gets it before this is closed."""
    handle = socket.socket()
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    handle.bind(("127.0.0.1", port))
    return handle


_turns = 0


def _turn() -> int:
    global _turns
    _turns += 1
    return _turns


def wait_for(condition: Callable[[], T], *, seconds: float = 30.0, what: str = "", every: float = 0.02) -> T:
    """The first true value of `condition`; AssertionError with the last one if none came in time.

    A look that is work, such as a request, comes less often: looking must not be what keeps the machine busy. What a rest
    takes longer than it should, the machine stood still, and with it what is waited for: that is not of its time. And the
    last look has begun after the end."""
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        if began > end:
            raise AssertionError(f"waited {seconds} s for {what or condition}; the last look gave {value!r}")
        looked = time.monotonic()
        rest = max(every, min(3 * (looked - began), REST))
        time.sleep(rest)
        end += time.monotonic() - looked - rest


def fair(seconds: float) -> float:
    """A promise of so many seconds on a machine of our own, stretched where others compute beside us (load per core)."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def alive(pid: int) -> bool:
    """Whether this process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def oldest(pids: Iterable[int]) -> int | None:
    """Which of these began first, by its start time: pids come round, so a child may have a lower one than its parent."""
    return min(pids, key=_began, default=None)


def _began(pid: int) -> float:
    """Clock ticks from boot to its start (proc_pid_stat(5), field 22)."""
    try:
        return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return math.inf


def with_environ(name: str, value: str, *, prefix: bool = False) -> list[int]:
    """Pids of live processes whose environment has `name=value`, or, with `prefix`, a value that begins so."""
    wanted = f"{name}={value}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            leads = os.getsid(int(folder.name)) == int(folder.name)  # an engine, say, may be in the midst of its exec
            entries = environ_of(int(folder.name)) if leads else (folder / "environ").read_bytes().split(b"\0")
            hit = any(entry.startswith(wanted) for entry in entries) if prefix else wanted in entries
            if hit and alive(int(folder.name)):
                found.append(int(folder.name))
        except (OSError, ValueError):
            continue
    return found


@contextmanager
def running(
    argv: list[str], *, end: int = signal.SIGTERM, patience: float = 15.0, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A child process of the test, ended (and at last killed) when the block is left."""
    child = subprocess.Popen(argv, **options)
    try:
        yield child
    finally:
        stop(child, end=end, patience=patience)


def stop(child: subprocess.Popen[bytes], *, end: int = signal.SIGTERM, patience: float = 15.0) -> None:
    """End a child by `end`, then by SIGKILL; always reaped."""
    if child.poll() is None:
        child.send_signal(end)
        try:
            child.wait(patience)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
