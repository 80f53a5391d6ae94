"""The agent's talk with the controllers: heartbeats and what their answers bring. It goes on by itself whatever it meets.

An answer brings wanted replicas, the module map, the roles of the cluster setup, and the version of the snapshot. Nudges
(`nudges.py`) only make the next heartbeat come at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import random
import socket
import time
from dataclasses import replace

import orjson

from cluster.domain.modules import DEFAULT_ROLES, Module, ModuleState
from cluster.wire import Heartbeat, Nudge, ReplicaReport, Wanted, WireError, from_dict
from llmgw_site.lib import files
from llmgw_site.lib.config import Config
from llmgw_site.lib.logs import event
from routing.domain.snapshot import Snapshot
from workers.agent import address
from workers.agent.events import InferenceSwitched, WantedArrived, WeightsSeen
from workers.agent.fetch_plan import words
from workers.agent.fetching import Fetching
from workers.agent.link import Link, LinkError, NodeRemoved
from workers.agent.loop import Agent
from workers.agent.modules import Modules
from workers.agent.node_map import NodeMap
from workers.agent.readings import Readings
from workers.agent.revoked import RevokedStore
from workers.agent.shipping import Shipping
from workers.agent.sources import NodeCalls
from workers.agent.weights import Holdings

log = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
LEAST_PAUSE = 0.05
"""Seconds between a heartbeat's answer and the next one: what changes together is told together."""
WATCH_EVERY, ADDRESS_EVERY = 0.25, 5.0
ADDRESS_PATIENCE = 2.0
"""Seconds that the first heartbeat waits for this node's address."""
SPREAD_PAUSE = 0.1
"""Share by which a pause may be shorter: else all nodes that one nudge woke would come together for ever."""
SPREAD, LARGE = 0.3, 1000
"""Seconds over which the nodes of a cluster of so many answer one nudge; fewer nodes, proportionally less."""


class Reporter:
    """See the module. `run_*` are endless; `Agent.background` runs them. `removed`: this node is out of the cluster."""

    def __init__(
        self,
        config: Config,
        agent: Agent,
        link: Link,
        *,
        node_id: str,
        boot_id: str,
        node_map: NodeMap,
        modules: Modules,
        calls: NodeCalls,
    ) -> None:
        self._config, self._agent, self._link = config, agent, link
        self._node_id, self._boot_id = node_id, boot_id
        self._map, self._modules = node_map, modules
        self.removed = asyncio.Event()
        self.readings = Readings(config, agent)
        self.shipping = Shipping(config.usage, link, removed=self.removed.set)
        self._address: str | None = None
        self._heartbeat = config.heartbeat  # as the controllers said last
        self.holdings = Holdings(news=agent.report_now.set, store=agent.store, seen=self._weights_seen)
        self.fetching = Fetching(
            config, agent.store, link, calls, used=agent.machine.used, data=lambda: modules.runs(Module.DATA),
            news=self._weights_seen, changed=self.holdings.hurry,
        )  # fmt: skip
        self._revoked = RevokedStore(config.revoked_file, time.time)
        self._snapshot_mark = files.mark(config.snapshot_file)
        self._snapshot_version = self._held_snapshot()
        self._snapshot_wanted = asyncio.Event()
        self._snapshot_cloud = False  # whether the one at hand was made for a node that runs the cloud module
        self._told_cloud = False
        self._connected = asyncio.Event()
        self._reachable: bool | None = None
        self._unkept = False  # what is wanted is not on the disk; said once
        link.learn(node_map.controllers())

    # --- heartbeat ------------------------------------------------------------------------------------------------

    async def run_heartbeats(self) -> None:
        """One each `wanted.heartbeat` seconds, and at once when something changed; after failures with growing pauses."""
        failures = 0
        try:
            async with asyncio.timeout(ADDRESS_PATIENCE):
                await self._look_at_address()
        except TimeoutError:  # a slow name server; `run_watch` looks again
            pass
        except Exception:
            log.exception("address_look_failed")
        while True:
            self._agent.report_now.clear()
            self._connected.clear()
            try:
                message = self._message()
                wanted = await self._link.heartbeat(message)
                self.holdings.answered(wanted, message)
                failures, pause = 0, min(max(wanted.heartbeat, LEAST_PAUSE), 300.0)
                self._heartbeat = pause
                pause *= random.uniform(1.0 - SPREAD_PAUSE, 1.0)
                self._told_cloud = any(
                    item.name == Module.CLOUD and item.state == ModuleState.RUNNING for item in message.modules
                )
                self._take(wanted)
                self._say_reachable(True)
            except LinkError as error:
                longest = min(LONGEST_PAUSE, max(FIRST_PAUSE, self._heartbeat))  # no rarer than when all is well
                pause = min(longest, FIRST_PAUSE * 2 ** min(failures, 10)) * random.uniform(0.8, 1.0)
                failures += 1
                self._say_reachable(False, str(error))
            except NodeRemoved as said:
                event(log, "node_removed", level=logging.ERROR, reason=str(said))
                self.removed.set()
                pause = LONGEST_PAUSE
            except Exception:
                # F06: a defect in one beat must not end the beating
                log.exception("heartbeat_failed")
                pause = LONGEST_PAUSE
                failures += 1  # nor make it run: news does not cut this pause short
            await self._wait(pause, eager=failures == 0)

    async def _wait(self, pause: float, *, eager: bool) -> None:
        """Until the pause is over, or there is news; after a failure, until a controller is heard of."""
        await asyncio.sleep(LEAST_PAUSE)
        # not wait_for: in Python 3.11 it can swallow a cancellation that meets the event, and stop() would wait for ever
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await (self._agent.report_now if eager else self._connected).wait()

    def _take(self, wanted: Wanted) -> None:
        if self._map.take(wanted.map, self._wall_offset()):
            self._link.learn(self._map.controllers())
            event(log, "map_taken", version=self._map.version)
        if self._modules.assign(wanted.roles):
            self._modules_changed()
        try:
            self._agent.wanted.write(wanted)
        except OSError as error:
            # what is wanted is done all the same; only a restart without controllers would miss it
            if not self._unkept:
                event(log, "wanted_not_kept", level=logging.ERROR, reason=str(error))
            self._unkept = True
        else:
            self._unkept = False
        self.fetching.take(wanted)
        self._agent.handle(WantedArrived(replicas=wanted.replicas))
        self._look_at_snapshot()
        if self._told_cloud != self._snapshot_cloud:
            self._snapshot_version = ""  # another version for a node with other modules
        if wanted.snapshot_version and wanted.snapshot_version != self._snapshot_version:
            self._snapshot_wanted.set()

    def _message(self) -> Heartbeat:
        return Heartbeat(
            node_id=self._node_id,
            boot_id=self._boot_id,
            sent_at=time.time(),
            version=version(),
            name=self._config.node_name or socket.gethostname(),
            address=self._address or "",
            hardware=self.readings.hardware,
            engines=self.readings.builds,
            replicas=tuple(self._with_use(report) for report in self._agent.machine.reports()),
            snapshot_version=self._snapshot_version,
            spool_records=self.shipping.waiting,
            problems=self._problems(),
            modules=self._modules.now.modules,
            roles=tuple(self._config.roles or (module.value for module in DEFAULT_ROLES)),
            map_version=self._map.version,
            weights_mark=self.holdings.mark,
            weights=self.holdings.to_tell,
            fetches=self.fetching.reports(),
        )

    def _weights_seen(self) -> None:
        """Other weights are here, or some are on their way: replicas may wait for them, and the controllers hear of it."""
        told = {report.version: (report.code, words(report)) for report in self.fetching.reports()}
        self._agent.handle(WeightsSeen(whole=self.holdings.whole, fetches=told))
        self._agent.report_now.set()

    def _with_use(self, report: ReplicaReport) -> ReplicaReport:
        if report.pid is None:
            return report
        seen, of_cards = self.readings, self.readings.card_memory.get(report.replica_id)
        return replace(report, memory=seen.memory.get(report.pid), card_memory=of_cards, cpu=seen.cpu.get(report.pid))

    def _problems(self) -> tuple[str, ...]:
        found = [*self.readings.problems(), *self.shipping.problems(), *self._agent.gateway_problems]
        if self.holdings.problem:
            found.append(self.holdings.problem)
        if self._address is None:
            found.append("this node has no address that others could use: set LLMGW_NODE_ADDRESS")
        return tuple(found)

    def _say_reachable(self, reachable: bool, reason: str = "") -> None:
        if reachable != self._reachable:
            self._reachable = reachable
            level = logging.INFO if reachable else logging.WARNING
            name = "controllers_reached" if reachable else "controllers_unreachable"
            event(log, name, level=level, reason=reason or None)

    # --- nudges ---------------------------------------------------------------------------------------------------

    def connected(self) -> None:
        self._connected.set()
        self._agent.report_now.set()

    def nudged(self, nudge: Nudge) -> None:
        """Look again now. Who was removed is out of the map, and what was revoked is refused, before any answer."""
        self._revoked.take(nudge.revoked)
        if self._map.drop(nudge.removed, self._wall_offset()):
            self._link.learn(self._map.controllers())
            event(log, "nodes_dropped", nodes=list(nudge.removed))
        nodes = len(self._map.map.nodes) if self._map.map else 0
        pause = random.uniform(0.0, SPREAD * min(1.0, nodes / LARGE))
        asyncio.get_running_loop().call_later(pause, self._agent.report_now.set)

    # --- this node ------------------------------------------------------------------------------------------------

    async def run_watch(self) -> None:
        """Switches made on this node, a clock that was set, an address that changed."""
        next_address = time.monotonic() + ADDRESS_EVERY
        while True:
            await asyncio.sleep(WATCH_EVERY)
            try:
                if self._modules.look():
                    self._modules_changed()
                self._map.keep(self._wall_offset())
                self._revoked.keep()
                if time.monotonic() >= next_address:
                    next_address = time.monotonic() + ADDRESS_EVERY
                    if await self._look_at_address():
                        self._agent.report_now.set()
            except Exception:
                log.exception("watch_failed")

    def _modules_changed(self) -> None:
        now = self._modules.now
        event(log, "modules_changed", modules={item.name: item.state for item in now.modules}, managed=now.managed)
        self._agent.handle(InferenceSwitched(on=self._modules.runs(Module.INFERENCE)))
        self._agent.report_now.set()

    async def _look_at_address(self) -> bool:
        """Whether another address is to be advertised from now on. One that is gone for a moment stays advertised."""
        config = self._config
        found = await asyncio.to_thread(
            address.advertised, setting=config.node_address, bound=config.node_host, port=config.node_port,
            controllers=self._link.urls, local=not config.controllers,
        )  # fmt: skip
        if found is None or found == self._address:
            return False
        event(log, "address_advertised", address=found, before=self._address)
        self._address = found
        return True

    def _wall_offset(self) -> float:
        """Cluster time less what this machine's clock says now."""
        return self._link.cluster_time - time.time()

    # --- snapshot -------------------------------------------------------------------------------------------------

    def _held_snapshot(self) -> str:
        """The version of the file at hand; none if it is missing or could not be read by the gateway either. What it says
        of weights is looked for from now on."""
        try:
            held = from_dict(Snapshot, orjson.loads(self._config.snapshot_file.read_bytes()))
        except (OSError, orjson.JSONDecodeError, WireError):
            return ""
        self.holdings.ask(item.weights for item in held.models if item.weights)
        self._revoked.snapshot_has({*(key.sha256 for key in held.keys), *(admin.sha256 for admin in held.admins)})
        return held.version

    def _look_at_snapshot(self) -> None:
        """Read the file's version anew if somebody else touched it: what is damaged or gone is fetched again."""
        mark = files.mark(self._config.snapshot_file)
        if mark != self._snapshot_mark:
            self._snapshot_mark, self._snapshot_version = mark, self._held_snapshot()

    async def run_snapshots(self) -> None:
        """Fetch the snapshot when a heartbeat's answer names another version."""
        failures = 0
        while True:
            await self._snapshot_wanted.wait()
            self._snapshot_wanted.clear()
            try:
                cloud = self._told_cloud
                data = await self._link.snapshot(self._snapshot_version)
                if data is not None:
                    _check_snapshot(data)
                    await asyncio.to_thread(files.write_atomic, self._config.snapshot_file, data)
                    self._snapshot_cloud = cloud
                    self._look_at_snapshot()
                    event(log, "snapshot_taken", version=self._snapshot_version)
                    self._agent.report_now.set()
                failures = 0
            except (LinkError, OSError) as error:
                event(log, "snapshot_failed", level=logging.WARNING, reason=str(error))
                await asyncio.sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures, 10)))
                failures += 1
                self._agent.report_now.set()  # its answer asks again
            except NodeRemoved:
                self.removed.set()
                await asyncio.sleep(LONGEST_PAUSE)
            except Exception:
                log.exception("snapshot_failed")
                await asyncio.sleep(LONGEST_PAUSE)


def _check_snapshot(data: bytes) -> None:
    """Raise LinkError for what is no snapshot: the one at hand is better."""
    try:
        from_dict(Snapshot, orjson.loads(data))
    except (orjson.JSONDecodeError, WireError) as error:
        raise LinkError(f"the snapshot cannot be read: {error}") from None


def version() -> str:
    """Of the installed llmgw; empty where it runs from a plain copy."""
    try:
        return importlib.metadata.version("llmgw")
    except importlib.metadata.PackageNotFoundError:
        return ""
