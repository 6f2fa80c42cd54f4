"""Runs one shell command with a timeout and an output limit, and leaves no process behind.

Own session, no standard input, stdout and stderr merged. It ends with the shell's exit, not with the end of output, so
a background child can't block us: `supervisor` ends whatever is left. Without a supervisor, `descendants` finds those
processes. Used by Bash and by references; a sandbox adds a `CommandStart`.
"""

import codecs
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec

from kitbag.processes.descendants import MARKER_VARIABLE, SESSION_VARIABLE, DescendantTracker
from kitbag.processes.limits import CommandLimits
from kitbag.processes.run_process import PopenChild, ProcessStopReason, readable, supervise
from kitbag.processes.supervised import GuardSpec, start_supervised

if TYPE_CHECKING:
    from concurrent.futures import Future

MAX_OUTPUT_BYTES: Final = 256 * 1024 * 1024
"""Output that is discarded before a command that never stops printing is stopped."""
GRACE_SECONDS: Final = 0.5
"""Between SIGTERM and SIGKILL."""
_END_SECONDS = 20.0
"""To end all its processes; a busy machine may need seconds."""
_CHUNK = 1 << 18
TERMINAL_SEQUENCE: Final = re.compile(
    "\x1b(?:\\[[0-?]*[ -/]*[@-~]|[\\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\\\)|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
_OVERSTRUCK = re.compile("[^\n]\x08")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")

ProgressCallback = Callable[[float], None]
"""Called every second with the seconds since the start."""
StopReason = Literal["", "time", "output", "asked"]
"""Why we ended it: timeout, too much output, or `stop` was set."""
_STOP_REASONS: Final[Mapping[ProcessStopReason, StopReason]] = {
    "": "",
    "time": "time",
    "enough": "output",
    "cancelled": "asked",
}


class ShellCommand(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    directory: str
    environment: Mapping[str, str]
    timeout: float
    max_characters: int
    """How much output to keep."""
    stop: threading.Event | None = None
    """Set it to end the command; no process is left within about a second."""
    on_output: Callable[[bytes], None] | None = None
    """Called with all output as it arrives, whatever is kept."""
    descriptors: tuple[int, ...] = ()
    """Open files to pass to it."""
    max_output_bytes: int = MAX_OUTPUT_BYTES
    """Stop it after so many bytes of output; 0: no limit."""
    lift_timeout: threading.Event | None = None
    """Set it to let the command run without a timeout."""


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    """Its output without terminal sequences and control characters, truncated to the limit."""
    status: int
    """As in the shell; negative for a signal."""
    stop_reason: StopReason
    truncated_bytes: int
    """Bytes of output that are not in `text`."""
    notes: tuple[str, ...] = ()
    """What the sandbox undid, as sentences."""


class CommandRunner(Protocol):
    def __call__(self, command: ShellCommand, tick: ProgressCallback | None, /) -> CommandResult: ...


class CommandStart(msgspec.Struct, frozen=True, kw_only=True):
    """How a sandbox starts a command."""

    prefix: tuple[str, ...] = ()
    """Goes before the shell: `("bwrap", ...)`."""
    descriptors: tuple[int, ...] = ()
    """Open files to pass to it, by their numbers."""
    limits: CommandLimits = CommandLimits()
    guard: GuardSpec | None = None
    on_question: "Callable[[str], Future[str]] | None" = None
    """Answers a question of the guard about a path: allowed if the answer is empty."""
    has_own_processes: bool = False
    """All its processes end with the prefix, as in a process namespace, so they need no marker."""


class SupervisedResult(msgspec.Struct, frozen=True, kw_only=True):
    command: CommandResult
    stopped: str = ""
    """The limit that was exceeded, or why the guard ended the command."""
    guard_report: Mapping[str, Any] = {}


def run_command(command: ShellCommand, on_progress: ProgressCallback | None = None, /) -> CommandResult:
    """Never raises for what the command does."""
    return run_supervised(command, on_progress, CommandStart()).command


def run_supervised(
    command: ShellCommand, on_progress: ProgressCallback | None, start: CommandStart
) -> SupervisedResult:
    """Never raises for what the command does."""
    if command.stop is not None and command.stop.is_set():
        return SupervisedResult(
            command=CommandResult(
                text="stopped before it started", status=-signal.SIGTERM, stop_reason="asked", truncated_bytes=0
            )
        )
    tracker = DescendantTracker(
        with_file=not start.has_own_processes, session=command.environment.get(SESSION_VARIABLE, "")
    )
    try:
        return _run(command, on_progress, start, tracker)
    except BaseException:  # a signal may end us at any moment, even right after the start
        tracker.end_all()
        raise
    finally:
        tracker.close()


def _run(
    command: ShellCommand, on_progress: ProgressCallback | None, start: CommandStart, tracker: DescendantTracker
) -> SupervisedResult:
    output = _Output(command.max_characters, command.on_output)
    arguments = [*start.prefix, _shell(), "-c", "--", command.text]
    marker = tracker.marker_value(command.environment.get(MARKER_VARIABLE, ""))
    environment = {**command.environment, MARKER_VARIABLE: marker}
    descriptors = (*start.descriptors, *command.descriptors, *tracker.descriptors)
    try:
        child = (
            SupervisedChild(arguments, command.directory, environment, descriptors, start, tracker)
            if sys.platform == "linux"
            else _start_unsupervised(arguments, command.directory, environment, descriptors, tracker)
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return _not_started(reason)
    ended = supervise(
        child,
        {child.stdout: lambda chunk: output.take(chunk, command.max_output_bytes)},
        timeout=command.timeout,
        stop=command.stop,
        on_progress=on_progress,
        grace_seconds=GRACE_SECONDS,
        lift_timeout=command.lift_timeout,
    )
    if child.problem and not output.seen:
        return _not_started(child.problem)
    text, truncated_bytes = output.result()
    result = CommandResult(
        text=text, status=child.returncode, stop_reason=_STOP_REASONS[ended], truncated_bytes=truncated_bytes
    )
    return SupervisedResult(command=result, stopped=child.stopped, guard_report=child.guard_report)


def _shell() -> str:
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


def _not_started(reason: str) -> SupervisedResult:
    result = CommandResult(text=f"cannot start: {reason}", status=126, stop_reason="", truncated_bytes=0)
    return SupervisedResult(command=result)


class SupervisedChild:
    """A command under a supervisor, as `supervise` sees it. Passes questions of the guard on."""

    __slots__ = ("_answers", "_exited", "_on_question", "_process", "_tracker")

    def __init__(
        self,
        arguments: Sequence[str],
        directory: str,
        environment: Mapping[str, str],
        descriptors: Sequence[int],
        start: CommandStart,
        tracker: DescendantTracker,
    ) -> None:
        """Raises OSError."""
        self._process = start_supervised(
            arguments,
            directory=directory,
            environment=environment,
            descriptors=descriptors,
            limits=start.limits,
            guard=start.guard,
        )
        self._on_question = start.on_question
        self._answers: dict[str, Future[str]] = {}
        self._exited = False
        self._tracker = tracker
        tracker.close()

    @property
    def stdout(self) -> int:
        return self._process.stdout

    @property
    def returncode(self) -> int:
        return self._process.returncode

    @property
    def problem(self) -> str:
        """Why it could not be started."""
        return str(self._process.result.get("problem", ""))

    @property
    def stopped(self) -> str:
        return str(self._process.result.get("stopped", ""))

    @property
    def guard_report(self) -> Mapping[str, Any]:
        return self._process.result.get("guard", {})

    @property
    def exit_descriptor(self) -> int | None:
        return self._process.control

    def is_waiting(self) -> bool:
        return bool(self._answers)

    def has_exited(self) -> bool:
        for key, answer in [*self._answers.items()]:
            if answer.done():
                del self._answers[key]
                failed = answer.cancelled() or answer.exception() is not None
                self._process.answer(key, "the question was not answered" if failed else answer.result())
        while not self._exited and readable([self._process.control], 0):
            self._exited = not self._process.receive()
            if self._process.pid:
                self._tracker.track(self._process.pid)
            while self._process.questions:
                self._ask(*self._process.questions.pop(0))
        return self._exited

    def terminate(self) -> None:
        self._process.signal_group(signal.SIGTERM)

    def end(self) -> None:
        self._process.kill()
        deadline = time.monotonic() + _END_SECONDS
        while not self.has_exited() and (left := deadline - time.monotonic()) > 0:
            readable([self._process.control], left)
        if not self._process.result:  # the supervisor itself was killed, or can't end them
            self._tracker.track(max(0, self._process.pid - 1))  # the first process is left too
            self._tracker.end_all()

    def close(self) -> None:
        for answer in self._answers.values():
            answer.cancel()
        self._process.close()

    def _ask(self, key: str, path: str) -> None:
        if self._on_question is None:
            self._process.answer(key, "no user can answer")
        else:
            self._answers[key] = self._on_question(path)


class _UnsupervisedChild(PopenChild):
    """Without a supervisor, which needs Linux."""

    problem = stopped = ""
    guard_report: Mapping[str, Any] = {}

    @property
    def stdout(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    @property
    def returncode(self) -> int:
        return self.process.returncode


def _start_unsupervised(
    arguments: Sequence[str],
    directory: str,
    environment: Mapping[str, str],
    descriptors: Sequence[int],
    tracker: DescendantTracker,
) -> _UnsupervisedChild:
    process = subprocess.Popen(  # noqa: S603 - running what policy allowed is what this module is for
        arguments,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        start_new_session=True,
        pass_fds=descriptors,
    )
    tracker.track(process.pid)
    return _UnsupervisedChild(process, tracker.end_all)


class _Output:
    __slots__ = ("chunks", "kept", "max_characters", "on_output", "seen")

    def __init__(self, characters: int, heard: Callable[[bytes], None] | None) -> None:
        self.max_characters = characters
        self.on_output = heard
        self.chunks: list[bytes] = []
        self.kept = 0
        self.seen = 0

    def take(self, chunk: bytes, limit: int) -> bool:
        """False once there is more output than `limit` bytes, unless that is 0."""
        self.seen += len(chunk)
        if self.on_output is not None:
            self.on_output(chunk)
        room = self.max_characters * 4 + _CHUNK - self.kept  # four bytes per character, plus some for colors
        if room > 0:
            self.chunks.append(chunk[:room])
            self.kept += len(self.chunks[-1])
        return not limit or self.seen <= limit

    def result(self) -> tuple[str, int]:
        """Clean text within the limit, and the number of truncated bytes."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = clean_output(decoder.decode(b"".join(self.chunks), final=self.kept == self.seen))
        truncated = self.seen - self.kept
        if len(text) > self.max_characters:
            truncated += len(text[self.max_characters :].encode())
            text = text[: self.max_characters]
        return text, truncated


def clean_output(text: str) -> str:
    """Text as a terminal would leave it: no sequences or control characters, LF, no trailing line breaks."""
    if not text.isprintable():
        text = text.replace("\r\n", "\n")
        text = TERMINAL_SEQUENCE.sub("", text)
        text = _CONTROL.sub("", _OVERSTRUCK.sub("", text).replace("\r", "\n"))
    return text.rstrip("\n")
