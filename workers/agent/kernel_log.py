"""What the GPU driver says in the kernel's log: Xids, by the card's place on the bus. Sources: kmsg format of the kernel's
Documentation/ABI/testing/dev-kmsg, NVIDIA's XID catalogue."""

from __future__ import annotations

import os
import re
from pathlib import Path

KMSG = Path("/dev/kmsg")
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): ([0-9]+)\b")
_LOADED = re.compile(r"NVRM: loading NVIDIA UNIX")
_RECORD = 8192
_MOST = 100_000
"""Records in one reading: a kernel that talks without end must not hold the agent."""


class KernelLog:
    """Xids since the driver was last loaded. Where this user may not read the log there are none."""

    def __init__(self, path: Path = KMSG) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._denied = False
        self._xids: dict[str, dict[int, None]] = {}  # by place, each once, the one that came last at the end

    def read(self) -> None:
        """Take in what came since the last time; the first time all that the kernel still has."""
        if self._denied:
            return
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                self._denied = True
                return
        for _ in range(_MOST):
            try:
                record = os.read(self._descriptor, _RECORD)
            except BrokenPipeError:  # the oldest were overwritten meanwhile
                continue
            except OSError:  # nothing more to read; or a defect of the log, which is no card's
                return
            if not record:
                return
            self.take(record.decode(errors="replace"))

    def take(self, text: str) -> None:
        """One record, or several lines of them."""
        for line in text.splitlines():
            found = _XID.search(line)
            if found:
                seen, xid = self._xids.setdefault(_place(found[1]), {}), int(found[2])
                seen.pop(xid, None)
                seen[xid] = None
            elif _LOADED.search(line):
                self._xids.clear()

    def xids(self, bus: str) -> list[int]:
        """Those of the card at this place, each once, the latest last. `bus`: as NVML writes it, such as 00000000:3B:00.0."""
        return list(self._xids.get(_place(bus), ()))


def _place(bus: str) -> str:
    """Domain, bus and device, however many digits the domain is written with, and without the function."""
    domain, _, rest = bus.lower().partition(".")[0].partition(":")
    return f"{int(domain or '0', 16):x}:{rest}"
