"""What the machine has and how it is: one reader a source, each optional. What is not told is absent, never zero.

Sources: proc(5), cgroups v2 (cpu.max, memory.max), statvfs(3). Accelerators: `cards.py`.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from cluster.wire import Hardware
from workers.agent.cards import Cards

CGROUP = Path("/sys/fs/cgroup")


def cores() -> int:
    """Cores that this process may use: its affinity, and the container's share of time where there is one."""
    count = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):
        quota, period = (CGROUP / "cpu.max").read_text().split()
        if quota != "max":
            count = min(count, max(1, math.ceil(int(quota) / int(period))))
    return count


def default_threads(setting: int) -> int:
    """Threads of an engine whose profile names none: the node's setting, else half of the cores."""
    return setting or max(1, cores() // 2)


def parse_meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        fields = rest.split()
        if fields and fields[0].isdecimal():
            found[name] = int(fields[0]) * (1024 if fields[-1] == "kB" else 1)
    return found


def memory() -> tuple[int, int]:
    """Total and available bytes, within the container's bound where there is one."""
    info = parse_meminfo(Path("/proc/meminfo").read_text())
    total, available = info.get("MemTotal", 0), info.get("MemAvailable", 0)
    with contextlib.suppress(OSError, ValueError):
        limit = int((CGROUP / "memory.max").read_text())
        used = int((CGROUP / "memory.current").read_text())
        if limit < total:
            total, available = limit, min(available, max(0, limit - used))
    return total, available


def disk_free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def proportional_memory(pids: Iterable[int]) -> int | None:
    """Proportional set size of these processes together; None where the kernel does not tell."""
    total, told = 0, False
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(text.split("\nPss:", 1)[1].split(maxsplit=1)[0]) * 1024
            told = True
    return total if told else None


CpuTimes = dict[tuple[int, str], float]
"""Seconds that processes have spent on cores so far, by pid and start time: a pid that is used anew is another process."""


def parse_stat(text: str) -> tuple[str, float]:
    """/proc/PID/stat: when it started, as the kernel writes it, and seconds on cores, all threads together.

    Raises ValueError or IndexError for what is none.
    """
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return fields[19], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_times(pids: Iterable[int]) -> CpuTimes:
    """What of these processes is still there."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            started, seconds = parse_stat(Path(f"/proc/{pid}/stat").read_text())
            found[pid, started] = seconds
    return found


def cores_used(before: CpuTimes, now: CpuTimes, elapsed: float) -> float | None:
    """Cores kept busy between two looks, on average; None where no process was there at both, or no time passed.

    A process that is new counts whole: it began within that time. What one that ended did since the first look is lost.
    """
    if elapsed <= 0 or not before.keys() & now.keys():
        return None
    spent = sum(max(0.0, seconds - before.get(key, 0.0)) for key, seconds in now.items())
    return spent / elapsed


def group_of(leader: int) -> list[int]:
    """Pids of the session that `leader` leads: an engine with its workers."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if os.getsid(int(entry.name)) == leader:
                    found.append(int(entry.name))
    return found


def hardware(folder: Path, cards: Cards) -> Hardware:
    """One reading of everything. Blocks: call it in a thread."""
    total, available = memory()
    return Hardware(
        cores=cores(),
        memory_total=total,
        memory_available=available,
        disk_free=disk_free(folder),
        load_1m=os.getloadavg()[0],
        cards=cards.now(),
    )
