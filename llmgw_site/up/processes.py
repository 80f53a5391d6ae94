"""Processes of this data folder, found by their environment in /proc, so that nothing must be remembered: proc(5).

Services carry LLMGW_UP=<data>; engines carry LLMGW_REPLICA_ID and LLMGW_AGENT_DATA=<data>. Signals go through pidfds
(pidfd_open(2)), so that a pid that was given to somebody else meanwhile is never hit.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from workers.agent import process

SERVICE, ENGINE, ENGINE_DATA = "LLMGW_UP", "LLMGW_REPLICA_ID", "LLMGW_AGENT_DATA"


def services_of(data: Path) -> list[int]:
    """Services (and their children) that some supervisor of this data folder started."""
    return [pid for pid, env in _environments() if env.get(SERVICE) == str(data) and ENGINE not in env]


def engines_of(data: Path) -> list[int]:
    """Engines that the agent of this data folder started."""
    return [pid for pid, env in _environments() if ENGINE in env and env.get(ENGINE_DATA) == str(data)]


def _environments() -> Iterable[tuple[int, dict[str, str]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        if pid == os.getpid():
            continue
        try:
            # who leads a session may be an engine or a service of ours in the midst of its exec
            leads = os.getsid(pid) == pid
            parts = process.environ_of(pid) if leads else (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # gone, or another user's
            continue
        if any(part.startswith(b"LLMGW_") for part in parts):
            pairs = (part.partition(b"=") for part in parts if part)
            yield pid, {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def end(pids: Iterable[int], *, patience: float) -> list[int]:
    """Ask these processes to end, kill those that have not within `patience` seconds; the pids that were there."""
    handles: dict[int, int] = {}
    for pid in pids:
        try:
            handles[pid] = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
    try:
        for sign, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 2.0)):
            for handle in handles.values():
                _signal(handle, sign)
            if _all_gone(handles.values(), wait):
                break
    finally:
        for handle in handles.values():
            os.close(handle)
    return list(handles)


def _signal(handle: int, sign: int) -> None:
    try:
        signal.pidfd_send_signal(handle, sign)
    except ProcessLookupError:
        pass


def _all_gone(handles: Iterable[int], seconds: float) -> bool:
    """Whether all have ended within this time (a pidfd is readable when its process is gone)."""
    left, until = set(handles), time.monotonic() + seconds
    while left:
        rest = until - time.monotonic()
        if rest <= 0:
            return False
        left -= set(select.select(list(left), [], [], rest)[0])
    return True
