"""Runs one shell command with a timeout and an output limit, and leaves no process behind.

Own session, no standard input, stdout and stderr merged. It ends with the shell's exit, not with the end of output, so
a background child can't block us: it is killed with the group, and processes that left the group are found by
`descendants`. Used by Bash and by references; a sandbox is a `prefix`.
"""

import codecs
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Protocol

import msgspec

from kitbag.processes.descendants import MARKER_VARIABLE, SESSION_VARIABLE, DescendantTracker
from kitbag.processes.run_process import ProcessStopReason, supervise

MAX_OUTPUT_BYTES: Final = 256 * 1024 * 1024
"""Output that is discarded before a command that never stops printing is stopped."""
GRACE_SECONDS: Final = 0.5
"""Between SIGTERM and SIGKILL."""
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


def run_command(
    command: ShellCommand,
    on_progress: ProgressCallback | None = None,
    /,
    *,
    prefix: Sequence[str] = (),
    descriptors: Sequence[int] = (),
    on_started: Callable[[], None] = lambda: None,
    ends_with_prefix: bool = False,
) -> CommandResult:
    """Never raises for what the command does. `prefix` goes before the shell: `("bwrap", ...)`.

    It inherits `descriptors`; `on_started` is called once it runs. `ends_with_prefix`: all its processes end with the
    prefix, as in a process namespace, so there is no need to search for them.
    """
    if command.stop is not None and command.stop.is_set():
        return CommandResult(
            text="stopped before it started", status=-signal.SIGTERM, stop_reason="asked", truncated_bytes=0
        )
    tracker = DescendantTracker(with_file=not ends_with_prefix, session=command.environment.get(SESSION_VARIABLE, ""))
    try:
        return _run(command, on_progress, [*prefix], descriptors, on_started, tracker, ends_with_prefix)
    except BaseException:  # a signal may end us at any moment, even right after the start
        tracker.end_all()
        raise
    finally:
        tracker.close()


def _run(
    command: ShellCommand,
    on_progress: ProgressCallback | None,
    prefix: list[str],
    descriptors: Sequence[int],
    on_started: Callable[[], None],
    tracker: DescendantTracker,
    ends_with_prefix: bool,
) -> CommandResult:
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    output = _Output(command.max_characters, command.on_output)
    try:
        process = subprocess.Popen(  # noqa: S603 - running what policy allowed is what this module is for
            [*prefix, shell, "-c", "--", command.text],
            cwd=command.directory,
            env={
                **command.environment,
                MARKER_VARIABLE: tracker.marker_value(command.environment.get(MARKER_VARIABLE, "")),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
            pass_fds=(*descriptors, *command.descriptors, *tracker.descriptors),
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return CommandResult(text=f"cannot start: {reason}", status=126, stop_reason="", truncated_bytes=0)

    def started() -> None:
        tracker.track(process.pid)
        on_started()

    ended = supervise(
        process,
        lambda chunk: output.take(chunk, command.max_output_bytes),
        timeout=command.timeout,
        stop=command.stop,
        on_progress=on_progress,
        on_started=started,
        grace_seconds=GRACE_SECONDS,
        end_descendants=(lambda: None) if ends_with_prefix else tracker.end_all,
    )
    text, truncated_bytes = output.result()
    return CommandResult(
        text=text, status=process.returncode, stop_reason=_STOP_REASONS[ended], truncated_bytes=truncated_bytes
    )


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
