"""Builds the gateway's parts, starts and stops them in order. The only place where they meet."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from cluster.domain.modules import Module
from cluster.wire import LocalEngine
from llmgw_site.lib.clock import Clock, SystemClock
from llmgw_site.lib.config import Config
from llmgw_site.lib.logs import event
from llmgw_site.lib.unblocked import Unblocked
from routing.domain.choose import Route
from routing.domain.offers import Offer, own_offer
from routing.gateway import tracing
from routing.gateway.access import AccessLog
from routing.gateway.activation import Activation
from routing.gateway.app import App
from routing.gateway.chat import Parts
from routing.gateway.cloud import Cloud
from routing.gateway.dispatch import Dispatch
from routing.gateway.engines import Engines
from routing.gateway.hop import BEAT
from routing.gateway.ledger import Ledger
from routing.gateway.limiter import Limiter
from routing.gateway.load import Flights, LoadReporter
from routing.gateway.membership import Members
from routing.gateway.metrics import UNKNOWN, Metrics, MetricsApp
from routing.gateway.node_api import NodeApi
from routing.gateway.node_listener import MAX_BODY, NodeListener
from routing.gateway.peers import Peers
from routing.gateway.polling import Poller
from routing.gateway.queues import Queues
from routing.gateway.remote import Remote
from routing.gateway.scrapes import EngineFigures
from routing.gateway.strategy import StoredRule
from routing.gateway.table import Table, View
from routing.gateway.upstream import Limits, Target, Upstream
from routing.gateway.web_proxy import CLIENT, NODE, WebProxy
from routing.gateway.weights import NodeWeights

log = logging.getLogger(__name__)

TICK = 0.25
"""Seconds between two looks at the requests under way: who left, who waits in silence. Also measures the loop's lag."""
_LAG_WINDOW = 60.0


class Gateway:
    """The three applications and what runs beside them. Made by `build`."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        upstream: Upstream | None = None,
        *,
        since: float | None = None,
        out: Unblocked | None = None,
    ) -> None:
        self.config = config
        self.flights = Flights(clock)
        self.out = out or Unblocked()
        self.metrics = Metrics(self.flights, dropped=lambda: self.out.dropped)
        limits = Limits(idle_connection=min(Limits().idle_connection, 0.8 * config.keepalive_timeout))
        self.upstream = upstream or Upstream(connect_timeout=config.connect_timeout, limits=limits)
        self.ledger = Ledger(config.usage, boot_id=os.urandom(6).hex(), on_failure=self.metrics.usage_failures.inc)
        self.table = Table(config, on_change=self._changed)
        self.engines = Engines(
            self.upstream, self.flights, view=lambda: self.table.view, every=config.engine_metrics_every
        )
        self.metrics.registry.register(EngineFigures(lambda: self.engines.told))
        self.members = Members(config, clock, since=since)
        self.remote = Remote(self.members, self.upstream)
        self.rule = StoredRule(config.router_file)
        self.peers = Peers(
            config, clock, self.members, view=lambda: self.table.view, rule=lambda: self.rule.rule, own=self._own_offer
        )
        self.metrics.follow(self.peers, self.members)
        node_api = NodeApi(config, self.members, self.peers, self.rule, lambda: self.table.view)
        self.cloud = cloud = Cloud(config, self.members, self.upstream, self.metrics, view=lambda: self.table.view)
        self.activation = Activation(self.remote)
        self.queues = Queues(config, self.metrics)
        self.metrics.watch(lambda: self.activation.waiting, lambda: self.queues.lines)
        self.flights.queued = lambda: self.queues.queued
        self.limiter = Limiter(self.remote, edges=lambda: 1 + len(self.members.others(Module.EDGE)))
        self.flights.problems = lambda: (*self.ledger.problems, *self.limiter.problems)
        dispatch = Dispatch(
            config,
            members=self.members,
            peers=self.peers,
            cloud=cloud,
            table=self.table,
            flights=self.flights,
            activation=self.activation,
            ledger=self.ledger,
        )
        parts = Parts(
            config=config,
            clock=clock,
            table=self.table,
            ledger=self.ledger,
            flights=self.flights,
            peers=self.peers,
            metrics=self.metrics,
            upstream=self.upstream,
            members=self.members,
            cloud=cloud,
            dispatch=dispatch,
            queues=self.queues,
            limiter=self.limiter,
        )
        self.tracing = tracing.make(os.environ)
        web = WebProxy(config, self.upstream, listener=CLIENT)
        self._access = AccessLog(config, self.out)
        self.app = App(parts, self._access, web, node_api, self.tracing)
        to_web = WebProxy(config, self.upstream, listener=NODE, max_body=MAX_BODY)
        self.weights = NodeWeights(config)
        self.node_app = NodeListener(to_web, self.app, self.members, self.peers, self.weights)
        self.metrics_app = MetricsApp(self.metrics, self.upstream, Target("web", 80, uds=str(config.web_socket)))
        self._reporter = LoadReporter(self.flights, config.agent_socket)
        self._poller = Poller(config, clock, self.members, self.peers, self.remote.ask)
        self._tasks: list[asyncio.Task[None]] = []
        self._pings: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Close what an earlier gateway left open, read snapshot and engines, begin to watch and report."""
        logging.getLogger("uvicorn.error").addFilter(_expected)
        _allow_files(self.config.max_connections)
        self.ledger.start()
        self.table.look()
        self.members.look()
        self.rule.load()
        for run in (
            self.table.watch,
            self.members.watch,
            self._reporter.run,
            self._poller.run,
            self.engines.run,
            self.limiter.run,
            self._tick,
        ):
            self._tasks.append(asyncio.get_running_loop().create_task(_for_ever(run)))

    @property
    def node_tls(self) -> ssl.SSLContext | None:
        """What the node listener speaks: TLS where this node advertises an https address. Known once started."""
        return self.members.certificates.server if self.members.address.startswith("https://") else None

    async def stop(self) -> None:
        """After the listeners have ended."""
        await self.app.end()
        self._access.flush()
        await self.activation.stop()
        for task in (*self._tasks, *self._pings):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._pings, return_exceptions=True)
        self._tasks.clear()
        await self.upstream.close()
        self.weights.close()
        self.ledger.stop()
        if self.tracing is not None:
            await self.tracing.stop()
        self.out.close()

    def _own_offer(self, route: Route) -> Offer | None:
        if route.model.external is not None:
            serves = self.members.runs(Module.CLOUD) and self.cloud.serves(route)
            return Offer(model=route.model.name) if serves else None
        if not self.members.runs(Module.INFERENCE):
            return None
        return own_offer(route, in_flight=self.flights.loads, said=self.engines.facts)

    def _changed(self, view: View) -> None:
        self.flights.follow(view.replicas, {item.replica_id: self._patience(view, item) for item in view.engines})
        self.queues.follow(view)
        self.metrics.keep({*view.routes, UNKNOWN})

    def _patience(self, view: View, engine: LocalEngine) -> float:
        route = view.routes.get(engine.model)
        own = route.model.first_byte_timeout if route is not None else None
        return self.config.first_byte_timeout if own is None else own

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        silence = self.config.keepalive_comment
        pause = min(TICK, silence / 2)
        worst, worst_at = 0.0, loop.time()
        while True:
            due = loop.time() + pause
            await asyncio.sleep(pause)
            now = loop.time()
            lag = max(0.0, now - due)
            if lag >= worst or now - worst_at > _LAG_WINDOW:
                worst, worst_at = lag, now
                self.metrics.loop_lag_max.set(lag)
            self.metrics.loop_lag.set(lag)
            self.metrics.in_flight.set(len(self.app.active))
            self.ledger.flush()
            self.out.flush()
            self.metrics.count()
            self.metrics.usage_waiting.set(self.ledger.waiting)
            self.metrics.limits_alone.set(self.limiter.alone)
            self._look(now, silence)

    def _look(self, now: float, silence: float) -> None:
        """Requests that live for longer than a tick get a watcher for the client's leaving; short ones never pay."""
        for exchange in self.app.active:
            exchange.beat(now, BEAT)
            if exchange.forwarded_at is None and not exchange.waits:
                continue
            if exchange.watcher is None:
                exchange.watch()
            if exchange.silent(now, silence):
                task = asyncio.get_running_loop().create_task(exchange.ping(now))
                self._pings.add(task)
                task.add_done_callback(self._pings.discard)


def _allow_files(connections: int) -> None:
    """Raise the soft limit on open files for so many clients, each with a connection to an engine, as far as we may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + 1024
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < wanted:
            event(log, "few_files_allowed", level=logging.WARNING, allowed=most, wanted=wanted)


def build(
    config: Config,
    *,
    clock: Clock | None = None,
    upstream: Upstream | None = None,
    since: float | None = None,
    out: Unblocked | None = None,
) -> Gateway:
    """A gateway of this configuration; nothing runs before `start`. A simulation brings its own time and network.

    `since`: when its sockets began to listen, by the clock's monotonic time; calls wait there while it is built.
    `out`: where the lines of its access log go; standard error.
    """
    return Gateway(config, clock or SystemClock(), upstream, since=since, out=out)


async def _for_ever(run: Callable[[], Awaitable[Any]]) -> None:
    """Keep a background task alive: its defect is logged, and it begins anew after a second."""
    while True:
        try:
            await run()
        except Exception as error:
            event(log, "background_task_failed", level=logging.ERROR, task=run.__qualname__, error=repr(error))
            await asyncio.sleep(1.0)


def _expected(record: logging.LogRecord) -> bool:
    """Not logged by uvicorn as errors: an answer that we left unfinished on purpose, after saying so in the access log, and a
    websocket that we answered as any request."""
    said = record.getMessage()
    return "without completing response" not in said and "without completing handshake" not in said
