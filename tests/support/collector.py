"""An OTLP/HTTP collector on loopback: keeps the bytes that exporters send, and decodes their protobuf."""

from __future__ import annotations

import threading
from gzip import decompress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from typing import Self


class Collected:
    """A span as it arrived."""

    def __init__(self, span: Any, resource: dict[str, Any]) -> None:
        self.name: str = span.name
        self.kind: int = span.kind
        self.trace_id: str = span.trace_id.hex()
        self.span_id: str = span.span_id.hex()
        self.parent_id: str = span.parent_span_id.hex()
        self.start: int = span.start_time_unix_nano
        self.end: int = span.end_time_unix_nano
        self.is_error: bool = span.status.code == 2
        self.description: str = span.status.message
        self.attributes = _attributes(span.attributes)
        self.events = [(event.name, _attributes(event.attributes)) for event in span.events]
        self.resource = resource


class Collector:
    """Listens while its `with` block is open. It answers with `status`; with `is_stuck` it answers at the end only."""

    def __init__(self, *, status: int = 200, is_stuck: bool = False) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        self._news = threading.Condition()
        self._over = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                with collector._news:
                    collector.bodies.append((self.path, body))
                    collector._news.notify_all()
                if is_stuck:
                    collector._over.wait()
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def environ(self) -> dict[str, str]:
        """The variables that send everything here."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def spans(self) -> list[Collected]:
        """All spans, in the order of their start."""
        found: list[Collected] = []
        for path, body in self.bodies:
            if path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    about = _attributes(resource.resource.attributes)
                    found += [Collected(span, about) for scope in resource.scope_spans for span in scope.spans]
        return sorted(found, key=lambda span: span.start)

    @property
    def metrics(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """The points of each metric in the last export that has it: attributes, and value or (count, sum)."""
        found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        for path, body in self.bodies:
            if path == "/v1/metrics":
                for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for metric in (one for scope in resource.scope_metrics for one in scope.metrics):
                        found[metric.name] = _points(metric)
        return found


def _points(metric: Any) -> list[tuple[dict[str, Any], Any]]:
    kind = metric.WhichOneof("data")
    points = getattr(metric, kind).data_points
    if kind == "histogram":
        return [(_attributes(point.attributes), (point.count, point.sum)) for point in points]
    return [(_attributes(point.attributes), getattr(point, point.WhichOneof("value"))) for point in points]


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    held = getattr(value, kind)
    return [_value(one) for one in held.values] if kind == "array_value" else held
