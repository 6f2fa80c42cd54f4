"""Decides whether telemetry is on: by the user's settings and the standard environment variables.

Used by assembly/base_agent and delegation. Imports OpenTelemetry only if it is on; a project has no say.
"""

import logging
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kitbag.telemetry.export import Telemetry
    from kitbag.telemetry.trace_context import SpanReference

ENDPOINT_SETTING: Final = "telemetry.endpoint"
CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ENDPOINTS: Final = tuple(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "TRACES_", "METRICS_"))
_CONTENT_VALUES: Final = ("true", "span_only", "span_and_event")
_opened: "dict[tuple[int, str], Telemetry | None]" = {}
"""By process and endpoint: a fork has none of its parent's threads."""


def open_telemetry(endpoint: str) -> "Telemetry | None":
    """`endpoint`: of the user's settings; empty: that of the environment. None: telemetry is off."""
    has_variable = any(os.environ.get(name) for name in _ENDPOINTS)
    if not endpoint and not has_variable:
        return None
    key = (os.getpid(), endpoint)
    if key not in _opened:
        _opened[key] = _open(endpoint, has_variable)
    return _opened[key]


def _open(endpoint: str, has_variable: bool) -> "Telemetry | None":
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if not _has_packages():
        if endpoint:
            _log(f"{ENDPOINT_SETTING} is set, but OpenTelemetry is missing: run `pip install 'kitbag[telemetry]'`")
        return None
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip() or "http/protobuf"
    if protocol != "http/protobuf":
        _log(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol[:40]} is not supported; use http/protobuf. Nothing is sent")
        return None
    from kitbag.telemetry.export import Telemetry

    return Telemetry("" if has_variable else endpoint, _log)


def close_telemetry() -> None:
    """Sends what is left. Before the interpreter shuts down: after that, no thread can start and imports fail."""
    for (pid, _), telemetry in _opened.items():
        if telemetry is not None and pid == os.getpid():
            telemetry.close()


def begin_task_trace(endpoint: str) -> "SpanReference | None":
    """For a task that no run starts: a span that everything it does is below, in whichever process. None: telemetry is
    off."""
    telemetry = open_telemetry(endpoint)
    if telemetry is None:
        return None
    import time

    from kitbag.telemetry.run_spans import SpanRecord
    from kitbag.telemetry.trace_context import new_trace

    span, now = new_trace(), time.time_ns()
    telemetry.send(
        SpanRecord(name="create_task", kind="internal", span=span, parent=None, start=now, end=now, attributes={})
    )
    return span


def includes_content() -> bool:
    return os.environ.get(CONTENT_VARIABLE, "").strip().lower() in _CONTENT_VALUES


def header_secrets() -> list[str]:
    """Values of headers for the collector, which are usually keys."""
    names = [f"OTEL_EXPORTER_OTLP_{signal}HEADERS" for signal in ("", "TRACES_", "METRICS_")]
    pairs = ",".join(os.environ.get(name, "") for name in names).split(",")
    return [value for _, _, value in (pair.strip().partition("=") for pair in pairs) if value]


def _has_packages() -> bool:
    try:
        return all(find_spec(name) for name in ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"))
    except ModuleNotFoundError:
        return False


def _log(problem: str) -> None:
    logging.getLogger("kitbag.telemetry").warning("telemetry: %s", problem)
