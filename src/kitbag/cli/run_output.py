"""Prints a non-interactive run: the answer as text, one JSON document, or one JSON line per event.

Used by headless. Stdout gets only the answer or JSON; notices go to stderr. Values of secret environment variables
reach neither.
"""

import json
import os
import sys
import time
from collections import Counter
from typing import Any, Final, cast

import msgspec

from kitbag.cli import output
from kitbag.errors import KitbagError
from kitbag.events import (
    Compacted,
    Discarded,
    Event,
    MessageAdded,
    MessageDelivered,
    Notice,
    Retrying,
    RunEnded,
    RunStarted,
    SkillLoaded,
    Switched,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    Waiting,
)
from kitbag.messages import message_to_json, usage_to_json
from kitbag.store.known_values import KnownValues
from kitbag.store.redaction import Redactor
from kitbag.store.streaming_redaction import StreamingRedactor
from kitbag.text.hidden_characters import escape_for_terminal
from kitbag.views.run_outcome import describe_outcome

_EVENT_TYPES: Final = {
    "RunStarted": "start",
    "TextDelta": "text",
    "ThinkingDelta": "thinking",
    "MessageAdded": "message",
    "MessageDelivered": "delivered",
    "ToolStarted": "tool_start",
    "ToolProgress": "tool_progress",
    "ToolFinished": "tool_end",
    "SkillLoaded": "skill_loaded",
    "SkillUnloaded": "skill_unloaded",
    "Switched": "switched",
    "TurnEnded": "turn_end",
    "RunEnded": "result",
}

_ERROR_TAIL_LINES: Final = 5
"""Output lines of a failed call that are shown."""
_TOOLS_WITH_PROGRESS: Final = frozenset(("Task", "Skill"))
_DENIED_FIX: Final = (
    "--permission-mode acceptEdits allows file changes; allow other tools with rules in your settings or"
    " --allowed-tools; `kitbag permissions test USE` explains a decision"
)


class RunOutput:
    """The base of all formats: redacts secrets."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self.redactor = Redactor(secrets)
        self.session = ""
        self.model = ""
        self._started_at = time.monotonic()
        self._end_reported = False
        """The end of the current run has been printed."""

    def event(self, event: Event) -> None:
        self._end_reported = isinstance(event, RunEnded)
        if isinstance(event, RunStarted):
            self.session, self.model = event.session, event.model

    def fail(self, error: KitbagError) -> None:
        """Prints an error outside of a run."""

    def internal_error(self, problem: str, trace: str) -> None:
        """Prints a bug in Kitbag, with its traceback on stderr in every format."""
        for line in self.redactor.redact_text(trace).rstrip().splitlines():
            output.remark(escape_for_terminal(line))
        if not self._end_reported:
            self.fail(KitbagError(f"internal error: {problem}", "report it to the maintainers with the lines above"))
        self.end()

    def end(self) -> None:
        """Called after the last prompt."""
        sys.stdout.flush()

    def result(self, ended: RunEnded) -> dict[str, Any]:
        return {
            "type": "result",
            "status": ended.status,
            "result": self.redactor.redact_known(ended.text),
            "session_id": self.session,
            "model": self.model,
            "turns": ended.turns,
            "usage": usage_to_json(ended.usage),
            "cost_usd": ended.cost,
            "seconds": round(time.monotonic() - self._started_at, 3),
            "error": self.redactor.redact_text(ended.error),
            "fix": self.redactor.redact_text(ended.fix),
        }

    def failure(self, error: KitbagError) -> dict[str, Any]:
        found = {"error": self.redactor.redact_text(error.problem), "fix": self.redactor.redact_text(error.fix)}
        return {"type": "result", "status": "failed", "result": "", "session_id": self.session, **found}


class TextOutput(RunOutput):
    """The answer on stdout; on stderr warnings, and progress on a terminal, else a summary of what was denied."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        super().__init__(secrets)
        self._calls_with_progress: set[str] = set()
        """Calls whose progress is shown: those of other agents."""
        self._titles: dict[str, str] = {}
        """Of running calls."""
        self._last_call_id = ""
        """The call of the last printed line."""
        self._last_text = ""
        """The model's text next to its calls."""
        self._denied: list[str] = []

    def event(self, event: Event) -> None:
        super().event(event)
        match event:
            case Notice(severity=severity, text=text, fix=fix):
                if severity != "info":
                    self._print_notice(severity, text, fix)
            case RunStarted():
                self._print_dim(f"{event.model}, {event.mode}, session {event.session}")
            case MessageAdded(message):
                self._last_text = message.text if message.role == "assistant" and message.calls else ""
                for line in self._last_text.strip().splitlines():
                    self._print_dim(line)
            case MessageDelivered():
                self._print_dim(f"> {event.text}")
            case ToolStarted():
                self._print_dim(f"  {event.title}")
                self._titles[event.call_id], self._last_call_id = event.title, event.call_id
                if event.name in _TOOLS_WITH_PROGRESS:
                    self._calls_with_progress.add(event.call_id)
            case ToolProgress():
                if event.call_id in self._calls_with_progress:
                    self._print_dim(f"    {event.text}")
                    self._last_call_id = event.call_id
            case ToolFinished():
                self._on_tool_finished(event)
            case SkillLoaded():
                if event.by == "user" or event.rights:
                    rights = f"; {event.rights}" if event.rights else ""
                    self._print_dim(f"  skill {event.name}, {event.tokens:,} tokens{rights}")
            case Retrying():
                self._print_status(f"{event.reason}; retrying in {event.seconds:.0f} s")
            case Waiting():
                self._print_status(event.line())
            case Switched():
                if event.what != "skills":
                    changed = f"{event.what}: {event.before or 'none'} -> {event.after or 'none'}"
                    output.remark(output.clean(self.redactor.redact_text(f"note: {changed}")))
            case Compacted():
                self._print_dim(f"  session compacted: {event.before:,} -> {event.after:,} tokens")
            case RunEnded():
                self._on_run_ended(event)
            case _:
                pass

    def fail(self, error: KitbagError) -> None:
        output.fail(KitbagError(self.redactor.redact_text(error.problem), self.redactor.redact_text(error.fix)))

    def _print_dim(self, text: str) -> None:
        if sys.stderr.isatty():
            indent = text[: len(text) - len(text.lstrip())]
            output.remark(output.style(indent + output.clean(self.redactor.redact_text(text)), "dim", sys.stderr))

    def _print_status(self, text: str) -> None:
        """Why nothing else is printed; also where stderr is no terminal."""
        output.remark(output.style(f"  {output.clean(self.redactor.redact_text(text))}", "dim", sys.stderr))

    def _on_tool_finished(self, event: ToolFinished) -> None:
        """With concurrent calls, a result carries the title of its call unless it directly follows it."""
        title = self._titles.pop(event.call_id, event.name)
        self._print_dim(
            f"    {event.summary}" if event.call_id == self._last_call_id else f"    {title}: {event.summary}"
        )
        self._last_call_id = ""
        if event.is_error and event.details:
            for line in event.details.rstrip().splitlines()[-_ERROR_TAIL_LINES:]:
                self._print_dim(f"      {line[:500]}")
        if is_denied(event):
            self._denied.append(title if event.name == "Task" else event.name)

    def _on_run_ended(self, ended: RunEnded) -> None:
        was_shown = ended.text == self._last_text and sys.stdout.isatty() and sys.stderr.isatty()
        if ended.text and not was_shown:
            output.exact(self.redactor.redact_known(ended.text).rstrip("\n"))
            sys.stdout.flush()
        if self._denied and not sys.stderr.isatty():  # on a terminal each was shown when it happened
            self._print_notice("warning", f"denied: {_format_counts(self._denied)}", _denied_fix(self._denied))
        self._denied = []
        if ended.status != "completed":
            self._print_notice("error", describe_outcome(ended), ended.fix)

    def _print_notice(self, severity: str, text: str, fix: str) -> None:
        color = "red" if severity == "error" else "yellow"
        output.remark(f"{output.style(severity, color, sys.stderr)}: {output.clean(self.redactor.redact_text(text))}")
        if fix:
            output.remark(f"  fix: {output.clean(self.redactor.redact_text(fix))}")


def is_denied(event: ToolFinished) -> bool:
    """By a rule, the mode or the user, in contrast to a call that failed."""
    return event.is_error and event.summary.startswith(f"{event.name} is not allowed: ")


def _denied_fix(denied: list[str]) -> str:
    agents = [use for use in dict.fromkeys(denied) if use.startswith("Task(")]
    if not agents:
        return _DENIED_FIX
    rules = ", ".join(f'"{use}"' for use in agents)
    fix = f"to start agents, add {rules} to permissions.allow in your settings"
    fix += f', or run with --allowed-tools "{",".join((*agents, "Read", "Glob", "Grep"))}", naming the tools they need'
    return f"{fix}; {_DENIED_FIX}" if len(agents) < len(set(denied)) else fix


def _format_counts(names: list[str]) -> str:
    return ", ".join(f"{name} ({count} times)" if count > 1 else name for name, count in Counter(names).items())


class JsonOutput(RunOutput):
    """One JSON object at the end: the last result, with earlier ones in `earlier`."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        super().__init__(secrets)
        self._notices: list[dict[str, str]] = []
        self._failed_calls: list[dict[str, str]] = []
        self._results: list[dict[str, Any]] = []

    def event(self, event: Event) -> None:
        super().event(event)
        match event:
            case Notice():
                fields = {"severity": event.severity, "text": event.text, "fix": event.fix}
                self._notices.append({name: self.redactor.redact_text(value) for name, value in fields.items()})
            case Retrying():
                text = f"{event.reason}; retried after {event.seconds:.0f} s"
                self._notices.append({"severity": "info", "text": self.redactor.redact_text(text), "fix": ""})
            case ToolFinished(is_error=True):
                self._failed_calls.append({"tool": event.name, "problem": self.redactor.redact_text(event.summary)})
            case RunEnded():
                self._results.append(self.result(event))
            case _:
                pass

    def fail(self, error: KitbagError) -> None:
        self._results.append(self.failure(error))
        self.end()

    def end(self) -> None:
        if not self._results:
            return
        *earlier, last = self._results
        also = {"earlier": earlier} if earlier else {}
        output.as_json({**last, "failed_calls": self._failed_calls, "notices": self._notices, **also})
        self._results = []
        super().end()


class StreamJsonOutput(RunOutput):
    """One line per event; the keys are those of events.py."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        super().__init__(secrets)
        self._buffers: dict[type[TextDelta | ThinkingDelta], StreamingRedactor] = {
            TextDelta: StreamingRedactor(self._redact_text, KnownValues(secrets)),
            ThinkingDelta: StreamingRedactor(self._redact_text, KnownValues(secrets)),
        }

    def event(self, event: Event) -> None:
        super().event(event)
        if isinstance(event, TextDelta | ThinkingDelta):
            text = self._buffers[type(event)].feed(event.text)
            if text:
                self._write_line(event_json(type(event)(text)))
            return
        for kind, held in self._buffers.items():
            rest = held.flush()
            if rest and not isinstance(event, Discarded):
                self._write_line(event_json(kind(rest)))
        self._write_line(self.result(event) if isinstance(event, RunEnded) else self._redact_value(event_json(event)))

    def fail(self, error: KitbagError) -> None:
        self._write_line(self.failure(error))

    def _write_line(self, value: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()

    def _redact_text(self, text: str) -> str:
        return self.redactor.redact_known(text)  # looked up each time: it is replaced once the settings are loaded

    def _redact_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redactor.redact_known(value)
        if isinstance(value, dict):
            return {key: self._redact_value(item) for key, item in cast("dict[str, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self._redact_value(item) for item in cast("list[Any]", value)]
        return value


def event_json(event: Event) -> dict[str, Any]:
    name = type(event).__name__
    fields: dict[str, Any] = msgspec.structs.asdict(event)
    if isinstance(event, MessageAdded):
        fields = {"message": message_to_json(event.message)}
    if isinstance(event, TurnEnded):
        fields = {"turn": event.turn, "usage": usage_to_json(event.usage), "cost_usd": event.cost}
    return {"type": _EVENT_TYPES.get(name, name.lower()), **fields}


def create_run_output(output_format: str) -> RunOutput:
    from kitbag.store.secret_names import has_secret_value

    secrets = tuple(value for name, value in os.environ.items() if has_secret_value(name) and len(value) > 5)
    return {"text": TextOutput, "json": JsonOutput, "stream-json": StreamJsonOutput}[output_format](secrets)
