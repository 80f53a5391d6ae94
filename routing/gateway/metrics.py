"""The gateway's Prometheus series, and `/metrics` with web's own appended.

Labels come from closed sets: endpoints, statuses, error codes, and the catalogue's model names (`unknown` for what a
client makes up). When a model or a replica goes, its series go with it. Children are looked up once per label set, and
requests that ended are counted many at once: before anybody looks, and now and then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from routing.domain.queueing import Line
from routing.gateway.load import Flights
from routing.gateway.peers import Cluster, Peers
from routing.gateway.upstream import Target, Upstream, UpstreamError

UNKNOWN = "unknown"
_SPANS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_WEB_MOST = 8 << 20


class _InFlight(Collector):
    """Read from the live counts when asked, so the hot path pays nothing and a replica that went has no series."""

    def __init__(self, flights: Flights) -> None:
        self._flights = flights

    def collect(self) -> Iterable[Metric]:
        flights = self._flights
        family = GaugeMetricFamily(
            "llmgw_replica_requests_in_flight", "Requests that run or wait in a replica's engine", labels=["replica"]
        )
        for name in flights.replicas.keys() | flights.counts.keys():
            family.add_metric([name], flights.counts.get(name, 0))
        yield family


class _Waiting(Collector):
    """Requests that wait for a model at rest (models for which nobody waits have no series), and for room at engines here."""

    def __init__(self, waiting: Callable[[], Mapping[str, int]], lines: Callable[[], Mapping[str, Line]]) -> None:
        self._waiting = waiting
        self._lines = lines

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "llmgw_requests_waiting_for_model", "Requests that wait for a model at rest to come up", labels=["model"]
        )
        for name, count in self._waiting().items():
            family.add_metric([name], count)
        yield family
        waiting = GaugeMetricFamily(
            "llmgw_queue_waiting", "Requests that wait for room at a model's replicas here", labels=["model"]
        )
        running = GaugeMetricFamily("llmgw_queue_running", "Requests that have room there", labels=["model"])
        room = GaugeMetricFamily("llmgw_queue_room", "Requests at once for which there is room there", labels=["model"])
        for name, line in self._lines().items():
            waiting.add_metric([name], line.waiting)
            running.add_metric([name], line.running)
            room.add_metric([name], line.room)
        yield from (waiting, running, room)


class _Nodes(Collector):
    """What goes to other nodes, read from the live counts; a node that went from the map has no series."""

    def __init__(self, peers: Peers, cluster: Cluster) -> None:
        self._peers = peers
        self._cluster = cluster

    def collect(self) -> Iterable[Metric]:
        flying = GaugeMetricFamily(
            "llmgw_node_requests_in_flight", "Requests in progress at another node", labels=["node"]
        )
        missed = CounterMetricFamily(
            "llmgw_node_unreachable", "Requests that could not connect to another node", labels=["node"]
        )
        counts: dict[str, int] = {}
        for (node_id, _), count in self._peers.in_flight.items():
            counts[node_id] = counts.get(node_id, 0) + count
        known = self._cluster.map
        for node in known.nodes if known is not None else ():
            if node.node_id != self._cluster.node_id:
                flying.add_metric([node.name], counts.get(node.node_id, 0))
                missed.add_metric([node.name], self._peers.unreachable_counts.get(node.node_id, 0))
        yield flying
        yield missed


class _Dropped(Collector):
    """Of the log, read where it is counted."""

    def __init__(self, dropped: Callable[[], int]) -> None:
        self._dropped = dropped

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "llmgw_log_lines_dropped",
            "Lines of the gateway's log that standard error did not take, since its reader stalls",
            value=self._dropped(),
        )


class _Registry(CollectorRegistry):
    """Counts what has ended before it tells anybody."""

    def __init__(self, count: Callable[[], None]) -> None:
        super().__init__()
        self._count = count

    def collect(self) -> Iterable[Metric]:
        self._count()
        return super().collect()


class _Ended(NamedTuple):
    """A client's request that is over; spans in seconds."""

    endpoint: str
    model: str
    status: int
    seconds: float
    prompt: int | None
    completion: int | None
    first_token: float | None


class Metrics:
    """Every series of this process; the data path calls the methods, never the client library. `dropped`: lines of its log."""

    def __init__(self, flights: Flights, *, dropped: Callable[[], int] = lambda: 0) -> None:
        self._ended: list[_Ended] = []
        self.registry = registry = _Registry(self.count)
        ProcessCollector(namespace="llmgw_gateway", registry=registry)
        registry.register(_InFlight(flights))
        registry.register(_Dropped(dropped))
        self._requests = Counter(
            "llmgw_requests", "Requests answered", ["endpoint", "model", "status"], registry=registry
        )
        self._passed_on = Counter(
            "llmgw_passed_on", "Requests that other nodes passed on to this one", ["hop", "model", "status"],
            registry=registry,
        )  # fmt: skip
        self.in_flight = Gauge("llmgw_requests_in_flight", "Requests under way in the gateway", registry=registry)
        self._seconds = Histogram(
            "llmgw_request_seconds",
            "From a request's head to its last byte, in seconds",
            ["endpoint", "model"],
            buckets=_SPANS,
            registry=registry,
        )
        self._first = Histogram(
            "llmgw_first_token_seconds",
            "From a streamed request's head to its first token, in seconds",
            ["model"],
            buckets=_SPANS,
            registry=registry,
        )
        self._queue = Histogram(
            "llmgw_queue_wait_seconds",
            "How long requests waited for room, of those that did",
            ["model"],
            buckets=_SPANS,
            registry=registry,
        )
        self._queue_refused = Counter(
            "llmgw_queue_refused", "Requests for which there was no room in time", ["model", "code"], registry=registry
        )
        self._tokens = Counter("llmgw_tokens", "Tokens", ["model", "direction"], registry=registry)
        self._upstream = Counter(
            "llmgw_upstream_errors", "Requests that an engine failed", ["model", "code"], registry=registry
        )
        self.usage_failures = Counter(
            "llmgw_usage_write_failures", "Failed writes to the usage spool", registry=registry
        )
        self.usage_waiting = Gauge(
            "llmgw_usage_lines_waiting", "Usage lines in memory that the disk has not taken", registry=registry
        )
        self.limits_alone = Gauge(
            "llmgw_limits_on_own_share",
            "1: no controller answers that counts for several edges, so this one works on its share of the limits",
            registry=registry,
        )
        self.loop_lag = Gauge(
            "llmgw_event_loop_lag_seconds", "How late the event loop's last tick came", registry=registry
        )
        self.loop_lag_max = Gauge(
            "llmgw_event_loop_lag_max_seconds", "The greatest lag of the last minute", registry=registry
        )
        self._children: dict[tuple[Any, ...], Any] = {}

    def follow(self, peers: Peers, cluster: Cluster) -> None:
        """Show what goes to other nodes too."""
        self.registry.register(_Nodes(peers, cluster))

    def watch(self, waiting: Callable[[], Mapping[str, int]], lines: Callable[[], Mapping[str, Line]]) -> None:
        """Show requests that wait for models at rest, and for room, too."""
        self.registry.register(_Waiting(waiting, lines))

    def _child(self, metric: Any, *labels: str | int) -> Any:
        key = (metric, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    def answered(
        self,
        endpoint: str,
        model: str,
        status: int,
        seconds: float,
        *,
        prompt: int | None,
        completion: int | None,
        first_token: float | None,
    ) -> None:
        """A client's request is over. Counted with the next look, or by `count`."""
        self._ended.append(_Ended(endpoint, model, status, seconds, prompt, completion, first_token))

    def count(self) -> None:
        """Take over what has ended."""
        ended, self._ended = self._ended, []
        for item in ended:
            self._child(self._requests, item.endpoint, item.model, item.status).inc()
            self._child(self._seconds, item.endpoint, item.model).observe(item.seconds)
            if item.prompt:
                self._child(self._tokens, item.model, "in").inc(item.prompt)
            if item.completion:
                self._child(self._tokens, item.model, "out").inc(item.completion)
            if item.first_token is not None:
                self._child(self._first, item.model).observe(item.first_token)

    def passed_on(self, hop: str, model: str, status: int) -> None:
        """A request that counts at the node which the client asked."""
        self._child(self._passed_on, hop, model, status).inc()

    def queued(self, model: str, seconds: float) -> None:
        self._child(self._queue, model).observe(seconds)

    def queue_refused(self, model: str, code: str) -> None:
        self._child(self._queue_refused, model, code).inc()

    def engine_failed(self, model: str, code: str) -> None:
        self._child(self._upstream, model, code).inc()

    def keep(self, models: Collection[str]) -> None:
        """Drop the series of models that are no longer in the catalogue."""
        self.count()
        for key in list(self._children):
            metric, labels = key[0], key[1:]
            place = metric._labelnames.index("model")
            if labels[place] not in models and labels[place] != UNKNOWN:
                with contextlib.suppress(KeyError):
                    metric.remove(*labels)
                del self._children[key]


class MetricsApp:
    """ASGI: GET /metrics, nothing else. `web` is asked through its unix socket and left out when it does not answer."""

    def __init__(self, metrics: Metrics, upstream: Upstream, web: Target) -> None:
        self._metrics = metrics
        self._upstream = upstream
        self._web = web

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        found = scope["path"] == "/metrics" and scope["method"] in ("GET", "HEAD")
        body = generate_latest(self._metrics.registry) + await self._of_web() if found else b"not found\n"
        headers = [(b"content-type", _CONTENT_TYPE), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200 if found else 404, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _of_web(self) -> bytes:
        parts, size = [], 0
        try:
            response = await self._upstream.request(
                self._web,
                method=b"GET",
                path=b"/metrics",
                headers=[(b"accept-encoding", b"identity")],
                first_byte_timeout=2.0,
                idle_timeout=2.0,
            )
            while piece := await response.read():
                parts.append(piece)
                size += len(piece)
                if size > _WEB_MOST:
                    response.abort()
                    return b""
        except UpstreamError:
            return b""
        return b"".join(parts) if response.status == 200 else b""
