"""Sends spans and metrics to an OTLP collector, from a thread of its own that imports OpenTelemetry.

Used by switch. A run only puts ended spans into a queue: whatever the collector does, or does not, costs it nothing.
"""

import atexit
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from kitbag.telemetry.run_spans import SpanRecord
from kitbag.version import __version__

CLOSE_SECONDS: Final = 3.0
"""How long the end of the process waits for a collector that can be reached, unless OTEL_EXPORTER_OTLP_TIMEOUT says."""
_MAX_CLOSE_SECONDS: Final = 60.0
_EXPORT_TIMEOUT: Final = 5
_MAX_QUEUED: Final = 10_000
_TOKEN_BUCKETS: Final = tuple(4.0**power for power in range(14))
_SECOND_BUCKETS: Final = tuple(0.01 * 2**power for power in range(14))


class Telemetry:
    def __init__(self, endpoint: str, log: Callable[[str], None]) -> None:
        """`endpoint`: empty: that of the environment."""
        self._endpoint = endpoint
        self._log = log
        self._queue: queue.SimpleQueue[SpanRecord | None] = queue.SimpleQueue()
        self._has_reported = False
        self._is_failing = threading.Event()
        """Set while the collector can't be reached."""
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def send(self, span: SpanRecord) -> None:
        if self._queue.qsize() < _MAX_QUEUED:
            self._queue.put(span)

    def close(self) -> None:
        """Sends what is left, and gives up after a moment."""
        atexit.unregister(self.close)
        self._queue.put(None)
        deadline = time.monotonic() + _close_seconds()
        while self._thread.is_alive() and not self._is_failing.is_set() and time.monotonic() < deadline:
            self._thread.join(0.05)
        if self._thread.is_alive():
            self.report("the collector did not accept all data before Kitbag exited")

    def report(self, problem: str) -> None:
        """Once."""
        if not self._has_reported:
            self._has_reported = True
            self._log(f"{problem}; runs are not affected")

    def note_connection(self, url: str, error: str) -> None:
        """After each attempt to connect; `error`: empty if it succeeded."""
        if error:
            self._is_failing.set()
            self.report(f"can't reach {_without_password(url)} ({error})")
        else:
            self._is_failing.clear()

    def _run(self) -> None:
        try:
            pipeline = _Pipeline(self._endpoint, self)
        except Exception as error:  # noqa: BLE001 - a wrong value in the environment must not end a run
            self.report(f"can't start: {type(error).__name__}: {error}")
            return
        while (span := self._queue.get()) is not None:
            pipeline.add(span)
        pipeline.close()


class _Pipeline:
    """OpenTelemetry's own parts, configured by its environment variables."""

    def __init__(self, endpoint: str, telemetry: Telemetry) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import HOST_NAME, PROCESS_PID, SERVICE_NAME, SERVICE_VERSION, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # each failure would be a line; ours is one
        defaults: dict[str, str | int] = {SERVICE_VERSION: __version__, HOST_NAME: os.uname().nodename}
        defaults[PROCESS_PID] = os.getpid()
        if not os.environ.get("OTEL_SERVICE_NAME"):
            defaults[SERVICE_NAME] = "kitbag"
        resource = Resource.create(defaults)
        self._ids = _make_id_generator()
        self._traces = TracerProvider(
            resource=resource, sampler=_make_sampler(), id_generator=self._ids, shutdown_on_exit=False
        )
        readers: list[Any] = []
        if os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "none":
            self._traces.add_span_processor(BatchSpanProcessor(_make_span_exporter(endpoint, telemetry)))
        if os.environ.get("OTEL_METRICS_EXPORTER", "otlp") != "none":
            readers.append(PeriodicExportingMetricReader(_make_metric_exporter(endpoint, telemetry)))
        self._metrics = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
        self._tracer = self._traces.get_tracer("kitbag", __version__)
        meter = self._metrics.get_meter("kitbag", __version__)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens of model requests",
            explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
        )
        self._durations = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="Duration of model requests, tool calls and agents",
            explicit_bucket_boundaries_advisory=_SECOND_BUCKETS,
        )
        self._skills = meter.create_counter("kitbag.skill.loads", unit="{load}", description="Loaded skills")

    def add(self, record: SpanRecord) -> None:
        from opentelemetry.trace import (
            NonRecordingSpan,
            SpanContext,
            SpanKind,
            Status,
            StatusCode,
            TraceFlags,
            set_span_in_context,
        )

        self._ids.following = record.span
        parent = record.parent
        context = None
        if parent is not None:
            remote = SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=TraceFlags(1))
            context = set_span_in_context(NonRecordingSpan(remote))
        span = self._tracer.start_span(
            record.name,
            context,
            SpanKind.CLIENT if record.kind == "client" else SpanKind.INTERNAL,
            record.attributes,
            start_time=record.start,
        )
        for event in record.events:
            span.add_event(event.name, event.attributes, event.time)
        if record.error:
            span.set_status(Status(StatusCode.ERROR))
        span.end(record.end)
        self._measure(record)
        if record.name.startswith("invoke_agent"):
            self._traces.force_flush()

    def _measure(self, record: SpanRecord) -> None:
        names = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "error.type")
        common = {name: record.attributes[name] for name in names if name in record.attributes}
        if common:
            self._durations.record((record.end - record.start) / 1e9, common)
        if common.get("gen_ai.operation.name") == "chat":
            for kind in ("input", "output"):
                tokens = record.attributes.get(f"gen_ai.usage.{kind}_tokens")
                if isinstance(tokens, int):
                    self._tokens.record(tokens, {**common, "gen_ai.token.type": kind})
        for event in record.events:
            if event.name == "kitbag.skill.loaded":
                self._skills.add(1, {name: event.attributes[name] for name in ("kitbag.skill.name", "kitbag.skill.by")})

    def close(self) -> None:
        self._traces.shutdown()
        self._metrics.shutdown()


def _make_id_generator() -> Any:
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class PresetIds(IdGenerator):
        """The IDs that the record has: they were sent to other processes before the span ended."""

        following: Any = None

        def generate_span_id(self) -> int:
            return self.following.span_id

        def generate_trace_id(self) -> int:
            return self.following.trace_id

    return PresetIds()


def _make_sampler() -> Any:
    """By the trace's ID alone, so that all processes of a trace decide the same."""
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, TraceIdRatioBased

    name = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if name.endswith("always_off"):
        return ALWAYS_OFF
    if name.endswith("traceidratio"):
        return TraceIdRatioBased(float(os.environ.get("OTEL_TRACES_SAMPLER_ARG") or 1.0))
    return ALWAYS_ON


def _make_span_exporter(endpoint: str, telemetry: Telemetry) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    class Exporter(OTLPSpanExporter):
        def export(self, spans: Any) -> Any:
            result = super().export(spans)
            if result is not SpanExportResult.SUCCESS:
                telemetry.report(f"{_without_password(self._endpoint)} did not accept traces")
            return result

    return Exporter(endpoint=_join(endpoint, "traces"), timeout=_timeout("TRACES"), session=_make_session(telemetry))


def _make_metric_exporter(endpoint: str, telemetry: Telemetry) -> Any:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import MetricExportResult

    class Exporter(OTLPMetricExporter):
        def export(self, metrics_data: Any, *arguments: Any, **more: Any) -> Any:
            result: Any = super().export(metrics_data, *arguments, **more)  # pyright: ignore[reportUnknownMemberType]
            if result is not MetricExportResult.SUCCESS:
                telemetry.report(f"{_without_password(self._endpoint)} did not accept metrics")
            return result

    return Exporter(endpoint=_join(endpoint, "metrics"), timeout=_timeout("METRICS"), session=_make_session(telemetry))


def _make_session(telemetry: Telemetry) -> Any:
    """The exporters retry on their own; what the end of the process needs to know is whether the collector responds."""
    import requests

    class Session(requests.Session):
        def send(self, request: Any, **more: Any) -> Any:
            try:
                response = super().send(request, **more)
            except requests.RequestException as error:
                telemetry.note_connection(str(request.url), type(error).__name__)
                raise
            telemetry.note_connection(str(request.url), "")
            return response

    return Session()


def _join(endpoint: str, signal: str) -> str | None:
    """None: by the environment."""
    return f"{endpoint.rstrip('/')}/v1/{signal}" if endpoint else None


def _timeout(signal: str) -> int | None:
    names = ("OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{signal}_TIMEOUT")
    return None if any(os.environ.get(name) for name in names) else _EXPORT_TIMEOUT


def _close_seconds() -> float:
    """Python's exporters read the variable as seconds."""
    try:
        return min(float(os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT") or CLOSE_SECONDS), _MAX_CLOSE_SECONDS)
    except ValueError:
        return CLOSE_SECONDS


def _without_password(url: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
