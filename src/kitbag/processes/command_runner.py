"""Runs one shell command with a timeout and an output limit, and leaves no process behind.

Own session, no standard input, stdout and stderr merged. It ends with the shell's exit, not with the end of output, so
a background child can't block us: it is killed with the group, and processes that left the group are found by
`descendants`. Used by Bash and by references; a sandbox is a `prefix`.
"""

import codecs
import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from kitbag.processes.descendants import MARKER_VARIABLE, SESSION_VARIABLE, DescendantTracker
from kitbag.processes.signals import has_child_exited, signal_child_group

MAX_OUTPUT_BYTES: Final = 256 * 1024 * 1024
"""Output that is discarded before a command that never stops printing is stopped."""
GRACE_SECONDS: Final = 0.5
"""Between SIGTERM and SIGKILL."""
_CHUNK = 1 << 18
_POLL = 0.05
_DRAIN_BYTES = 1 << 20
TERMINAL_SEQUENCE: Final = re.compile(
    "\x1b(?:\\[[0-?]*[ -/]*[@-~]|[\\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\\\)|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
_OVERSTRUCK = re.compile("[^\n]\x08")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")

ProgressCallback = Callable[[float], None]
"""Called every second with the seconds since the start."""
StopReason = Literal["", "time", "output", "asked"]
"""Why we ended it: timeout, too much output, or `stop` was set."""


class ShellCommand(NamedTuple):
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


class CommandResult(NamedTuple):
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
        return CommandResult("it was stopped before it began", -signal.SIGTERM, "asked", 0)
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
        return CommandResult(f"can't be started: {reason}", 126, "", 0)
    pipe = process.stdout.fileno() if process.stdout else -1
    stop_reason: StopReason = ""
    try:
        tracker.track(process.pid)
        on_started()
        os.set_blocking(pipe, False)
        with _exit_descriptor(process.pid) as exited:
            stop_reason = _follow(process.pid, pipe, exited, output, command, on_progress)
            if stop_reason:
                signal_child_group(process.pid, signal.SIGTERM)
                _has_exited(process.pid, exited, GRACE_SECONDS)
    finally:
        # Before reaping, so that the group id can't have been reused.
        signal_child_group(process.pid, signal.SIGKILL)
        if not ends_with_prefix:
            tracker.end_all()
        _drain_output(pipe, output)
        if process.stdout:
            process.stdout.close()
        status = process.wait()
    text, truncated_bytes = output.result()
    return CommandResult(text, status, stop_reason, truncated_bytes)


@contextlib.contextmanager
def _exit_descriptor(pid: int) -> Generator[int | None, None, None]:
    """Readable once the process has ended; None if pidfds are not supported."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _has_exited(pid: int, exited: int | None, seconds: float) -> bool:
    """Does not reap it."""
    if exited is not None:
        return exited in _readable([exited], seconds)
    deadline = time.monotonic() + seconds
    while not has_child_exited(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL)
    return True


def _follow(
    pid: int,
    pipe: int,
    exited: int | None,
    output: "_Output",
    command: ShellCommand,
    on_progress: ProgressCallback | None,
) -> StopReason:
    """Wait until it exits; returns why it must be stopped, or ""."""
    start = time.monotonic()
    deadline, next_tick = start + command.timeout, start + 1.0
    watched = [pipe] if exited is None else [pipe, exited]
    polls = exited is None or command.stop is not None
    while True:
        now = time.monotonic()
        if command.stop is not None and command.stop.is_set():
            return "asked"
        if now >= deadline:
            return "time"
        if on_progress is not None and now >= next_tick:
            on_progress(now - start)
            next_tick += 1.0
        wait = min(deadline, next_tick) - now if on_progress is not None else deadline - now
        ready = _readable(watched, min(wait, _POLL) if polls else wait)
        if pipe in ready and not output.read(pipe):
            watched.remove(pipe)
        if command.max_output_bytes and output.seen > command.max_output_bytes:
            return "output"
        if (exited in ready) if exited is not None else _has_exited(pid, None, 0):
            return ""


def _readable(descriptors: list[int], seconds: float) -> set[int]:
    # poll, because select can't watch descriptors above 1,023.
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poller.poll(max(0.0, seconds) * 1000)}


def _drain_output(pipe: int, output: "_Output") -> None:
    """Read what is left in the pipe. Limited: an escaped process might keep writing."""
    limit = output.seen + _DRAIN_BYTES
    while output.seen < limit and _readable([pipe], 0) and output.read(pipe):
        pass


class _Output:
    __slots__ = ("chunks", "kept", "max_characters", "on_output", "seen")

    def __init__(self, characters: int, heard: Callable[[bytes], None] | None) -> None:
        self.max_characters = characters
        self.on_output = heard
        self.chunks: list[bytes] = []
        self.kept = 0
        self.seen = 0

    def read(self, pipe: int) -> bool:
        """False at the end of output."""
        try:
            chunk = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.seen += len(chunk)
        if self.on_output is not None and chunk:
            self.on_output(chunk)
        room = self.max_characters * 4 + _CHUNK - self.kept  # four bytes per character, plus some for colors
        if room > 0:
            self.chunks.append(chunk[:room])
            self.kept += len(self.chunks[-1])
        return bool(chunk)

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
