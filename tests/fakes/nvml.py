"""NVML as nvidia-ml-py shows it, over cards that a test describes: the same names, the same structs, the same errors.

What a card does not support raises NVMLError_NotSupported, as the library does; a lost one raises NVMLError_GpuIsLost for
everything that needs its hardware.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 1 << 30


@dataclass
class Card:
    """A card; None: not supported. `used`: without the driver's own part, `reserved`. `processes`: pid and bytes."""

    uuid: str = "GPU-1"
    name: str = "NVIDIA H100 80GB HBM3"
    bus: str = "00000000:3B:00.0"
    total: int = 80 * GIB
    reserved: int = GIB // 2
    used: int = 0
    version_2: bool = True  # of the memory's figures
    processes: list[tuple[int, int | None]] | None = field(default_factory=list)
    action: int | None = 0
    remapped: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    uncorrected: int | None = 0
    temperature: int | None = 41
    milliwatts: int | None = 90_000
    busy: int | None = 12
    lost: bool = False


class Nvml:
    """In place of the module `pynvml`."""

    def __init__(self, *cards: Card) -> None:
        self.cards = list(cards)
        self.opened = 0
        self.broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)  # constants and exceptions are the library's own

    def nvmlInit(self) -> None:
        if self.broken:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        assert self.opened
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, place: int) -> Card:
        return self._of(self.cards[place])

    def nvmlDeviceGetUUID(self, card: Card) -> str:
        return self._of(card).uuid

    def nvmlDeviceGetName(self, card: Card) -> bytes:
        return self._of(card).name.encode()

    def nvmlDeviceGetPciInfo(self, card: Card) -> Any:
        return SimpleNamespace(busId=self._of(card).bus.encode())

    def nvmlDeviceGetMemoryInfo(self, card: Card, version: int | None = None) -> Any:
        self._of(card)
        if version is None:
            used = card.used + card.reserved
            return SimpleNamespace(total=card.total, used=used, free=card.total - used)
        assert version == pynvml.nvmlMemory_v2
        if not card.version_2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        free = card.total - card.used - card.reserved
        return SimpleNamespace(total=card.total, used=card.used, free=free, reserved=card.reserved)

    def nvmlDeviceGetComputeRunningProcesses(self, card: Card) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self._told(card, "processes")]

    def nvmlDeviceGetFieldValues(self, card: Card, fields: list[int]) -> list[Any]:
        self._of(card)
        assert fields == [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        if card.action is None:
            return [SimpleNamespace(nvmlReturn=pynvml.NVML_ERROR_NOT_SUPPORTED, value=SimpleNamespace(uiVal=0))]
        return [SimpleNamespace(nvmlReturn=pynvml.NVML_SUCCESS, value=SimpleNamespace(uiVal=card.action))]

    def nvmlDeviceGetRemappedRows(self, card: Card) -> Any:
        return self._told(card, "remapped")

    def nvmlDeviceGetTotalEccErrors(self, card: Card, kind: int, counter: int) -> Any:
        assert (kind, counter) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return self._told(card, "uncorrected")

    def nvmlDeviceGetTemperature(self, card: Card, sensor: int) -> Any:
        return self._told(card, "temperature")

    def nvmlDeviceGetPowerUsage(self, card: Card) -> Any:
        return self._told(card, "milliwatts")

    def nvmlDeviceGetUtilizationRates(self, card: Card) -> Any:
        return SimpleNamespace(gpu=self._told(card, "busy"))

    def _of(self, card: Card) -> Card:
        if card.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return card

    def _told(self, card: Card, name: str) -> Any:
        value = getattr(self._of(card), name)
        if value is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return value
