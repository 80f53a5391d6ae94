"""CPU and memory of a process and its children. Sources: clock_getcpuclockid(3), proc(5) `smaps_rollup`."""

from __future__ import annotations

import resource
import time
from pathlib import Path


def tree(pid: int) -> list[int]:
    """The process and its descendants."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found


def cpu_seconds(pids: list[int]) -> float:
    """CPU time that these processes have used, all threads, in nanoseconds' resolution."""
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def pss_mib(pids: list[int]) -> float:
    """Proportional set size: shared pages are divided among those who share them."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def rss(pid: int) -> int:
    """Resident bytes of one process: proc(5) `statm`."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
