"""What this machine is and has, read beside everything else: hardware, engine builds, memory and cores of engines."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from cluster.wire import EngineBuild, Hardware
from llmgw_site.lib.config import Config
from llmgw_site.lib.units import format_bytes
from workers.agent import probe
from workers.agent.cards import Cards
from workers.agent.loop import Agent

log = logging.getLogger(__name__)
HARDWARE_EVERY, MEMORY_EVERY, TICK = 10.0, 5.0, 1.0
FOREIGN_STEP = 1 << 30
"""Bytes of a card that others take or give back, before controllers should hear of it at once."""


class Readings:
    """The latest figures. What is new of them beyond load is told at once (`Agent.report_now`)."""

    def __init__(self, config: Config, agent: Agent) -> None:
        self._config, self._agent = config, agent
        self._cards = Cards(data=config.data, rules=config.card_rules)
        agent.starter.cards = self._cards.now
        self.hardware = Hardware()
        self.builds: tuple[EngineBuild, ...] = ()
        self.memory: dict[int, int | None] = {}
        """Proportional set size of an engine's processes by its pid."""
        self.cpu: dict[int, float] = {}
        """Cores that an engine's processes kept busy between the last two readings, by its pid; from the second one on."""
        self._use = EngineUse()
        self.card_memory: dict[str, int] = {}
        """What an engine has of cards, by the id of its replica."""

    async def run(self) -> None:
        """Hardware and engine builds each 10 s; memory and cores of engines each 5 s; both at once when engines come or go."""
        next_hardware = next_memory = 0.0
        while True:
            try:
                now, before = time.monotonic(), self._lasting()
                pids = {report.pid for report in self._agent.machine.reports() if report.pid is not None}
                changed = pids != set(self.memory)
                if now >= next_hardware or changed:
                    next_hardware = now + HARDWARE_EVERY
                    self.hardware = await asyncio.to_thread(probe.hardware, self._config.data, self._cards)
                    self.card_memory = self._cards.engines()
                    self.builds = await asyncio.to_thread(self._builds)
                if now >= next_memory or changed:
                    next_memory = now + MEMORY_EVERY
                    self.memory, self.cpu = await asyncio.to_thread(self._use.read, pids)
                if changed or self._lasting() != before:
                    self._agent.report_now.set()
            except Exception:
                log.exception("readings_failed")
            await asyncio.sleep(TICK)

    def _builds(self) -> tuple[EngineBuild, ...]:
        """Reads large files the first time."""
        return tuple(engine.build() for engine in self._agent.engines.values())

    def _lasting(self) -> tuple[object, ...]:
        """What the controllers should hear of at once; the rest can wait for the next heartbeat."""
        found = self.hardware
        short = bool(found.cores) and found.disk_free < self._config.data_free
        cards = tuple(
            (card.uuid, card.memory_total, card.problem, (card.memory_foreign or 0) // FOREIGN_STEP)
            for card in found.cards
        )
        return found.cores, found.memory_total, cards, self.builds, self._cards.problem, short

    def problems(self) -> tuple[str, ...]:
        """For people."""
        found = [self._cards.problem] if self._cards.problem else []
        if self.hardware.cores and self.hardware.disk_free < self._config.data_free:
            room = format_bytes(self.hardware.disk_free)
            found.append(f"only {room} are free under {self._config.data}: make room")
        return tuple(found)


class EngineUse:
    """What engines take of this machine. Remembers the look before: cores are what was spent between two."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds; it only rises."""
        self._clock = clock
        self._times: dict[int, probe.CpuTimes] = {}
        self._at = 0.0

    def read(self, leaders: set[int]) -> tuple[dict[int, int | None], dict[int, float]]:
        """Memory and cores in use, by the pid of an engine. Of the time between two looks nothing is left out, however long
        they take: what a stalled reading saw being spent must not become more cores than there are."""
        groups = {leader: probe.group_of(leader) for leader in leaders}
        memory = {leader: probe.proportional_memory(pids) for leader, pids in groups.items()}
        began = self._clock()
        times = {leader: probe.cpu_times(pids) for leader, pids in groups.items()}
        elapsed = self._clock() - self._at
        used = {leader: probe.cores_used(self._times.get(leader, {}), times[leader], elapsed) for leader in leaders}
        self._times, self._at = times, began
        return memory, {leader: cores for leader, cores in used.items() if cores is not None}
