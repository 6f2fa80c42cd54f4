"""Which span the current work belongs to, in the W3C format `traceparent`, so that it can travel with a task's record.

Used by run_spans, and by delegation to write it and subagents to read it. Imports nothing heavy: every run does.
"""

import os
import re
from contextvars import ContextVar
from typing import Final, NamedTuple

ENVIRONMENT_VARIABLE: Final = "TRACEPARENT"
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_current: ContextVar["SpanReference | None"] = ContextVar("span", default=None)


class SpanReference(NamedTuple):
    trace_id: int
    span_id: int

    def child(self) -> "SpanReference":
        return SpanReference(self.trace_id, _random(8))

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"


def new_trace() -> SpanReference:
    return SpanReference(_random(16), _random(8))


def parse_traceparent(text: object) -> SpanReference | None:
    """None if it is not valid."""
    match = _TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
    if match is None or not int(match[1], 16) or not int(match[2], 16):
        return None
    return SpanReference(int(match[1], 16), int(match[2], 16))


def current_span() -> SpanReference | None:
    """Of this asyncio task, else of the process that started Kitbag."""
    return _current.get() or parse_traceparent(os.environ.get(ENVIRONMENT_VARIABLE))


def set_current_span(span: SpanReference | None) -> None:
    """For this asyncio task and those that it starts."""
    _current.set(span)


def _random(size: int) -> int:
    return int.from_bytes(os.urandom(size), "big") or 1
