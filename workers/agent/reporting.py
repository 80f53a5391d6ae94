"""The agent's talk with the controllers: heartbeats, the snapshot, usage. Each goes on by itself whatever the others meet."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import socket
import time
from dataclasses import replace

import orjson

from cluster.wire import EngineBuild, Hardware, Heartbeat, ReplicaReport, Wanted, WireError, from_dict
from llmgw_site.lib import files
from llmgw_site.lib.config import Config
from llmgw_site.lib.logs import event
from llmgw_site.lib.units import format_bytes
from routing.domain.snapshot import Snapshot
from workers.agent import probe
from workers.agent.events import WantedArrived
from workers.agent.link import Link, LinkError
from workers.agent.loop import Agent
from workers.agent.usage import Spool

log = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
HARDWARE_EVERY, MEMORY_EVERY, READINGS_TICK = 10.0, 5.0, 1.0
USAGE_IDLE, USAGE_BEHIND = 1.0, 0.05


class Reporter:
    """See the module. `run_*` are endless; `Agent.background` runs them."""

    def __init__(self, config: Config, agent: Agent, link: Link, *, node_id: str, boot_id: str) -> None:
        self._config, self._agent, self._link = config, agent, link
        self._node_id, self._boot_id = node_id, boot_id
        self._cards = probe.Cards()
        self._hardware = Hardware()
        self._builds: tuple[EngineBuild, ...] = ()
        self._memory: dict[int, int | None] = {}
        self._spool = Spool(config.usage)
        self._waiting: int | None = None
        self._spool_is_long = False
        self._snapshot_mark = files.mark(config.snapshot_file)
        self._snapshot_version = self._held_snapshot()
        self._snapshot_wanted = asyncio.Event()
        self._reachable: bool | None = None

    # --- heartbeat ------------------------------------------------------------------------------------------------

    async def run_heartbeats(self) -> None:
        """One each `wanted.heartbeat` seconds, and at once when something changed; after failures with growing pauses."""
        pause, failures = self._config.heartbeat, 0
        while True:
            self._agent.report_now.clear()
            try:
                wanted = await self._link.heartbeat(self._message())
                failures, pause = 0, min(max(wanted.heartbeat, 0.05), 300.0)
                self._take(wanted)
                self._say_reachable(True)
            except LinkError as error:
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures, 10))
                failures += 1
                self._say_reachable(False, str(error))
            except Exception:
                # F06: a defect in one beat must not end the beating
                log.exception("heartbeat_failed")
                pause = LONGEST_PAUSE
            await self._wait(pause, eager=failures == 0)

    async def _wait(self, pause: float, *, eager: bool) -> None:
        if not eager:
            await asyncio.sleep(pause)
            return
        # not wait_for: in Python 3.11 it can swallow a cancellation that meets the event, and stop() would wait for ever
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._agent.report_now.wait()

    def _take(self, wanted: Wanted) -> None:
        try:
            self._agent.wanted.write(wanted)
        except (
            OSError
        ) as error:  # what is wanted is done all the same; only a restart without controllers would miss it
            event(log, "wanted_not_kept", level=logging.ERROR, reason=str(error))
        self._agent.handle(WantedArrived(replicas=wanted.replicas))
        self._look_at_snapshot()
        if wanted.snapshot_version and wanted.snapshot_version != self._snapshot_version:
            self._snapshot_wanted.set()

    def _message(self) -> Heartbeat:
        return Heartbeat(
            node_id=self._node_id,
            boot_id=self._boot_id,
            sent_at=time.time(),
            version=version(),
            name=self._config.node_name or socket.gethostname(),
            address=f"http://{self._config.node_host}:{self._config.node_port}",
            hardware=self._hardware,
            engines=self._builds,
            replicas=tuple(self._with_memory(report) for report in self._agent.machine.reports()),
            snapshot_version=self._snapshot_version,
            spool_records=self._waiting,
            problems=self._problems(),
        )

    def _with_memory(self, report: ReplicaReport) -> ReplicaReport:
        return replace(report, memory=self._memory.get(report.pid)) if report.pid is not None else report

    def _problems(self) -> tuple[str, ...]:
        found = [self._cards.problem] if self._cards.problem else []
        if self._hardware.cores and self._hardware.disk_free < self._config.data_free:
            room = format_bytes(self._hardware.disk_free)
            found.append(f"only {room} are free under {self._config.data}: make room")
        if self._spool_is_long:
            found.append("the usage spool is long: the controllers take its records too slowly, or not at all")
        return tuple(found)

    def _say_reachable(self, reachable: bool, reason: str = "") -> None:
        if reachable != self._reachable:
            self._reachable = reachable
            level = logging.INFO if reachable else logging.WARNING
            event(
                log,
                "controllers_reached" if reachable else "controllers_unreachable",
                level=level,
                reason=reason or None,
            )

    # --- snapshot -------------------------------------------------------------------------------------------------

    def _held_snapshot(self) -> str:
        """The version of the file at hand; none if it is missing or could not be read by the gateway either."""
        try:
            return from_dict(Snapshot, orjson.loads(self._config.snapshot_file.read_bytes())).version
        except (OSError, orjson.JSONDecodeError, WireError):
            return ""

    def _look_at_snapshot(self) -> None:
        """Read the file's version anew if somebody else touched it: what is damaged or gone is fetched again."""
        mark = files.mark(self._config.snapshot_file)
        if mark != self._snapshot_mark:
            self._snapshot_mark, self._snapshot_version = mark, self._held_snapshot()

    async def run_snapshots(self) -> None:
        """Fetch the snapshot when a heartbeat's answer names another version."""
        while True:
            await self._snapshot_wanted.wait()
            self._snapshot_wanted.clear()
            try:
                data = await self._link.snapshot(self._snapshot_version)
                if data is not None:
                    _check_snapshot(data)
                    await asyncio.to_thread(files.write_atomic, self._config.snapshot_file, data)
                    self._look_at_snapshot()
                    event(log, "snapshot_taken", version=self._snapshot_version)
                    self._agent.report_now.set()
            except (LinkError, OSError) as error:
                event(log, "snapshot_failed", level=logging.WARNING, reason=str(error))
                await asyncio.sleep(FIRST_PAUSE)  # the next heartbeat asks again
            except Exception:
                log.exception("snapshot_failed")
                await asyncio.sleep(LONGEST_PAUSE)

    # --- usage ----------------------------------------------------------------------------------------------------

    async def run_usage(self) -> None:
        """Ship closed records, oldest first, batch by batch."""
        failures = 0
        while True:
            pause = USAGE_IDLE
            try:
                self._waiting = await asyncio.to_thread(self._spool.waiting)
                self._spool_is_long = self._waiting is None
                batch = await asyncio.to_thread(self._spool.next_batch)
                if batch is not None:
                    got = await self._link.usage(batch.records)
                    done = await asyncio.to_thread(self._spool.committed, batch, got.stored, got.refused)
                    pause = USAGE_BEHIND if done else USAGE_IDLE
                failures = 0
            except LinkError as error:
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures, 10))
                failures += 1
                if failures == 1:
                    event(log, "usage_not_shipped", level=logging.WARNING, reason=str(error))
            except Exception:
                log.exception("usage_failed")
                pause = LONGEST_PAUSE
            await asyncio.sleep(pause)

    # --- readings -------------------------------------------------------------------------------------------------

    async def run_readings(self) -> None:
        """Hardware and engine builds each 10 s; memory of engines each 5 s, and at once for a new one."""
        next_hardware = next_memory = 0.0
        while True:
            try:
                now = time.monotonic()
                if now >= next_hardware:
                    next_hardware = now + HARDWARE_EVERY
                    self._hardware = await asyncio.to_thread(probe.hardware, self._config.data, self._cards)
                    self._builds = tuple(engine.build() for engine in self._agent.engines.values())
                pids = {report.pid for report in self._agent.machine.reports() if report.pid is not None}
                if now >= next_memory or pids != set(self._memory):
                    next_memory = now + MEMORY_EVERY
                    self._memory = await asyncio.to_thread(_memory_of, pids)
            except Exception:
                log.exception("readings_failed")
            await asyncio.sleep(READINGS_TICK)


def _check_snapshot(data: bytes) -> None:
    """Raise LinkError for what is no snapshot: the one at hand is better."""
    try:
        from_dict(Snapshot, orjson.loads(data))
    except (orjson.JSONDecodeError, WireError) as error:
        raise LinkError(f"the snapshot cannot be read: {error}") from None


def _memory_of(leaders: set[int]) -> dict[int, int | None]:
    return {leader: probe.proportional_memory(probe.group_of(leader)) for leader in leaders}


def version() -> str:
    """Of the installed llmgw; empty where it runs from a plain copy."""
    try:
        return importlib.metadata.version("llmgw")
    except importlib.metadata.PackageNotFoundError:
        return ""
