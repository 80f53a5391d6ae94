"""An engine's log: one file, opened for appending by the engine itself, bounded although the engine outlives the agent.

While an agent runs it trims the file to its last quarter as it nears the bound. While none runs the kernel holds the
bound (RLIMIT_FSIZE, where the adapter allows it): writes beyond it fail and the engine goes on. A start begins with a
line of its own, so that the tail of a failed start is that start's only.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

MARK = b"=== llmgw starts "
TAIL_BYTES, TAIL_LINES = 4096, 40


def open_for(path: Path, *, limit: int, title: str) -> int:
    """Trim, mark a new start, return a descriptor for the child's output."""
    trim(path, limit=limit // 2)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    os.write(handle, MARK + f"{title} at {stamp} ===\n".encode())
    return handle


def trim(path: Path, *, limit: int) -> bool:
    """Cut the file to its last quarter of `limit` if it is longer than three quarters; whether it was.

    In place, because the engine holds it open. What it writes in between may be lost or come first: it is a log.
    """
    try:
        size = path.stat().st_size
        if size <= limit * 3 // 4:
            return False
        with path.open("rb") as file:
            file.seek(-min(size, limit // 4), os.SEEK_END)
            kept = file.read(limit // 4).partition(b"\n")[2]
        with path.open("ab") as file:
            file.truncate(0)
            file.write(kept)
        return True
    except FileNotFoundError:
        return False


def tail(path: Path) -> str:
    """The last lines of the latest start, for people; at most 40 lines and 4 KiB."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            data = file.read(TAIL_BYTES)
    except OSError:
        return ""
    at = data.rfind(MARK)
    if at >= 0:
        data = data[at:].partition(b"\n")[2]
    text = data.decode(errors="replace")
    lines = ["".join(c if c.isprintable() or c == "\t" else "?" for c in line) for line in text.splitlines()]
    return "\n".join(lines[-TAIL_LINES:])
