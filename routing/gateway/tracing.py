"""Traces of requests by OTLP/HTTP, on if the usual `OTEL_*` variables say so. The packages are the extra `tracing`.

A request is one trace: its span, and within it one after the other `admission` (key, body, limits), `schedule` (choice, a
model that comes up), `queue` where there was no room (and `schedule` anew) and the call of an engine, provider or other node, by the GenAI semantic conventions. A caller's
`traceparent` is continued, and whoever is called gets one. No prompt, answer or key is in a span.

Sources: W3C Trace Context; OpenTelemetry's semantic conventions for HTTP and, in a repository of their own, for GenAI.
Nothing is imported where it is off.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llmgw_site.lib.logs import event
from routing.domain.endpoints import CHAT, COMPLETIONS, EMBEDDINGS, ENDPOINTS, MESSAGES, RESPONSES
from routing.domain.records import Outcome, UsageRecord
from routing.gateway.exchange import Exchange

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

log = logging.getLogger(__name__)

SERVICE = "llmgw-gateway"
"""`service.name` where no variable names it."""
NODE, EXTERNAL = "llmgw", "openai"
"""`gen_ai.provider.name` of another node, and of an external provider, of which no more is known than how it speaks."""
FLUSH = 3.0
"""Seconds that spans which were not sent yet have at the end."""
_OPERATIONS = {
    CHAT: "chat", MESSAGES: "chat", RESPONSES: "chat", COMPLETIONS: "text_completion", EMBEDDINGS: "embeddings",
}  # fmt: skip
"""`gen_ai.operation.name` by endpoint; others have the endpoint's own name."""
_CARRIED = (b"traceparent", b"tracestate")


def wanted(environ: Mapping[str, str]) -> bool | str:
    """Whether these variables ask for traces; a text: they do, and why they cannot be had.

    1. switched off altogether, or other exporters than `otlp` are named   no
    2. no address, and `otlp` is not asked for by name                     no
    3. another protocol than http/protobuf                                 why
    """
    exporters = environ.get("OTEL_TRACES_EXPORTER", "").replace(" ", "").split(",")
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":  # 1
        return False
    if exporters != [""] and "otlp" not in exporters:
        return False
    addresses = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if exporters == [""] and not any(environ.get(name) for name in addresses):  # 2
        return False
    protocols = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((value for name in protocols if (value := environ.get(name, "").strip())), "http/protobuf")
    if protocol != "http/protobuf":  # 3
        return f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol[:40]}: only http/protobuf is spoken"
    return True


def make(environ: Mapping[str, str]) -> Tracing | None:
    """What traces requests; None: nobody asked for it, or it cannot be had, which the log says. Requests are answered then, too."""
    found = wanted(environ)
    if found is True:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            found = f"{error}: install llmgw with its extra `tracing`"
        else:
            named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
            resource = Resource.create({} if named else {"service.name": SERVICE})
            provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            event(log, "tracing_on", service=str(resource.attributes.get("service.name", "")))
            return Tracing(provider)
    if found:
        event(log, "tracing_not_possible", level=logging.ERROR, reason=found)
    return None


class Tracing:
    """Begins the trace of each request."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._context: type[Context] = Context
        self.api = trace
        self.tracer = provider.get_tracer("llmgw")
        self.propagator = TraceContextTextMapPropagator()

    def begin(self, exchange: Exchange) -> Trace:
        carrier = {
            name.decode(): value.decode("latin-1") for name, value in exchange.scope["headers"] if name in _CARRIED
        }
        context = self._context()
        return Trace(self, exchange, self.propagator.extract(carrier, context) if carrier else context)

    async def stop(self) -> None:
        """Send what waits, for FLUSH seconds at most: a collector that hangs holds up nobody's end."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def close() -> None:
            self._provider.force_flush(int(FLUSH * 1000))
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits any more
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=close, name="tracing-close", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH):
                await done.wait()


class Trace:
    """The spans of one request: its own, and the step that it is in."""

    __slots__ = ("_context", "_root", "_step", "_tracing", "_upstream")

    def __init__(self, tracing: Tracing, exchange: Exchange, parent: Context) -> None:
        self._tracing = tracing
        method, endpoint = exchange.scope["method"], ENDPOINTS.get(exchange.endpoint)
        route = endpoint.path if endpoint is not None else exchange.endpoint
        attributes = {"http.request.method": method, "llmgw.request_id": exchange.request_id}
        if endpoint is not None:
            attributes |= {"http.route": route, "url.path": route}
        if exchange.hop:
            attributes["llmgw.hop"] = exchange.hop
        self._root = tracing.tracer.start_span(
            f"{method} {route}", parent, kind=tracing.api.SpanKind.SERVER, attributes=attributes
        )
        self._context = tracing.api.set_span_in_context(self._root, parent)
        self._step: Span = tracing.tracer.start_span("admission", self._context)
        self._upstream = False

    def scheduled(self) -> None:
        """It was let in; now its place is looked for."""
        self._step.end()
        self._step = self._tracing.tracer.start_span("schedule", self._context)

    def queued(self) -> None:
        """Its place has no room: it waits for its turn."""
        self._step.end()
        self._step = self._tracing.tracer.start_span("queue", self._context)

    def declined(self, code: str) -> None:
        """Nobody accepted it there; another model is asked."""
        self._failed(self._step, code)
        self._upstream = False
        self.scheduled()

    def sent(self, exchange: Exchange, *, provider: str) -> None:
        """It is about to be sent to this kind of engine, provider or node (a place tried before could not be reached). Whoever
        gets it learns of the trace by a header."""
        if self._upstream:
            self._failed(self._step, "not_reached")
        self._step.end()
        operation = _OPERATIONS.get(exchange.endpoint, exchange.endpoint)
        ask, tracing = exchange.ask, self._tracing
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": ask.model[:200] if ask is not None else "",
            "gen_ai.request.stream": ask is not None and ask.stream,
        }
        self._step, self._upstream = (
            tracing.tracer.start_span(
                f"{operation} {exchange.model}", self._context, kind=tracing.api.SpanKind.CLIENT, attributes=attributes
            ),
            True,
        )
        carrier: dict[str, str] = {}
        tracing.propagator.inject(carrier, tracing.api.set_span_in_context(self._step, self._context))
        kept = [item for item in exchange.scope["headers"] if item[0] not in _CARRIED]
        exchange.scope["headers"] = kept + [(name.encode(), value.encode("latin-1")) for name, value in carrier.items()]

    def end(self, exchange: Exchange, record: UsageRecord, *, key: str) -> None:
        """The request is over, as its record says. `key`: first characters of its key."""
        failed = record.outcome == Outcome.FAILED
        if self._upstream:
            self._step.set_attributes(_answered(record, exchange))
            if exchange.first_token_at is not None:
                after = exchange.first_token_at - exchange.began
                self._step.add_event("first_token", timestamp=int((exchange.started_at + after) * 1e9))
        if failed or (record.outcome == Outcome.REFUSED and not self._upstream):
            self._failed(self._step, record.code)
        self._step.end()
        told: dict[str, Any] = {
            "http.response.status_code": record.status,
            "error.type": record.code,
            "llmgw.key": key,
            "llmgw.project": record.project_id,
            "llmgw.outcome": str(record.outcome),
            "llmgw.alias": record.model_asked if record.alias_target else "",
            "llmgw.queue_s": record.queue_s,
            "llmgw.schedule_s": record.schedule_s,
            "llmgw.replica": record.replica_id,
            "llmgw.node": record.node_id,
        }
        self._root.set_attributes({name: value for name, value in told.items() if value not in (None, "")})
        if failed or record.status >= 500:
            self._failed(self._root, record.code)
        self._root.end()

    def _failed(self, span: Span, code: str) -> None:
        span.set_attribute("error.type", code or "error")
        span.set_status(self._tracing.api.StatusCode.ERROR)


def _answered(record: UsageRecord, exchange: Exchange) -> dict[str, Any]:
    """What the engine, provider or node did, as far as it is known."""
    first, sent = exchange.first_token_at, exchange.forwarded_at
    found = {
        "gen_ai.response.model": record.model_served,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": record.cached_tokens,
        "gen_ai.response.finish_reasons": [record.finish_reason] if record.finish_reason else None,
        "gen_ai.response.time_to_first_chunk": None if first is None or sent is None else round(first - sent, 6),
        "llmgw.replica": record.replica_id,
        "llmgw.node": record.node_id,
        "llmgw.tokens_estimated": record.estimated or None,
    }
    return {name: value for name, value in found.items() if value not in (None, "")}
