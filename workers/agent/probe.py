"""What the machine has and how it is: one reader a source, each optional. What is not told is absent, never zero.

Sources: proc(5), cgroups v2 (cpu.max, memory.max), statvfs(3), NVML through nvidia-ml-py.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cluster.wire import CardReport, Hardware
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)
CGROUP = Path("/sys/fs/cgroup")
CARD_TIMEOUT = 5.0
"""Seconds for all cards: a sick one makes the driver hang, and must not take the agent with it."""


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


def group_of(leader: int) -> list[int]:
    """Pids of the session that `leader` leads: an engine with its workers."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if os.getsid(int(entry.name)) == leader:
                    found.append(int(entry.name))
    return found


class Cards:
    """NVML readings, made in a thread of their own; a hanging driver costs one stuck thread and fresh figures."""

    def __init__(self, read: Callable[[], tuple[CardReport, ...]] | None = None) -> None:
        self._read = read or read_cards
        self._last: tuple[CardReport, ...] = ()
        self._thread: threading.Thread | None = None
        self._absent = read is None and not driver_present()
        self.problem = ""

    def now(self) -> tuple[CardReport, ...]:
        """The cards; the last good reading while the driver hangs. Blocks for at most CARD_TIMEOUT: call in a thread."""
        if self._absent:
            return ()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="cards", daemon=True)
            self._thread.start()
        self._thread.join(CARD_TIMEOUT)
        self.problem = "the GPU driver does not answer: the cards' figures are old" if self._thread.is_alive() else ""
        return self._last

    def _work(self) -> None:
        try:
            self._last = self._read()
        except Exception as error:
            event(log, "cards_unreadable", level=logging.WARNING, reason=f"{type(error).__name__}: {error}")


def driver_present() -> bool:
    """Whether NVML is there. Asked before nvidia-ml-py is imported, which costs 16 MB on a node without a card."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def read_cards() -> tuple[CardReport, ...]:
    """Every card; a figure that the driver does not support is None."""
    import pynvml as nvml

    def ask(name: str, *args: Any) -> Any:
        try:
            return getattr(nvml, name)(*args)
        except nvml.NVMLError:
            return None

    nvml.nvmlInit()
    try:
        cards = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = ask("nvmlDeviceGetHandleByIndex", index)
            uuid = ask("nvmlDeviceGetUUID", handle) if handle is not None else None
            if uuid is None:
                continue
            room = ask("nvmlDeviceGetMemoryInfo", handle)
            power, busy = ask("nvmlDeviceGetPowerUsage", handle), ask("nvmlDeviceGetUtilizationRates", handle)
            cards.append(
                CardReport(
                    uuid=_text(uuid),
                    name=_text(ask("nvmlDeviceGetName", handle) or ""),
                    memory_total=int(room.total) if room else None,
                    memory_used=int(room.used) if room else None,
                    temperature_c=ask("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
                    power_w=power / 1000 if power is not None else None,
                    utilisation=busy.gpu / 100 if busy is not None else None,
                )
            )
        return tuple(cards)
    finally:
        ask("nvmlShutdown")


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


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
