"""How a run is told without a person at hand: the answer as text, one JSON document, or one JSON line an event.

Used by headless. Stdout holds the answer or JSON and nothing else; what a person should know goes to stderr. The
values of secret variables of the environment leave by neither.
"""

import json
import os
import sys
import time
from collections import Counter
from typing import Any, Final, cast

from kitbag.cli import output
from kitbag.errors import KitbagError
from kitbag.events import (
    Compacted,
    Discarded,
    Event,
    MessageAdded,
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
)
from kitbag.messages import message_to_json
from kitbag.store.redaction import Redactor
from kitbag.store.streaming_redaction import Held
from kitbag.text.hidden_characters import for_terminal
from kitbag.views.run_outcome import ended_in_words

_NAMES: Final = {
    "RunStarted": "start",
    "TextDelta": "text",
    "ThinkingDelta": "thinking",
    "MessageAdded": "message",
    "ToolStarted": "tool_start",
    "ToolProgress": "tool_progress",
    "ToolFinished": "tool_end",
    "SkillLoaded": "skill_loaded",
    "SkillUnloaded": "skill_unloaded",
    "Switched": "switched",
    "TurnEnded": "turn_end",
    "RunEnded": "result",
}

_TAIL: Final = 5
"""Lines of what a failed call printed that are shown."""
_TELLING: Final = frozenset(("Task", "Skill"))
_TO_ALLOW: Final = (
    "--permission-mode acceptEdits allows changes to files, rules in your settings or --allowed-tools the rest; "
    "`kitbag permissions test USE` explains a decision"
)


class Report:
    """What all have in common: nothing that is secret is shown."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self.redactor = Redactor(secrets)
        self.session = ""
        self.model = ""
        self._begun = time.monotonic()
        self._is_told = False
        """The end of the request that runs."""

    def event(self, event: Event) -> None:
        self._is_told = isinstance(event, RunEnded)
        if isinstance(event, RunStarted):
            self.session, self.model = event.session, event.model

    def fail(self, error: KitbagError) -> None:
        """For an error outside of a run."""

    def fault(self, problem: str, trace: str) -> None:
        """A mistake of ours: the place in the program goes to stderr, whatever the format."""
        for line in self.redactor.text(trace).rstrip().splitlines():
            output.remark(for_terminal(line))
        if not self._is_told:
            self.fail(KitbagError(f"a fault of Kitbag: {problem}", "tell the maintainers, with the lines above"))
        self.end()

    def end(self) -> None:
        """When all requests are done."""
        sys.stdout.flush()

    def result(self, ended: RunEnded) -> dict[str, Any]:
        return {
            "type": "result",
            "status": ended.status,
            "result": self.redactor.known(ended.text),
            "session_id": self.session,
            "model": self.model,
            "turns": ended.turns,
            "usage": ended.usage._asdict(),
            "cost_usd": ended.cost,
            "seconds": round(time.monotonic() - self._begun, 3),
            "error": self.redactor.text(ended.error),
            "fix": self.redactor.text(ended.fix),
        }

    def failure(self, error: KitbagError) -> dict[str, Any]:
        found = {"error": self.redactor.text(error.problem), "fix": self.redactor.text(error.fix)}
        return {"type": "result", "status": "failed", "result": "", "session_id": self.session, **found}


class TextReport(Report):
    """The answer; on stderr warnings always, progress where it is a terminal, else at the end what was refused."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        super().__init__(secrets)
        self._telling: set[str] = set()
        """Calls whose progress is shown: what other agents do."""
        self._titles: dict[str, str] = {}
        """Of the calls that run."""
        self._last = ""
        """The call that the last line was about."""
        self._said = ""
        """By the model, beside its calls."""
        self._refused: list[str] = []

    def event(self, event: Event) -> None:
        super().event(event)
        match event:
            case Notice(severity, text, fix):
                if severity != "info":
                    self._remark(severity, text, fix)
            case RunStarted():
                self._dim(f"{event.model}, {event.mode}, session {event.session}")
            case MessageAdded(message):
                self._said = message.text if message.role == "assistant" and message.calls else ""
                for line in self._said.strip().splitlines():
                    self._dim(line)
            case ToolStarted():
                self._dim(f"  {event.title}")
                self._titles[event.call_id], self._last = event.title, event.call_id
                if event.name in _TELLING:
                    self._telling.add(event.call_id)
            case ToolProgress():
                if event.call_id in self._telling:
                    self._dim(f"    {event.text}")
                    self._last = event.call_id
            case ToolFinished():
                self._finished(event)
            case SkillLoaded():
                if event.by == "user" or event.rights:
                    rights = f"; {event.rights}" if event.rights else ""
                    self._dim(f"  skill {event.name}, {event.tokens} tokens{rights}")
            case Retrying():
                self._dim(f"  {event.reason}; again in {event.seconds:.0f} s")
            case Switched():
                if event.what != "skills":
                    self._dim(f"  {event.what}: {event.before or 'none'} -> {event.after or 'none'}")
            case Compacted():
                self._dim(f"  the conversation was compacted: {event.before:,} -> {event.after:,} tokens")
            case RunEnded():
                self._ended(event)
            case _:
                pass

    def fail(self, error: KitbagError) -> None:
        output.fail(KitbagError(self.redactor.text(error.problem), self.redactor.text(error.fix)))

    def _dim(self, text: str) -> None:
        if sys.stderr.isatty():
            indent = text[: len(text) - len(text.lstrip())]
            output.remark(output.style(indent + output.clean(self.redactor.text(text)), "dim", sys.stderr))

    def _finished(self, event: ToolFinished) -> None:
        """Of calls that run side by side, each result has the name of its call, unless it stands right below it."""
        title = self._titles.pop(event.call_id, event.name)
        self._dim(f"    {event.summary}" if event.call_id == self._last else f"    {title}: {event.summary}")
        self._last = ""
        if event.is_error and event.details:
            for line in event.details.rstrip().splitlines()[-_TAIL:]:
                self._dim(f"      {line[:500]}")
        if event.is_error and event.summary.startswith(f"{event.name} is not allowed: "):
            self._refused.append(event.name)

    def _ended(self, ended: RunEnded) -> None:
        was_shown = ended.text == self._said and sys.stdout.isatty() and sys.stderr.isatty()
        if ended.text and not was_shown:
            output.exact(self.redactor.known(ended.text).rstrip("\n"))
            sys.stdout.flush()
        if self._refused and not sys.stderr.isatty():  # where each was told when it happened
            self._remark("warning", f"refused, and so not done: {_counted(self._refused)}", _TO_ALLOW)
        self._refused = []
        if ended.status != "completed":
            self._remark("error", ended_in_words(ended), ended.fix)

    def _remark(self, severity: str, text: str, fix: str) -> None:
        colour = "red" if severity == "error" else "yellow"
        output.remark(f"{output.style(severity, colour, sys.stderr)}: {output.clean(self.redactor.text(text))}")
        if fix:
            output.remark(f"  fix: {output.clean(self.redactor.text(fix))}")


def _counted(names: list[str]) -> str:
    return ", ".join(f"{name} ({count} times)" if count > 1 else name for name, count in Counter(names).items())


class Document(Report):
    """One JSON object at the end. Of several requests the last; the others are in `earlier`."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        super().__init__(secrets)
        self._notices: list[dict[str, str]] = []
        self._failed_calls: list[dict[str, str]] = []
        self._results: list[dict[str, Any]] = []

    def event(self, event: Event) -> None:
        super().event(event)
        match event:
            case Notice():
                self._notices.append({key: self.redactor.text(value) for key, value in event._asdict().items()})
            case ToolFinished(is_error=True):
                self._failed_calls.append({"tool": event.name, "problem": self.redactor.text(event.summary)})
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


class Stream(Report):
    """One line for each event; the keys are those of events.py."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        super().__init__(secrets)
        self._held: dict[type[TextDelta | ThinkingDelta], Held] = {
            TextDelta: Held(self._known, secrets),
            ThinkingDelta: Held(self._known, secrets),
        }

    def event(self, event: Event) -> None:
        super().event(event)
        if isinstance(event, TextDelta | ThinkingDelta):
            text = self._held[type(event)].add(event.text)
            if text:
                self._line(event_json(type(event)(text)))
            return
        for kind, held in self._held.items():
            rest = held.rest()
            if rest and not isinstance(event, Discarded):
                self._line(event_json(kind(rest)))
        self._line(self.result(event) if isinstance(event, RunEnded) else self._hidden(event_json(event)))

    def fail(self, error: KitbagError) -> None:
        self._line(self.failure(error))

    def _line(self, value: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()

    def _known(self, text: str) -> str:
        return self.redactor.known(text)  # which is another one once the settings are read

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redactor.known(value)
        if isinstance(value, dict):
            return {key: self._hidden(item) for key, item in cast("dict[str, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self._hidden(item) for item in cast("list[Any]", value)]
        return value


def event_json(event: Event) -> dict[str, Any]:
    name = type(event).__name__
    fields: dict[str, Any] = event._asdict()
    if isinstance(event, MessageAdded):
        fields = {"message": message_to_json(event.message)}
    if isinstance(event, TurnEnded):
        fields = {"turn": event.turn, "usage": event.usage._asdict(), "cost_usd": event.cost}
    return {"type": _NAMES.get(name, name.lower()), **fields}


def report_for(output_format: str) -> Report:
    from kitbag.store.secret_names import holds_secret

    secrets = tuple(value for name, value in os.environ.items() if holds_secret(name) and len(value) > 5)
    return {"text": TextReport, "json": Document, "stream-json": Stream}[output_format](secrets)
