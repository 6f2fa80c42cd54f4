"""A collector on loopback that takes OTLP over HTTP, and keeps what it got as plain values."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.metrics: dict[str, list[dict[str, Any]]] = {}
        self.services: set[str] = set()
        self.processes: set[tuple[str, int]] = set()
        self.headers: list[dict[str, str]] = []
        self.raw: list[bytes] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def named(self, name: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"] == name]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body, dict(self.headers))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def take(self, path: str, body: bytes, headers: dict[str, str]) -> None:
        self.raw.append(body)
        self.headers.append(headers)
        if path == "/v1/traces":
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = _attributes(group.resource.attributes)
                self.services.add(resource["service.name"])
                self.processes.add((resource["host.name"], resource["process.pid"]))
                self.spans += [_span(span) for scope in group.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in group.scope_metrics for metric in scope.metrics):
                    points = getattr(metric, metric.WhichOneof("data")).data_points
                    self.metrics[metric.name] = [
                        {**_attributes(point.attributes), "sum": getattr(point, "sum", None) or point_value(point)}
                        for point in points
                    ]


def point_value(point: Any) -> float:
    return point.as_int if hasattr(point, "as_int") else 0


def _span(span: Any) -> dict[str, Any]:
    return {
        "name": span.name,
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "kind": span.kind,
        "error": span.status.code == 2,
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "events": [(event.name, _attributes(event.attributes)) for event in span.events],
        **_attributes(span.attributes),
    }


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(stored: Any) -> Any:
    value = getattr(stored, stored.WhichOneof("value"))
    return [_value(one) for one in value.values] if stored.WhichOneof("value") == "array_value" else value
