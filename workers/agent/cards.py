"""Accelerators as NVML tells of them: how they are, who uses their memory, and whether they may be used at all.

What is not told is absent, never zero. NVML is opened for each reading and closed after it: who holds it open stands in
the way of a driver's upgrade and of a card's reset. Sources: NVML API reference through nvidia-ml-py.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster.wire import CardReport
from workers.agent import process
from workers.agent.kernel_log import KernelLog
from workers.agent.patience import Patient

FATAL_XIDS = frozenset({48, 62, 64, 79, 95, 119, 120, 140, 143})
"""Xids after which a card needs a reset or more. Others are mostly the fault of the program that ran on it."""
ACTIONS = {
    1: "the driver asks for a reset of it",
    2: "the driver asks for a restart of the machine",
    4: "the driver asks to empty and reset it",
    6: "the driver asks for a reset of its bus",
    7: "the driver asks for a restart of the system",
}
"""NVML's recovery actions that put a card out of use. The others (3: peer-to-peer, 5: IMEX) leave the card itself sound."""


HANGS = 60.0
"""Seconds without a reading after which a driver that does not answer is not just slow."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """What is known of a card's health. None: not told."""

    lost: bool = False
    xid: int | None = None  # the last fatal one since the driver was loaded
    action: int | None = None  # NVML's recovery action; 0: none is needed
    remap_failed: bool | None = None
    uncorrected: int | None = None  # memory errors since the driver was loaded


def problem_of(health: Health) -> str:
    """Why a card must not be used; empty if it may.

    1. it has fallen off the bus
    2. the driver asks for a recovery
    3. a row of its memory could not be replaced
    Where the driver tells whether it asks for one, and it does not, these two are over and done with:
    4. a fatal Xid in the kernel's log
    5. memory errors that could not be corrected, since the driver was loaded
    """
    if health.lost:  # 1
        return "it has fallen off the bus: restart the machine"
    if health.action in ACTIONS:  # 2
        return ACTIONS[health.action] + (f" (Xid {health.xid})" if health.xid is not None else "")
    if health.remap_failed:  # 3
        return "a broken row of its memory could not be replaced (row remap failure): have the card replaced"
    if health.action is None and health.xid is not None:  # 4
        return f"Xid {health.xid} in the kernel's log: reset it, then load the driver anew"
    if health.action is None and health.uncorrected:  # 5
        return f"{health.uncorrected} uncorrectable memory errors (ECC) since the driver was loaded: reset it"
    return ""


def foreign_memory(
    used: int | None, processes: Iterable[tuple[int, int | None]] | None, is_ours: Callable[[int], bool | None]
) -> int | None:
    """Bytes of a card that no engine of ours holds; None where the driver does not tell whose they are.

    `used`: all that is in use, the driver's own part apart. `processes`: pid and bytes of those that compute there.
    `is_ours`: whether a process is an engine of ours; None: nobody here knows that pid.

    What is used, less what ours use, so that it also counts who draws, and an engine that has ended and whose memory is
    not back yet. It is not told if a process cannot be known (another container's, or ours as another container sees it)
    or the driver does not say how much of it is ours.
    """
    if used is None or processes is None:
        return None
    own = 0
    for pid, size in processes:
        ours = is_ours(pid)
        if ours is None or (ours and size is None):
            return None
        own += (size or 0) if ours else 0
    return max(0, used - own)


class Cards:
    """NVML readings; see `Patient` for a driver that hangs. `rules`: as of `Reader`."""

    def __init__(
        self, read: Callable[[], tuple[CardReport, ...]] | None = None, *, data: Path | None = None, rules: bool = True
    ) -> None:
        self._reader, self._rules = Reader(data, rules=rules), rules
        self._patient = Patient[tuple[CardReport, ...]](read or self._reader.read, (), name="cards")
        self._absent = read is None and not driver_present()

    def now(self) -> tuple[CardReport, ...]:
        """The cards; while the driver fails or does not answer as they were last. Then what others have of them is not known
        and no engine could start there, so they are out of use: at once, or where it is only slow (it is opened anew each
        time, which takes its time without persistence mode) after HANGS. Blocks for some seconds at most: call it in a
        thread."""
        if self._absent:
            return ()
        cards, problem = self._patient.now(), self.problem
        hangs = time.monotonic() - self._patient.read_at >= HANGS
        if not self._rules or not (self._patient.failed or (problem and hangs)):
            return cards
        return tuple(replace(card, problem=card.problem or problem) for card in cards)

    @property
    def problem(self) -> str:
        """For people; empty: none."""
        if self._patient.late:
            return "the GPU driver does not answer: the cards' figures are old"
        if self._patient.failed:
            return f"the GPU driver cannot be read ({self._patient.failed[:200]}): the cards' figures are old"
        return ""

    def engines(self) -> dict[str, int]:
        """Bytes that engines of ours had of all cards together at the last reading, by the id of their replica."""
        return self._reader.engines


def driver_present() -> bool:
    """Whether NVML is there. Asked before nvidia-ml-py is imported, which costs 16 MB on a node without a card."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


class Reader:
    """Reads every card. `data`: the folder whose engines are ours. `nvml`: instead of nvidia-ml-py, for tests. `rules`:
    whether one that is broken is put out of use; one that is gone always is.

    Remembers what was seen: a card that the driver lists no more, or no longer answers for, stays in the report, out of use.
    """

    def __init__(
        self, data: Path | None = None, *, nvml: Any = None, kernel: KernelLog | None = None, rules: bool = True
    ) -> None:
        self._data, self._nvml, self._rules = data, nvml, rules
        self._kernel = kernel or KernelLog()
        self._known: dict[str, CardReport] = {}
        self._places: dict[int, str] = {}
        self.engines: dict[str, int] = {}

    def read(self) -> tuple[CardReport, ...]:
        """Every card, in the driver's order. Raises what NVML raises where it cannot be opened."""
        nvml = self._nvml or importlib.import_module("pynvml")
        self._kernel.read()
        engines: dict[str, int] = {}
        nvml.nvmlInit()
        try:
            found: dict[str, CardReport] = {}
            for place in range(nvml.nvmlDeviceGetCount()):
                card = self._card(nvml, place, engines)
                if card is not None:
                    found[card.uuid] = card
                    self._places[place] = card.uuid
        finally:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()
        for uuid in self._known.keys() - found.keys():
            found[uuid] = _lost(self._known[uuid])
        self._known, self.engines = found, engines
        return tuple(found.values())

    def _card(self, nvml: Any, place: int, engines: dict[str, int]) -> CardReport | None:
        """`engines`: what those of ours have on it is added there."""
        gone = False

        def ask(name: str, *args: Any, **more: Any) -> Any:
            nonlocal gone
            try:
                return getattr(nvml, name)(*args, **more)
            except nvml.NVMLError as error:
                gone = gone or error.value == nvml.NVML_ERROR_GPU_IS_LOST
                return None

        handle = ask("nvmlDeviceGetHandleByIndex", place)
        uuid = ask("nvmlDeviceGetUUID", handle) if handle is not None else None
        if uuid is None:
            known = self._known.get(self._places.get(place, ""))
            return _lost(known) if known is not None and gone else None
        room = ask("nvmlDeviceGetMemoryInfo", handle, version=nvml.nvmlMemory_v2)
        sharp = room is not None  # only this version tells the driver's own part apart
        if room is None:
            room = ask("nvmlDeviceGetMemoryInfo", handle)
        power, busy = ask("nvmlDeviceGetPowerUsage", handle), ask("nvmlDeviceGetUtilizationRates", handle)
        running = ask("nvmlDeviceGetComputeRunningProcesses", handle)
        processes = None if running is None else [(item.pid, item.usedGpuMemory) for item in running]
        for pid, size in processes or ():
            replica = process.replica_of(pid) if size and self._is_ours(pid) else ""
            if replica:
                engines[replica] = engines.get(replica, 0) + (size or 0)
        health = self._health(nvml, handle, ask)
        return CardReport(
            uuid=_text(uuid),
            name=_text(ask("nvmlDeviceGetName", handle) or ""),
            memory_total=int(room.total) if room else None,
            memory_used=int(room.used) if room else None,
            memory_foreign=self._foreign(int(room.used) if sharp else None, processes),
            problem=problem_of(replace(health if self._rules else Health(), lost=gone)),
            temperature_c=ask("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
            power_w=power / 1000 if power is not None else None,
            utilisation=busy.gpu / 100 if busy is not None else None,
        )

    def _foreign(self, used: int | None, processes: list[tuple[int, int | None]] | None) -> int | None:
        """As `foreign_memory`; where the driver's own part is not told apart, what the processes have together."""
        if used is None and processes is not None:
            used = sum(size or 0 for _, size in processes) if all(size is not None for _, size in processes) else None
        found = foreign_memory(used, processes, self._is_ours)
        if found is None and used is not None and (self._data is None or not process.find(self._data)):
            return used  # no engine of ours runs at all, so whoever it is, it is somebody else
        return found

    def _is_ours(self, pid: int) -> bool | None:
        return process.marked(pid, self._data) if self._data is not None else False

    def _health(self, nvml: Any, handle: Any, ask: Callable[..., Any]) -> Health:
        rows = ask("nvmlDeviceGetRemappedRows", handle)
        counted = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        told = ask("nvmlDeviceGetFieldValues", handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
        action = int(told[0].value.uiVal) if told and told[0].nvmlReturn == nvml.NVML_SUCCESS else None
        where = ask("nvmlDeviceGetPciInfo", handle)
        xids = self._kernel.xids(_text(where.busId)) if where is not None else []
        return Health(
            xid=next((xid for xid in reversed(xids) if xid in FATAL_XIDS), None),
            action=action,
            remap_failed=None if rows is None else bool(rows[3]),
            uncorrected=ask("nvmlDeviceGetTotalEccErrors", handle, *counted),
        )


def _lost(card: CardReport) -> CardReport:
    """What is left to say of a card that does not answer: what it is, and that it is out."""
    return CardReport(
        uuid=card.uuid, name=card.name, memory_total=card.memory_total, problem=problem_of(Health(lost=True))
    )


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
