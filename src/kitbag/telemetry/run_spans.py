"""Turns the events of a run into spans: one for the agent, one for each model request, one for each tool call.

Used by assembly/base_agent if telemetry is on. Knows the names of the conventions and nothing of OpenTelemetry's
packages: `export` sends what it makes. Content of messages is included only if the user wants it, redacted.
"""

import json
import time
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from kitbag.events import (
    Compacted,
    Event,
    MessageAdded,
    Retrying,
    RunEnded,
    RunStarted,
    SkillLoaded,
    ToolFinished,
    ToolStarted,
    TurnEnded,
)
from kitbag.messages import Message, Text, ToolCall, Usage
from kitbag.telemetry.trace_context import SpanReference, new_trace, set_current_span

MAX_CONTENT_CHARACTERS: Final = 20_000
Attributes = dict[str, str | int | float | list[str]]
_FINISH_REASONS: Final = {"end": "stop", "tools": "tool_call", "refusal": "content_filter"}
"""Kitbag's stop reasons as the conventions call them; others have the same name."""
_COMPLETED: Final = ("completed", "empty")


class SpanEvent(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    time: int
    attributes: Attributes


class SpanRecord(msgspec.Struct, kw_only=True):
    """A span that is open or has ended; times in nanoseconds since 1970."""

    name: str
    kind: Literal["internal", "client"]
    span: SpanReference
    parent: SpanReference | None
    start: int
    attributes: Attributes
    end: int = 0
    events: list[SpanEvent] = []
    error: str = ""
    """Its type; empty: none."""


class RunSpans:
    """For one run. `observe` gets its events in order; `send` gets each span when it has ended."""

    def __init__(
        self,
        send: Callable[[SpanRecord], None],
        *,
        agent: str,
        task_id: str,
        provider: str,
        parent: SpanReference | None,
        redact: Callable[[str], str] | None,
        message: str = "",
    ) -> None:
        """`redact`: for content; None: content is not sent. `message`: the user's."""
        self._send = send
        self._provider = provider
        self._redact = redact
        self._span = parent.child() if parent is not None else new_trace()
        self._agent = SpanRecord(
            name=f"invoke_agent {agent}".strip(),
            kind="internal",
            span=self._span,
            parent=parent,
            start=time.time_ns(),
            attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": provider},
        )
        named = {"gen_ai.agent.name": agent, "gen_ai.agent.id": task_id, "kitbag.task.id": task_id}
        self._agent.attributes |= {name: value for name, value in named.items() if value}
        self._add_content(self._agent, "gen_ai.input.messages", [_text_message("user", message)] if message else [])
        self._chat: SpanRecord | None = None
        self._reply: Message | None = None
        """To the last request."""
        self._tools: dict[str, SpanRecord] = {}
        self._usage, self._cost = Usage(), 0.0

    def request_model(self, model: str) -> None:
        """A request is about to be sent."""
        self._end_chat("interrupted")
        self._chat = SpanRecord(
            name=f"chat {model}",
            kind="client",
            span=self._span.child(),
            parent=self._span,
            start=time.time_ns(),
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": self._provider,
                "gen_ai.request.model": model,
            },
        )

    def observe(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._agent.attributes |= {"gen_ai.conversation.id": event.session, "gen_ai.request.model": event.model}
            case MessageAdded(message):
                self._reply = message
            case TurnEnded():
                self._end_turn(event)
            case ToolStarted():
                self._start_tool(event)
            case ToolFinished():
                self._end_tool(event)
            case SkillLoaded():
                self._note(
                    self._agent,
                    "kitbag.skill.loaded",
                    {"kitbag.skill.name": event.name, "kitbag.skill.tokens": event.tokens, "kitbag.skill.by": event.by},
                )
            case Compacted():
                self._end_chat("")
                self._note(self._agent, "kitbag.compacted", {"before": event.before, "after": event.after})
            case Retrying():
                if self._chat is not None:
                    self._note(self._chat, "kitbag.retry", {"attempt": event.attempt, "seconds": event.seconds})
            case RunEnded():
                self._end_run(event)
            case _:
                pass

    def make_current(self) -> None:
        """What the run starts from now on is below its span."""
        set_current_span(self._span)

    def _end_turn(self, event: TurnEnded) -> None:
        self._usage += event.usage
        self._cost += event.cost or 0.0
        if self._chat is not None:
            self._chat.attributes |= _usage_attributes(event.usage)
            reason = _FINISH_REASONS.get(event.stop, event.stop)
            self._chat.attributes["gen_ai.response.finish_reasons"] = [reason]
            if event.model:
                self._chat.attributes["gen_ai.response.model"] = event.model
            if self._reply is not None:
                content = {**_message_content(self._reply), "finish_reason": reason}
                self._add_content(self._chat, "gen_ai.output.messages", [content])
            self._end_chat("")

    def _end_chat(self, error: str) -> None:
        chat, self._chat = self._chat, None
        if chat is not None:
            self._end(chat, error)

    def _start_tool(self, event: ToolStarted) -> None:
        span = SpanRecord(
            name=f"execute_tool {event.name}",
            kind="internal",
            span=self._span.child(),
            parent=self._span,
            start=time.time_ns(),
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": event.name,
                "gen_ai.tool.call.id": event.call_id,
                "gen_ai.tool.type": "function",
            },
        )
        self._add_content(span, "gen_ai.tool.call.arguments", event.arguments)
        self._tools[event.call_id] = span
        set_current_span(span.span)

    def _end_tool(self, event: ToolFinished) -> None:
        span = self._tools.pop(event.call_id, None)
        if span is None:  # it was denied before it started
            return
        self._add_content(span, "gen_ai.tool.call.result", event.result)
        self._end(span, "tool_error" if event.is_error else "")
        set_current_span(self._span)

    def _end_run(self, event: RunEnded) -> None:
        error = "" if event.status in _COMPLETED else event.status
        for span in self._tools.values():
            self._end(span, error or "interrupted")
        self._end_chat(error or "interrupted")
        self._agent.attributes |= {"kitbag.status": event.status, "kitbag.turns": event.turns}
        self._agent.attributes |= _usage_attributes(self._usage)
        if self._cost:
            self._agent.attributes["kitbag.cost_usd"] = self._cost
        if event.text:
            said = {**_text_message("assistant", event.text), "finish_reason": "stop"}
            self._add_content(self._agent, "gen_ai.output.messages", [said])
        if event.error and self._redact is not None:
            self._agent.attributes["error.message"] = self._redact(event.error)
        self._end(self._agent, error)

    def _end(self, span: SpanRecord, error: str) -> None:
        span.end, span.error = time.time_ns(), error
        if error:
            span.attributes["error.type"] = error
        self._send(span)

    def _note(self, span: SpanRecord, name: str, attributes: Attributes) -> None:
        span.events.append(SpanEvent(name=name, time=time.time_ns(), attributes=attributes))

    def _add_content(self, span: SpanRecord, name: str, value: object) -> None:
        if self._redact is not None and value:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            # Redacted whole: a secret at the end would otherwise be cut, and not be recognized.
            span.attributes[name] = self._redact(text)[:MAX_CONTENT_CHARACTERS]


def _usage_attributes(usage: Usage) -> Attributes:
    """Input includes what came from the cache, as the conventions say."""
    found: Attributes = {
        "gen_ai.usage.input_tokens": usage.total_input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
    }
    return {name: value for name, value in found.items() if value or "cache" not in name}


def _text_message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _message_content(message: Message) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text):
            parts.append({"type": "text", "content": part.text})
        elif isinstance(part, ToolCall):
            parts.append({"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments})
    return {"role": message.role, "parts": parts}
