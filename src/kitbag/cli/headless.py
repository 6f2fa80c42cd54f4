"""`kitbag -p`: one request from start to end, without a person at hand. What would be asked is refused.

Text, one JSON document, or one JSON line for each event goes to stdout; what a person should know goes to stderr.
Used by the root command, which names the options. Uses runtime.
"""

import asyncio
import json
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kitbag.agent.run import Run
from kitbag.cli import output
from kitbag.errors import KitbagError, UsageError
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
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
)
from kitbag.messages import message_to_json
from kitbag.runtime.agent import Agent, Options

MOST_INPUT: Final = 10 << 20
_FIRST_BYTE_SECONDS = 3.0
STATUS_CODES: Final = {
    "completed": 0,
    "failed": 7,
    "empty": 9,
    "max-turns": 11,
    "max-tokens": 12,
    "max-cost": 12,
    "cancelled": 130,
}


class Wanted(NamedTuple):
    prompt: str
    """`-`: what comes on standard input is the request."""
    options: Options
    output_format: str = "text"
    input_format: str = "text"


def run_headless(wanted: Wanted) -> int:
    """The exit code."""
    requests = _requests(wanted)
    return asyncio.run(_run_all(wanted, requests))


def _requests(wanted: Wanted) -> Iterator[str]:
    if wanted.input_format == "stream-json":
        return _lines()
    given = _standard_input(needed=wanted.prompt == "-")
    if wanted.prompt == "-":
        if not given.strip():
            raise UsageError("there is no request", "write it behind -p, or send it on standard input")
        return iter([given])
    if not wanted.prompt.strip():
        raise UsageError("the request is empty", "write it behind -p")
    return iter(
        [f"{wanted.prompt}\n\n<standard-input>\n{given}\n</standard-input>" if given.strip() else wanted.prompt]
    )


def _standard_input(needed: bool) -> str:
    """What is piped in. A pipe that nobody writes to is waited for only where it is the request."""
    stream = sys.stdin
    if stream is None or stream.closed or stream.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        return ""
    try:
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
        if not needed and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            ready, _, _ = select.select([descriptor], [], [], _FIRST_BYTE_SECONDS)
            if not ready:
                output.remark("nothing came on standard input; going on without it")
                return ""
        data = stream.buffer.read(MOST_INPUT + 1)
    except (OSError, ValueError):
        return ""
    if len(data) > MOST_INPUT:
        raise UsageError(f"more than {MOST_INPUT >> 20} MB on standard input", "put it in a file and name the file")
    return data.decode("utf-8", "replace")


def _lines() -> Iterator[str]:
    """`{"type": "user", "message": {"role": "user", "content": "..."}}`, one a line; blank lines are nothing."""
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        try:
            value: Any = json.loads(line)
            content = value["message"]["content"] if "message" in value else value["content"]
            if isinstance(content, list):
                content = "\n".join(block["text"] for block in content)  # pyright: ignore
            if not isinstance(content, str):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            fix = 'write {"type": "user", "message": {"role": "user", "content": "..."}} on one line'
            raise UsageError(f"line {number} of standard input is no request", fix) from error
        yield content


async def _run_all(wanted: Wanted, requests: Iterator[str]) -> int:
    reporter = {"text": _Text, "json": _Document, "stream-json": _Stream}[wanted.output_format]()
    code = 0
    stopped: list[int] = []
    async with Agent(options=wanted.options) as agent:
        while (request := await asyncio.to_thread(next, requests, None)) is not None:
            async with agent.run(request) as run:
                with _signals(run, stopped):
                    async for event in run:
                        reporter.event(event)
                code = _exit_code(run)
            if code:
                break
        reporter.end(agent)
    return 128 + stopped[0] if stopped else code


def _exit_code(run: Run) -> int:
    ended = run.ended
    if ended.status == "failed" and run.error is not None:
        return run.error.exit_code
    return STATUS_CODES[ended.status]


class _signals:  # noqa: N801 - reads as a word
    """While it lasts, a signal cancels the run instead of ending the process."""

    def __init__(self, run: Run, stopped: list[int]) -> None:
        self._run = run
        self._stopped = stopped

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)

    def _stop(self, number: int) -> None:
        self._stopped.append(number)
        self._run.cancel()

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


class _Text:
    """The answer, and on stderr what a person should know: warnings always, progress where it is a terminal."""

    def __init__(self) -> None:
        self._progress = sys.stderr.isatty()

    def event(self, event: Event) -> None:
        match event:
            case Notice(severity, text, fix):
                if severity != "info":
                    _remark(severity, text, fix)
            case RunStarted():
                self._dim(f"{event.model}, {event.mode}, session {event.session}")
            case ToolStarted():
                self._dim(f"  {event.title}")
            case ToolFinished(is_error=True):
                self._dim(f"    {event.summary}")
            case SkillLoaded(by="user"):
                self._dim(f"  skill {event.name}, {event.tokens} tokens")
            case Retrying():
                self._dim(f"  {event.reason}; again in {event.seconds:.0f} s")
            case Compacted():
                self._dim(f"  the conversation was compacted: {event.before:,} -> {event.after:,} tokens")
            case RunEnded():
                self._ended(event)
            case _:
                pass

    def _dim(self, text: str) -> None:
        if self._progress:
            output.remark(output.style(output.clean(text), "dim", sys.stderr))

    def _ended(self, ended: RunEnded) -> None:
        if ended.text:
            output.exact(ended.text.rstrip("\n"))
        if ended.status not in ("completed",):
            _remark("error", _in_words(ended), ended.fix)

    def end(self, agent: Agent) -> None:
        sys.stdout.flush()


def _in_words(ended: RunEnded) -> str:
    return {
        "empty": "the model's answer was empty",
        "max-turns": f"stopped after {ended.turns} turns, as --max-turns says; the work is not finished",
        "max-tokens": "stopped: the session's tokens are used up, as --max-tokens says; the work is not finished",
        "max-cost": "stopped: the session's budget is used up, as --max-cost says; the work is not finished",
        "cancelled": "cancelled",
    }.get(ended.status, ended.error or "failed")


def _remark(severity: str, text: str, fix: str) -> None:
    colour = "red" if severity == "error" else "yellow"
    output.remark(f"{output.style(severity, colour, sys.stderr)}: {output.clean(text)}")
    if fix:
        output.remark(f"  fix: {output.clean(fix)}")


class _Document:
    """One JSON object at the end."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._notices: list[dict[str, str]] = []
        self._refused: list[dict[str, str]] = []
        self._ended: RunEnded | None = None

    def event(self, event: Event) -> None:
        match event:
            case Notice():
                self._notices.append(event._asdict())
            case ToolFinished(is_error=True):
                self._refused.append({"tool": event.name, "problem": event.summary})
            case RunEnded():
                self._ended = event
            case _:
                pass

    def end(self, agent: Agent) -> None:
        ended = self._ended
        if ended is None:
            return
        output.as_json(
            {
                "type": "result",
                "status": ended.status,
                "result": ended.text,
                "session_id": agent.session.id,
                "model": agent.chosen.name,
                "turns": ended.turns,
                "usage": ended.usage._asdict(),
                "cost_usd": ended.cost,
                "seconds": round(time.monotonic() - self._begun, 3),
                "error": ended.error,
                "fix": ended.fix,
                "failed_calls": self._refused,
                "notices": self._notices,
            }
        )


_NAMES: Final = {
    "RunStarted": "start",
    "TextDelta": "text",
    "ThinkingDelta": "thinking",
    "MessageAdded": "message",
    "ToolStarted": "tool_start",
    "ToolFinished": "tool_end",
    "SkillLoaded": "skill_loaded",
    "SkillUnloaded": "skill_unloaded",
    "TurnEnded": "turn_end",
    "RunEnded": "result",
}


def event_json(event: Event) -> dict[str, Any]:
    """One line of `stream-json`; the keys are those of events.py."""
    name = type(event).__name__
    fields: dict[str, Any] = event._asdict()
    if isinstance(event, MessageAdded):
        fields = {"message": message_to_json(event.message)}
    if isinstance(event, TurnEnded | RunEnded):
        fields["usage"] = event.usage._asdict()
    if isinstance(event, RunEnded):
        fields["result"] = fields.pop("text")
    return {"type": _NAMES.get(name, name.lower()), **fields}


class _Stream:
    def event(self, event: Event) -> None:
        sys.stdout.write(json.dumps(event_json(event), ensure_ascii=True) + "\n")
        if not isinstance(event, TextDelta | Discarded):
            sys.stdout.flush()

    def end(self, agent: Agent) -> None:
        sys.stdout.flush()


def fail_as_json(error: KitbagError) -> None:
    """For an error before anything began."""
    output.as_json({"type": "result", "status": "failed", "result": "", "error": error.problem, "fix": error.fix})
