"""What is in flight on each replica, and telling the agent: one JSON `cluster.wire.Load` a line on its unix socket.

Each second, and at once when a draining replica has finished its last request or an engine's connection failed. The
agent may come and go: the socket is connected again by itself, and a report that was missed is made good by the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from cluster.wire import Load, ReplicaLoad, to_dict
from llmgw_site.lib.clock import Clock
from llmgw_site.lib.logs import event
from routing.domain.figures import Scraped

log = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two reports, and between two attempts to connect."""


_UNKNOWN = Scraped()


class Flights:
    """Requests in flight by replica. Counted by the loop's one thread, in pairs of `enter` and `leave`."""

    def __init__(self, clock: Clock) -> None:
        self.counts: dict[str, int] = {}
        self.foreign: dict[str, int] = {}
        """Requests that an engine says it has beyond ours; never zero."""
        self.full: dict[str, int] = {}
        """Of engines in whose own queue requests wait, how many run."""
        self.scraped: dict[str, Scraped] = {}
        """What is known of each engine's own figures; times are the loop's."""
        self.last_used: dict[str, float] = {}
        self.suspects: set[str] = set()
        self.replicas: Mapping[str, str] = {}
        """This node's replicas and their states, as the engines file has them."""
        self.patience: Mapping[str, float] = {}
        """Seconds that a request to each of them waits for its first byte."""
        self.queued: Callable[[], Mapping[str, int]] = dict
        """Requests that wait in this gateway's queues, by replica."""
        self.problems: Callable[[], tuple[str, ...]] = tuple
        """What is wrong with the gateway itself, for people."""
        self.urgent = asyncio.Event()
        self._clock = clock

    def enter(self, replica_id: str) -> None:
        self.counts[replica_id] = self.counts.get(replica_id, 0) + 1

    def leave(self, replica_id: str) -> None:
        left = self.counts[replica_id] - 1
        self.last_used[replica_id] = self._clock.now()
        if left:
            self.counts[replica_id] = left
            return
        del self.counts[replica_id]
        if self.replicas.get(replica_id) != "ready":
            self.urgent.set()

    def suspect(self, replica_id: str) -> None:
        """Its engine refused a connection or broke off: the agent should look at it now."""
        self.suspects.add(replica_id)
        self.urgent.set()

    def follow(self, replicas: Mapping[str, str], patience: Mapping[str, float] | None = None) -> None:
        """Take the engines file's replicas over; those that went away are forgotten once they are idle."""
        gone = self.last_used.keys() - replicas.keys() - self.counts.keys()
        for replica_id in gone:
            del self.last_used[replica_id]
        if any(state != "ready" and self.replicas.get(name) == "ready" for name, state in replicas.items()):
            self.urgent.set()  # begins to drain: the agent wants to know how much there is left
        self.replicas, self.patience = replicas, patience or {}

    def report(self, now: float) -> Load:
        """`now` is the loop's time."""
        names, queued = self.replicas.keys() | self.counts.keys(), self.queued()
        return Load(
            replicas={
                name: self._load(name, self.scraped.get(name, _UNKNOWN), now, queued.get(name, 0)) for name in names
            },
            suspects=tuple(sorted(self.suspects)),
            problems=self.problems(),
        )

    def _load(self, name: str, scraped: Scraped, now: float, queued: int) -> ReplicaLoad:
        """What waits in the engine and what waits here for it is one figure: it is what has a model grow."""
        figures, still = scraped.figures, scraped.still(now)
        inside = None if figures is None else figures.waiting
        return ReplicaLoad(
            in_flight=self.counts.get(name, 0),
            last_used_at=self.last_used.get(name),
            waiting=(inside or 0) + queued if queued else inside,
            still_for=None if still is None else round(still, 1),
            patience=self.patience.get(name),
        )

    @property
    def loads(self) -> Mapping[str, int]:
        """What runs and waits in each engine, whoever asked for it."""
        counts, foreign = self.counts, self.foreign
        if not foreign:
            return counts
        return {name: counts.get(name, 0) + foreign.get(name, 0) for name in counts.keys() | foreign.keys()}

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class LoadReporter:
    """Writes the reports; `run` never ends."""

    def __init__(self, flights: Flights, socket: Path) -> None:
        self._flights = flights
        self._socket = socket
        self._connected = False

    async def run(self) -> None:
        while True:
            writer = None
            try:
                _, writer = await asyncio.open_unix_connection(str(self._socket))
                self._note(connected=True)
                while True:
                    await self._tell(writer)
            except OSError:
                self._note(connected=False)
            finally:
                if writer is not None:
                    writer.close()
                    with contextlib.suppress(OSError):
                        await writer.wait_closed()
            await asyncio.sleep(PERIOD)

    async def _tell(self, writer: asyncio.StreamWriter) -> None:
        flights = self._flights
        flights.urgent.clear()
        told = flights.report(asyncio.get_running_loop().time())
        writer.write(orjson.dumps(to_dict(told)) + b"\n")
        await writer.drain()
        flights.suspects.difference_update(told.suspects)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(flights.urgent.wait(), PERIOD)
        if writer.is_closing():
            raise ConnectionResetError

    def _note(self, *, connected: bool) -> None:
        if connected != self._connected:
            self._connected = connected
            event(log, "agent_connected" if connected else "agent_gone")
