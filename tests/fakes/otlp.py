"""An OTLP/HTTP receiver of traces: a real HTTP server that reads the protobuf of the protocol."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Heard:
    """One span as it came."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    error: bool
    attributes: dict[str, Any] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)


class Receiver(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Heard] = []
        self.services: set[str] = set()
        self.raw = b""
        self.headers: list[dict[str, str]] = []
        self.status = status

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def of(self, trace: str) -> list[Heard]:
        return sorted((span for span in self.spans if span.trace == trace), key=lambda span: span.start)


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
        self.server.headers.append(dict(self.headers))
        self.server.raw += body
        for batch in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {item.key: _value(item.value) for item in batch.resource.attributes}
            self.server.services.add(named.get("service.name", ""))
            for scope in batch.scope_spans:
                self.server.spans += [_heard(span) for span in scope.spans]
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(self.server.status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def _heard(span: Any) -> Heard:
    return Heard(
        name=span.name,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        error=span.status.code == 2,
        attributes={item.key: _value(item.value) for item in span.attributes},
        events=[item.name for item in span.events],
    )


@contextmanager
def receiver(*, status: int = 200) -> Iterator[Receiver]:
    server = Receiver(status=status)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
